/**
 * Updates `ledger_entries` with the rows that the warehouse has loaded. Once written, a
 * row never changes: new segments are appended, and a file is rewritten only if some of
 * its segments no longer exist. Open segments are soon replaced, so they have files of
 * their own. Files of closed segments stay untouched, except that small ones are
 * compacted.
 */
import { errorCode, RetryableError } from '../../errors/errors.ts';
import { LINE_COLUMNS } from '../../ledger/canonical.ts';
import { ROW_BYTES_MAX } from '../../ledger/csv-rows.ts';
import { type AddFile, rowsOfFile } from '../delta/actions.ts';
import { type LakeAccess, queryRows } from '../local/duckdb.ts';
import type { SegmentMonth } from '../store/lake-store.ts';
import { ENTRIES, namesOf } from '../tables/columns.ts';
import { rowsOf } from '../tables/tables.ts';
import type { Build } from './table-writer.ts';
import {
  fetchCsv,
  LINE_BYTES,
  selectCsv,
  selectLines,
} from './build-session.ts';

/**
 * Maximum length of a CSV line in bytes. Escaping may double the length of a row, and the
 * line also contains ids.
 */
const LINE_BYTES_MAX = 2 * ROW_BYTES_MAX + LINE_BYTES;
/** A closed file with fewer rows than this is treated as small. */
const SMALL_ROWS = 250_000n;
/** Maximum number of small closed files per month; beyond that they are compacted. */
export const SMALL_FILES_MAX = 12;
/** Maximum number of rows in a file written by compaction. */
const COMPACTED_ROWS_MAX = 2_000_000n;
/** Maximum number of rows and segments in one new file. */
const BATCH_ROWS_MAX = 4_000_000n;
const BATCH_SEGMENTS_MAX = 2_000;

/** A file of `ledger_entries` and its contents. */
export interface EntriesFile {
  readonly add: AddFile;
  /** The month, as `2023-05`. */
  readonly month: string;
  readonly rows: bigint;
  /** Whether the file's segments are open. */
  readonly isOpen: boolean;
  /** Segments with rows in the file. All of their rows for this month are in it. */
  readonly segments: ReadonlySet<bigint>;
}

/** The contents of a file, without its entry in the log. */
export type Content = Omit<EntriesFile, 'add'>;

/**
 * Updates the table.
 * @returns the table's files after the build
 */
export async function buildEntries(
  build: Build,
): Promise<readonly EntriesFile[]> {
  const writer = build.writers.ledger_entries;
  const missing = new Map<string, SegmentMonth>();
  for (const segment of await build.warehouse.segmentMonths())
    missing.set(nameOf(segment.month, segment.segmentId), segment);

  const unchanged = new Set<string>();
  const add: AddFile[] = [];
  // If the table's segments belong to a different warehouse, rewrite the whole table.
  const existing = writer.isTrusted ? await describeFiles(build) : [];
  for (const file of existing) {
    const names = [...file.segments].map((id) => nameOf(file.month, id));
    const remaining = names.flatMap((name) => missing.get(name) ?? []);
    for (const name of names) missing.delete(name);
    if (remaining.length === 0) continue;
    if (remaining.length === names.length) {
      unchanged.add(file.add.path);
    } else {
      const content = { ...contentOf(remaining), isOpen: file.isOpen };
      add.push(await rewrite(build, [file], content));
    }
  }

  const partOf = ({ segmentId }: SegmentMonth): number =>
    build.loadedLines?.partOf(segmentId) ?? -1;
  const alike = Map.groupBy(missing.values(), (segment) =>
    JSON.stringify([segment.month, segment.isOpen, partOf(segment) === -1]),
  );
  for (const segments of alike.values()) {
    // In this order, the segments of a part are in one batch or a few, so each file of
    // lines is read only a few times.
    const byPart = segments.toSorted(
      (one, other) => partOf(one) - partOf(other),
    );
    for (const batch of cutByRows(byPart, BATCH_ROWS_MAX, BATCH_SEGMENTS_MAX))
      add.push(await append(build, batch));
  }
  const remove = writer.files.filter(({ path }) => !unchanged.has(path));
  await writer.commit('WRITE', add, remove);
  await compact(build);
  return describeFiles(build);
}

function nameOf(month: string, segmentId: bigint): string {
  return `${month}/${segmentId}`;
}

