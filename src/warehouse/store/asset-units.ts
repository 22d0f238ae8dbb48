/**
 * Keeps the assets of ASSETS_FILE in the warehouse, where views show amounts in whole
 * units. The stored amounts do not depend on them.
 */
import type { Asset } from '../../ledger/assets.ts';
import type { Database } from '../../postgres/database.ts';
import { execute, readRows } from '../../postgres/run-statement.ts';
import { statement } from '../../postgres/statement.ts';
import { inTransaction } from '../../postgres/transaction.ts';

const KEEP = 'keep the assets of ASSETS_FILE';

/**
 * Replaces the assets of the last file with these, in one transaction. An asset that an
 * owner has inserted into `mirror.assets` stays, unless the file has it too. If nothing
 * has changed, as at almost every start, nothing is written.
 */
export async function keepAssets(
  db: Database,
  assets: readonly Asset[],
): Promise<void> {
  const wanted = assets.toSorted((a, b) => (a.id < b.id ? -1 : 1));
  const known = await readRows(db, 'read the assets', FROM_FILE);
  const isKnown =
    known.length === wanted.length &&
    wanted.every(({ id, symbol, decimals }, index) => {
      const row = known[index];
      return (
        row?.id === id && row.symbol === symbol && row.decimals === decimals
      );
    });
  if (isKnown) return;
  await inTransaction(db, { action: KEEP }, async (tx) => {
    await execute(tx, KEEP, dropOthers(wanted));
    await execute(tx, KEEP, writeAll(wanted));
  });
}

/** Sorted as JavaScript compares strings, and not by a locale. */
const FROM_FILE = statement({ id: 'text', symbol: 'text', decimals: 'int' })`
  select asset_id as id, symbol, decimals from mirror.configured_assets
   where from_file order by asset_id collate "C"`;

function dropOthers(assets: readonly Asset[]) {
  return statement()`
    delete from mirror.configured_assets
     where from_file and asset_id <> all(${assets.map(({ id }) => id)}::text[])`;
}

/** Writes in a fixed order, so that two processes that start together do not deadlock. */
function writeAll(assets: readonly Asset[]) {
  return statement()`
    insert into mirror.configured_assets (asset_id, symbol, decimals, from_file)
    select id, symbol, decimals, true
      from jsonb_to_recordset(${JSON.stringify(assets)}::jsonb) as given (id text, symbol text, decimals smallint)
     order by id
    on conflict (asset_id) do update
       set symbol = excluded.symbol, decimals = excluded.decimals, from_file = true`;
}
