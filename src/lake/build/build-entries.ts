/**
 * Brings `ledger_entries` to what is loaded. Rows never change once they are written: segments that are new are
 * appended, and a file is written again only where segments in it are gone. Open segments lie in files of
 * their own, as each is gone soon; so files of closed ones stay as they are, until small ones are put together.
 */
import { errorCode, RetryableError } from '../../errors/errors.ts';
import { LINE_COLUMNS } from '../../ledger/canonical.ts';
import { ROW_BYTES_MAX } from '../../ledger/row-splitter.ts';
import { type AddFile, rowsOfFile } from '../delta/actions.ts';
import { type LakeAccess, queryRows } from '../local/duckdb.ts';
import type { SegmentMonth } from '../store/lake-store.ts';
import { ENTRIES, namesOf } from '../tables/columns.ts';
import { rowsOf } from '../tables/tables.ts';
import type { Build } from './table-writer.ts';
import { fetchCsv, LINE_BYTES, selectCsv } from './build-session.ts';

/** Of a row each byte may be escaped, and its ids stand beside it. */
const LINE_BYTES_MAX = 2 * ROW_BYTES_MAX + LINE_BYTES;
/** Closed files below so many rows are small. */
const SMALL_ROWS = 250_000n;
/** So many small closed files a month are left alone. */
export const SMALL_FILES_MAX = 12;
/** Of the files that a compaction puts together. */
const COMPACTED_ROWS_MAX = 2_000_000n;
/** Of text that goes into one file. */
const BATCH_ROWS_MAX = 4_000_000n;
const BATCH_SEGMENTS_MAX = 2_000;

/** @returns the files that the table has then */
export async function buildEntries(build: Build): Promise<readonly EntriesFile[]> {
  const writer = build.writers.ledger_entries;
  const wanted = await build.warehouse.segmentMonths();
  const missing = new Map(
    wanted.map((segment) => [`${segment.month}/${segment.segmentId}`, segment]),
  );
  const stay = new Set<string>();
  const add: AddFile[] = [];
  for (const file of writer.isTrusted ? await describeFiles(build) : []) {
    const names = [...file.segments].map((id) => `${file.month}/${id}`);
    const keep = names.flatMap((name) => missing.get(name) ?? []);
    for (const name of names) missing.delete(name);
    if (keep.length === 0) continue;
    if (keep.length === names.length) stay.add(file.add.path);
    else
      add.push(await rewrite(build, [file], { ...contentOf(keep), isOpen: file.isOpen }));
  }
  for (const alike of Map.groupBy(
    missing.values(),
    ({ month, isOpen }) => `${month} ${isOpen}`,
  ).values())
    for (const segments of cutByRows(alike, BATCH_ROWS_MAX, BATCH_SEGMENTS_MAX))
      add.push(await append(build, segments));
  const remove = writer.files.filter(({ path }) => !stay.has(path));
  await writer.commit('WRITE', add, remove);
  await compact(build);
  return describeFiles(build);
}

/** Puts small closed files of one month together. */
async function compact(build: Build): Promise<void> {
  const files = await describeFiles(build);
  const small = files.filter(({ isOpen, rows }) => !isOpen && rows < SMALL_ROWS);
  const add: AddFile[] = [];
  const remove: AddFile[] = [];
  for (const [month, ofMonth] of Map.groupBy(small, (file) => file.month)) {
    if (ofMonth.length <= SMALL_FILES_MAX) continue;
    const smallestFirst = ofMonth.toSorted((a, b) => Number(a.rows - b.rows));
    for (const group of cutByRows(smallestFirst, COMPACTED_ROWS_MAX).filter(
      ({ length }) => length > 1,
    )) {
      const segments = new Set(group.flatMap((file) => [...file.segments]));
      add.push(
        await rewrite(build, group, {
          month,
          segments,
          rows: sumOfRows(group),
          isOpen: false,
        }),
      );
      remove.push(...group.map((file) => file.add));
    }
  }
  if (add.length > 0)
    await build.writers.ledger_entries.commit('OPTIMIZE', add, remove, false);
}

