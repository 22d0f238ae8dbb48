/** Cut ids in what is asked of the lake. */
import type { DuckDBConnection } from '@duckdb/node-api';
import { CANDIDATES_MAX, chooseById, splitCutId } from '../../core/ids.ts';
import { UsageError } from '../../core/errors.ts';
import type { Inquiry } from './questions.ts';

/** An id in SQL that was cut off: such text stands in no row. */
const CUT_IN_SQL = /'[^'\s]*…[^'\s]*'/u;

/** What is asked of the lake to tell which party a beginning means. */
export const KNOWN_PARTIES = 'select party_id as id from parties union select party_id from coverage';

/** Whether any ledger was exported with one side only. */
export async function hasOneSided(connection: DuckDBConnection): Promise<boolean> {
  const reader = await connection.runAndReadAll('select count(*) > 0 from coverage where not both_sides');
  return reader.getRows()[0]?.[0] === true;
}

/** @throws UsageError where the beginning of an id is that of none, or of several */
export async function completeIds(
  { parameters, rows }: Pick<Inquiry, 'parameters' | 'rows'>,
  connection: DuckDBConnection,
): Promise<Inquiry['parameters']> {
  const assets = `select asset_id as id from ${rows}`;
  return {
    party: await complete('party', parameters.party, KNOWN_PARTIES, connection),
    asset: await complete('asset', parameters.asset, assets, connection),
  };
}

/** @throws UsageError */
export function refuseCutIds(sql: string): void {
  const [cut] = CUT_IN_SQL.exec(sql) ?? [];
  if (cut !== undefined)
    throw new UsageError([
      `query: ${cut} is the beginning of an id, and equals none; give the whole id, or write starts_with(party_id, ${cut.replace(/….*/u, "'")})`,
    ]);
}

async function complete(
  name: 'party' | 'asset',
  given: string | null,
  known: string,
  connection: DuckDBConnection,
): Promise<string | null> {
  if (given === null) return null;
  const { prefix, suffix } = splitCutId(given);
  const reader = await connection.runAndReadAll(
    `select distinct id from (${known}) where starts_with(id, $prefix) and ends_with(id, $suffix) order by id <> $given, id limit ${CANDIDATES_MAX}`,
    { prefix, suffix, given },
  );
  const candidates = reader.getRows().map(([id]) => String(id));
  return chooseById(given, candidates, {
    idOf: (id) => id,
    where: `--${name}`,
    noun: name,
    hint: `give the id of ${name === 'party' ? 'a party' : 'an asset'} in the lake, or its beginning`,
  });
}