/** Compacts small closed files of the same month into larger ones. */
async function compact(build: Build): Promise<void> {
  const files = await describeFiles(build);
  const small = files.filter(
    ({ isOpen, rows }) => !isOpen && rows < SMALL_ROWS,
  );
  const add: AddFile[] = [];
  const remove: AddFile[] = [];
  for (const [month, filesOfMonth] of Map.groupBy(
    small,
    (file) => file.month,
  )) {
    if (filesOfMonth.length <= SMALL_FILES_MAX) continue;
    const smallestFirst = filesOfMonth.toSorted((a, b) =>
      Number(a.rows - b.rows),
    );
    for (const group of cutByRows(smallestFirst, COMPACTED_ROWS_MAX)) {
      if (group.length === 1) continue;
      const segments = new Set(group.flatMap((file) => [...file.segments]));
      const content = {
        month,
        segments,
        rows: sumOfRows(group),
        isOpen: false,
      };
      add.push(await rewrite(build, group, content));
      remove.push(...group.map((file) => file.add));
    }
  }
  if (add.length === 0) return;
  const { ledger_entries: writer } = build.writers;
  await writer.commit('OPTIMIZE', add, remove, false);
}

/**
 * Describes the table's files by their tags. Files from other writers have no tags, so
 * their rows are read instead.
 */
async function describeFiles(build: Build): Promise<readonly EntriesFile[]> {
  const files: EntriesFile[] = [];
  for (const add of build.writers.ledger_entries.files)
    files.push(taggedFile(add) ?? (await inspectFile(build, add)));
  return files;
}

async function inspectFile(build: Build, add: AddFile): Promise<EntriesFile> {
  const path = await build.writers.ledger_entries.find(add);
  const counts = await countBySegment(build, [path], false);
  const month = add.partitionValues['month'] ?? '';
  const segments = new Set(counts.map(({ segmentId }) => segmentId));
  return { add, month, rows: sumOfRows(counts), isOpen: false, segments };
}

/** Writes the rows of these segments to a new file. */
async function append(
  build: Build,
  segments: readonly SegmentMonth[],
): Promise<AddFile> {
  const content = contentOf(segments);
  const select = await selectRows(build, content);
  const write = (lineBytesMax: number): Promise<AddFile> =>
    writeFile(build, select(lineBytesMax), content);
  try {
    return await write(LINE_BYTES);
  } catch (error) {
    // DuckDB usually refuses a line that is longer than its buffer, but sometimes
    // silently drops it, which shows up as a different row count.
    const code = errorCode(error);
    if (code !== 'DUCKDB' && code !== 'LAKE_ROWS_DIFFER') throw error;
    return write(LINE_BYTES_MAX);
  }
}

/**
 * Chooses where the rows of some segments come from. If the load left the lines of all
 * these segments in local files, those files are read; otherwise, the warehouse sends the
 * rows.
 * @returns a function that makes the SQL for lines up to a length in bytes
 */
async function selectRows(
  build: Build,
  { month, segments, rows }: Content,
): Promise<(lineBytesMax: number) => string> {
  const { loadedLines, warehouse, signal } = build;
  const ids = [...segments];
  const parts = new Set(ids.map((id) => loadedLines?.partOf(id)));
  if (loadedLines !== undefined && !parts.has(undefined)) {
    const paths = [...parts].flatMap((part) =>
      part === undefined ? [] : [loadedLines.pathOf(month, part)],
    );
    return (lineBytesMax) => selectLines(paths, ids, lineBytesMax);
  }
  build.sent.rows += rows;
  const { path } = await fetchCsv(build, warehouse.rows(month, ids, signal));
  return (lineBytesMax) => selectCsv(path, ENTRIES, LINE_COLUMNS, lineBytesMax);
}

/**
 * Describes a file that contains these segments.
 * @param segments segments of one month, either all open or all closed
 */
function contentOf(segments: readonly SegmentMonth[]): Content {
  const [first] = segments;
  return {
    month: first?.month ?? '',
    segments: new Set(segments.map(({ segmentId }) => segmentId)),
    rows: sumOfRows(segments),
    isOpen: first?.isOpen ?? false,
  };
}

/** Writes a new file with the rows of `files` that belong to the content's segments. */
async function rewrite(
  build: Build,
  files: readonly EntriesFile[],
  content: Content,
): Promise<AddFile> {
  const paths: string[] = [];
  for (const { add } of files)
    paths.push(await build.writers.ledger_entries.find(add));
  const rows = rowsOf('ledger_entries', paths, false);
  const ids = [...content.segments].join(', ');
  const select = `select ${namesOf(ENTRIES)} from ${rows} where segment_id in (${ids})`;
  return writeFile(build, select, content);
}

/**
 * Writes one file and checks its row count.
 * @throws RetryableError `LAKE_ROWS_DIFFER` if the file's row count differs from the
 *   warehouse's
 */
