/** What a file of `ledger_entries` holds, by its tags in the log. */
import { type AddFile, rowsOfFile } from '../delta/actions.ts';
import { type LakeAccess, queryRows } from '../local/duckdb.ts';
import type { SegmentMonth } from '../store/warehouse-reader.ts';
import { rowsOf } from '../tables/tables.ts';

export interface EntriesFile {
  readonly add: AddFile;
  readonly month: string;
  readonly rows: bigint;
  readonly isOpen: boolean;
  /** Those of which rows lie in the file: all rows of the segment and month do. */
  readonly segments: ReadonlySet<bigint>;
}

const SEGMENTS_TAG = 'segments';
const OPEN_TAG = 'open';

/** What a file is to hold. */
export type Content = Omit<EntriesFile, 'add'>;

export function entriesTags({ segments, isOpen }: Content): Readonly<Record<string, string>> {
  return { [SEGMENTS_TAG]: formatIds(segments), [OPEN_TAG]: String(isOpen) };
}

/** Undefined where another writer made the file, and it has to be looked into. */
export function taggedFile(add: AddFile): EntriesFile | undefined {
  const month = add.partitionValues['month'];
  const segments = parseIds(add.tags?.[SEGMENTS_TAG] ?? '');
  const rows = rowsOfFile(add);
  if (!month || segments === undefined || rows === undefined) return undefined;
  return { add, month, rows, isOpen: add.tags?.[OPEN_TAG] === 'true', segments };
}

/** How many rows of each segment and month lie in the files. @param hasMonth whether their folders say it */
export async function countBySegment(
  access: Pick<LakeAccess, 'connection' | 'signal'>,
  paths: readonly string[],
  hasMonth: boolean,
): Promise<readonly Pick<SegmentMonth, 'month' | 'segmentId' | 'rows'>[]> {
  const files = rowsOf('ledger_entries', paths, hasMonth);
  const sql = `select ${hasMonth ? 'month' : `''`}, segment_id, count(*) from ${files} group by 1, 2`;
  const counts = await queryRows(access, 'count the rows of segments', sql);
  return (counts as readonly [string, bigint, bigint][]).map(([month, segmentId, rows]) => ({
    month,
    segmentId,
    rows,
  }));
}

/** Ids as short text: `1-7,9`. */
const IDS = /^\d{1,18}(?:-\d{1,18})?(?:,\d{1,18}(?:-\d{1,18})?)*$/;
/** Of one file: far more than a build puts into one. */
const IDS_MAX = 1_000_000n;

function formatIds(ids: Iterable<bigint>): string {
  const ranges: [bigint, bigint][] = [];
  for (const id of [...ids].toSorted((a, b) => (a < b ? -1 : 1))) {
    const last = ranges.at(-1);
    if (last !== undefined && id <= last[1] + 1n) last[1] = id;
    else ranges.push([id, id]);
  }
  return ranges.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(',');
}

/** Undefined where the text is none. */
function parseIds(text: string): ReadonlySet<bigint> | undefined {
  if (!IDS.test(text)) return undefined;
  const ids = new Set<bigint>();
  let left = IDS_MAX;
  for (const part of text.split(',')) {
    const [from, to = from] = part.split('-').map(BigInt) as [bigint, bigint?];
    left -= to - from + 1n;
    if (from > to || left < 0n) return undefined;
    for (let id = from; id <= to; id += 1n) ids.add(id);
  }
  return ids;
}