/** By their tags, or where another writer made a file, by a look into it. */
async function describeFiles(build: Build): Promise<readonly EntriesFile[]> {
  const files: EntriesFile[] = [];
  for (const add of build.writers.ledger_entries.files)
    files.push(taggedFile(add) ?? (await inspect(build, add)));
  return files;
}

async function inspect(build: Build, add: AddFile): Promise<EntriesFile> {
  const counts = await countBySegment(
    build,
    [await build.writers.ledger_entries.find(add)],
    false,
  );
  const month = add.partitionValues['month'] ?? '';
  const segments = new Set(counts.map(({ segmentId }) => segmentId));
  return { add, month, rows: sumOfRows(counts), isOpen: false, segments };
}

async function append(build: Build, segments: readonly SegmentMonth[]): Promise<AddFile> {
  const content = contentOf(segments);
  const { path } = await fetchCsv(
    build,
    build.warehouse.rows(content.month, [...content.segments], build.signal),
  );
  const write = (lineBytesMax: number): Promise<AddFile> =>
    writeFile(build, selectCsv(path, ENTRIES, LINE_COLUMNS, lineBytesMax), content);
  try {
    return await write(LINE_BYTES);
  } catch (error) {
    // DuckDB refuses a line that is longer, and now and then leaves it out: the count tells.
    if (errorCode(error) !== 'DUCKDB' && errorCode(error) !== 'LAKE_ROWS_DIFFER')
      throw error;
    return write(LINE_BYTES_MAX);
  }
}

function contentOf(segments: readonly SegmentMonth[]): Content {
  const [first] = segments;
  return {
    month: first?.month ?? '',
    segments: new Set(segments.map(({ segmentId }) => segmentId)),
    rows: sumOfRows(segments),
    isOpen: first?.isOpen ?? false,
  };
}

/** Writes those rows of the files that the content names. */
async function rewrite(
  build: Build,
  files: readonly EntriesFile[],
  content: Content,
): Promise<AddFile> {
  const paths: string[] = [];
  for (const { add } of files) paths.push(await build.writers.ledger_entries.find(add));
  const rows = rowsOf('ledger_entries', paths, false);
  const kept = [...content.segments].join(', ');
  return writeFile(
    build,
    `select ${namesOf(ENTRIES)} from ${rows} where segment_id in (${kept})`,
    content,
  );
}

/** @throws RetryableError `LAKE_ROWS_DIFFER` where other rows came than the warehouse counts */
async function writeFile(
  { writers, onProgress }: Build,
  select: string,
  content: Content,
): Promise<AddFile> {
  const { month, rows } = content;
  const file = await writers.ledger_entries.write(select, entriesTags(content), month);
  const came = rowsOfFile(file);
  if (came !== rows) {
    throw new RetryableError(
      `Cannot build the lake: ${came} rows came of ${month}, the warehouse counts ${rows}; build again, and verify where it stays so`,
      { code: 'LAKE_ROWS_DIFFER', meta: { month } },
    );
  }
  onProgress({ partition: `ledger_entries/month=${month}`, rows });
  return file;
}

function sumOfRows(parts: readonly { readonly rows: bigint }[]): bigint {
  return parts.reduce((sum, { rows }) => sum + rows, 0n);
}

/** In their order, each group as long as it holds no more; what is larger stands alone. */
function cutByRows<Part extends { readonly rows: bigint }>(
  parts: readonly Part[],
  rowsMax: bigint,
  partsMax = Infinity,
): readonly (readonly Part[])[] {
  const groups: Part[][] = [];
  let rows = 0n;
  for (const part of parts) {
    const group = groups.at(-1);
    rows += part.rows;
    if (group !== undefined && rows <= rowsMax && group.length < partsMax)
      group.push(part);
    else {
      groups.push([part]);
      rows = part.rows;
    }
  }
  return groups;
}

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

export function entriesTags({
  segments,
  isOpen,
}: Content): Readonly<Record<string, string>> {
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
  return (counts as readonly [string, bigint, bigint][]).map(
    ([month, segmentId, rows]) => ({
      month,
      segmentId,
      rows,
    }),
  );
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
  return ranges
    .map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`))
    .join(',');
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
