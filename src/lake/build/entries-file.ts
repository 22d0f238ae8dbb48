/** What a file of `ledger_entries` holds: by its tags in the log, or where another writer made it, by a look into it. */
import { type AddFile, rowsOfFile } from '../delta/actions.ts';
import { type LakeAccess, queryRows } from '../local/duckdb.ts';
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

export function entriesTags({
  segments,
  isOpen,
}: Pick<EntriesFile, 'segments' | 'isOpen'>): Readonly<Record<string, string>> {
  return { [SEGMENTS_TAG]: formatIds(segments), [OPEN_TAG]: String(isOpen) };
}

/** @param find where DuckDB finds a file */
export async function describeFiles(
  access: Pick<LakeAccess, 'connection' | 'signal'>,
  adds: readonly AddFile[],
  find: (add: AddFile) => Promise<string>,
): Promise<readonly EntriesFile[]> {
  const files: EntriesFile[] = [];
  for (const add of adds) files.push(taggedFile(add) ?? (await inspect(access, add, await find(add))));
  return files;
}

/** Undefined where another writer made the file, and it has to be looked into. */
export function taggedFile(add: AddFile): EntriesFile | undefined {
  const month = add.partitionValues['month'];
  const segments = parseIds(add.tags?.[SEGMENTS_TAG] ?? '');
  const rows = rowsOfFile(add);
  if (!month || segments === undefined || rows === undefined) return undefined;
  return { add, month, rows, isOpen: add.tags?.[OPEN_TAG] === 'true', segments };
}

async function inspect(
  access: Pick<LakeAccess, 'connection' | 'signal'>,
  add: AddFile,
  path: string,
): Promise<EntriesFile> {
  const sql = `select segment_id, count(*) from ${rowsOf('ledger_entries', [path], false)} group by 1`;
  const counts = (await queryRows(access, `look into ${add.path}`, sql)) as readonly [bigint, bigint][];
  const rows = counts.reduce((sum, [, count]) => sum + count, 0n);
  const month = add.partitionValues['month'] ?? '';
  return { add, month, rows, isOpen: false, segments: new Set(counts.map(([id]) => id)) };
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