async function writeFile(
  { writers, onProgress }: Build,
  select: string,
  content: Content,
): Promise<AddFile> {
  const { month, rows } = content;
  const file = await writers.ledger_entries.write(
    select,
    entriesTags(content),
    month,
  );
  const written = rowsOfFile(file);
  if (written !== rows) {
    throw new RetryableError(
      `Cannot build the lake: ${written} rows of ${month} were written, ` +
        `the warehouse counts ${rows}; build again, and run verify if that ` +
        'does not help',
      { code: 'LAKE_ROWS_DIFFER', meta: { month } },
    );
  }
  onProgress({ partition: `ledger_entries/month=${month}`, rows });
  return file;
}

function sumOfRows(parts: readonly { readonly rows: bigint }[]): bigint {
  return parts.reduce((sum, { rows }) => sum + rows, 0n);
}

/**
 * Splits parts into groups within the limits, keeping their order. A part above the limit
 * becomes a group of its own.
 */
function cutByRows<Part extends { readonly rows: bigint }>(
  parts: readonly Part[],
  rowsMax: bigint,
  partsMax = Infinity,
): readonly (readonly Part[])[] {
  const groups: Part[][] = [];
  let rows = 0n;
  for (const part of parts) {
    const group = groups.at(-1);
    const hasRoom =
      rows + part.rows <= rowsMax && (group?.length ?? 0) < partsMax;
    if (group !== undefined && hasRoom) {
      group.push(part);
      rows += part.rows;
    } else {
      groups.push([part]);
      rows = part.rows;
    }
  }
  return groups;
}

const SEGMENTS_TAG = 'segments';
const OPEN_TAG = 'open';

/** Returns the tags by which a later build recognizes a file's contents. */
export function entriesTags({
  segments,
  isOpen,
}: Content): Readonly<Record<string, string>> {
  return { [SEGMENTS_TAG]: formatIds(segments), [OPEN_TAG]: String(isOpen) };
}

/**
 * Describes a file by its tags.
 * @returns undefined if the file is from another writer
 */
export function taggedFile(add: AddFile): EntriesFile | undefined {
  const month = add.partitionValues['month'];
  const segments = parseIds(add.tags?.[SEGMENTS_TAG] ?? '');
  const rows = rowsOfFile(add);
  if (!month || segments === undefined || rows === undefined) return undefined;
  return {
    add,
    month,
    rows,
    isOpen: add.tags?.[OPEN_TAG] === 'true',
    segments,
  };
}

/** The number of rows that one segment has in one month. */
export type SegmentCount = Pick<SegmentMonth, 'month' | 'segmentId' | 'rows'>;

/**
 * Counts the rows of each segment and month in the given files.
 * @param hasMonth whether the paths contain the month, as in `month=2023-05`
 */
export async function countBySegment(
  access: Pick<LakeAccess, 'connection' | 'signal'>,
  paths: readonly string[],
  hasMonth: boolean,
): Promise<readonly SegmentCount[]> {
  const files = rowsOf('ledger_entries', paths, hasMonth);
  const month = hasMonth ? 'month' : `''`;
  const sql = `select ${month}, segment_id, count(*) from ${files} group by 1, 2`;
  const rows = await queryRows(access, 'count the rows of segments', sql);
  return (rows as readonly [string, bigint, bigint][]).map(
    ([monthOfRows, segmentId, count]) => ({
      month: monthOfRows,
      segmentId,
      rows: count,
    }),
  );
}

/** The compact notation for a set of ids: `1-7,9`. */
const IDS = /^\d{1,18}(?:-\d{1,18})?(?:,\d{1,18}(?:-\d{1,18})?)*$/;
/**
 * Maximum number of ids in a file's tag, far more than a build puts into one file. A tag
 * with more is treated as invalid.
 */
const IDS_MAX = 1_000_000n;

interface IdRange {
  readonly first: bigint;
  last: bigint;
}

function formatIds(ids: Iterable<bigint>): string {
  const ranges: IdRange[] = [];
  for (const id of [...ids].toSorted((a, b) => (a < b ? -1 : 1))) {
    const range = ranges.at(-1);
    if (range !== undefined && id <= range.last + 1n) range.last = id;
    else ranges.push({ first: id, last: id });
  }
  const texts = ranges.map(({ first, last }) =>
    first === last ? `${first}` : `${first}-${last}`,
  );
  return texts.join(',');
}

/**
 * Parses the ids in a tag.
 * @returns undefined if the string is not a list of ids, or has too many of them
 */
function parseIds(text: string): ReadonlySet<bigint> | undefined {
  if (!IDS.test(text)) return undefined;
  const ids = new Set<bigint>();
  let remaining = IDS_MAX;
  for (const part of text.split(',')) {
    const [first = 0n, last = first] = part.split('-').map(BigInt);
    remaining -= last - first + 1n;
    if (first > last || remaining < 0n) return undefined;
    for (let id = first; id <= last; id += 1n) ids.add(id);
  }
  return ids;
}
