/**
 * The known assets in a query's engine: the table `assets`, and a macro that shows an
 * amount in whole units. The lake does not store assets, so a query of an old snapshot
 * uses the decimals that are known now.
 */
import type { DuckDBConnection } from '@duckdb/node-api';
import type { Asset } from '../../ledger/assets.ts';
import { literal } from '../local/duckdb.ts';

/**
 * SQL macro `in_units(amount, asset_id)`: the amount in whole units as text, which is
 * exact at any size; NULL if the asset is not known. Amounts are summed before they are
 * converted: `in_units(sum(quantity), asset_id)`. The warehouse has a function of the
 * same name that returns the same figures.
 */
const IN_UNITS = `create macro in_units(amount, asset) as (
  select first(case
      when cast(amount as varchar) is null then null
      when units.decimals = 0 then cast(amount as varchar)
      else concat(
        case when starts_with(cast(amount as varchar), '-') then '-' else '' end,
        left(padded(cast(amount as varchar), units.decimals), -units.decimals),
        rtrim(rtrim('.' || right(padded(cast(amount as varchar), units.decimals), units.decimals), '0'), '.'))
    end)
    from mirror.assets units where units.asset_id = asset)`;

/** An amount's digits, padded with zeros so that there are more digits than decimals. */
const PADDED = `create macro padded(digits, decimals) as
  lpad(ltrim(digits, '-'), cast(greatest(length(ltrim(digits, '-')), decimals + 1) as integer), '0')`;

/** Creates the table and the macro. The schema `mirror` must exist. */
export async function addAssets(
  connection: DuckDBConnection,
  assets: readonly Asset[],
): Promise<void> {
  await connection.run(
    'create table mirror.assets (asset_id varchar, symbol varchar, decimals integer)',
  );
  const rows = assets.map(
    ({ id, symbol, decimals }) =>
      `(${literal(id)}, ${literal(symbol)}, ${decimals})`,
  );
  if (rows.length > 0)
    await connection.run(`insert into mirror.assets values ${rows.join(', ')}`);
  await connection.run('create view assets as from mirror.assets');
  await connection.run(PADDED);
  await connection.run(IN_UNITS);
}
