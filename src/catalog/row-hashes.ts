/**
 * Reads loaded ledger entries as the hashes that are summed into digests. The hashes are
 * computed outside the database, so that they prove the values it stores.
 */
import {
  canonicalText,
  ENTRY_COLUMNS,
  extraFromJson,
} from '../ledger/canonical.ts';
import { hashText } from '../ledger/digest.ts';
import { copyLines } from '../postgres/copy.ts';
import type { Warehouse } from '../postgres/database.ts';

/** The canonical values of a ledger entry, as strings. */
const CANONICAL_SQL = ENTRY_COLUMNS.map((column) =>
  column === 'vega_time'
    ? `to_char(vega_time at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`
    : `${column}::text`,
).join(', ');

export interface HashedRow {
  readonly segmentId: string;
  /** The entry's time, as RFC 3339 in UTC. */
  readonly time: string;
  /** The hash of the entry's canonical text, from `hashText`. */
  readonly hash: string;
}

/** Selects the entries to read. */
export interface HashedRows {
  readonly segmentIds: readonly bigint[];
  /** The month of the entries, as `2023-05`; by default, all months. */
  readonly month?: string;
  /** Whether to sort the entries by time. */
  readonly isSorted?: boolean;
  /** The verb phrase for messages, in the infinitive ("read …"). */
  readonly action: string;
  readonly signal: AbortSignal;
}

/** Yields the hashes of loaded entries, in batches. */
export async function* readRowHashes(
  { pool }: Warehouse,
  { segmentIds, month, isSorted, action, signal }: HashedRows,
): AsyncGenerator<readonly HashedRow[]> {
  const begin = month === undefined ? '' : monthBegin(month);
  const inMonth =
    month === undefined
      ? ''
      : `and vega_time >= '${begin}' and vega_time < timestamptz '${begin}' + interval '1 month'`;
  const order = isSorted === true ? 'order by vega_time' : '';
  const statement = `copy (
    select json_build_array(segment_id::text, extra::text, array[${CANONICAL_SQL}])
    from mirror.ledger_entries
    where segment_id = any('{${segmentIds.join(',')}}'::bigint[]) ${inMonth} ${order}) to stdout`;
  for await (const lines of copyLines(pool, { statement, action, signal })) {
    yield lines.map((line) => {
      // COPY escapes only one character that JSON uses, the backslash.
      const row: unknown = JSON.parse(line.replaceAll('\\\\', '\\'));
      const [segmentId, extra, values] = row as CopiedRow;
      const extraValues = extra === null ? [] : extraFromJson(extra);
      const texts = values.map((value) => value ?? '');
      const hash = hashText(canonicalText(texts, extraValues));
      return { segmentId, time: texts[0] ?? '', hash };
    });
  }
}

/** The segment's id, the extra columns as a JSON string, and the values. */
type CopiedRow = [string, string | null, (string | null)[]];

/** @throws RangeError if the string is not a month, because it becomes part of SQL */
function monthBegin(month: string): string {
  if (!/^\d{4}-\d{2}$/.test(month)) throw new RangeError('not a month');
  return `${month}-01T00:00:00Z`;
}
