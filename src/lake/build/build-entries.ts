/** Brings `ledger_entries` to what is loaded: new segments appended, gone ones taken out, small files put together. */
import { createWriteStream } from 'node:fs';
import { join } from 'node:path';
import { randomUUID } from 'node:crypto';
import { pipeline } from 'node:stream/promises';
import { errorCode, RetryableError } from '../../core/errors.ts';
import { LINE_COLUMNS } from '../../ledger/canonical.ts';
import { ROW_BYTES_MAX } from '../../ledger/row-splitter.ts';
import { type AddFile, rowsOfFile } from '../delta/actions.ts';
import { queryRows } from '../local/duckdb.ts';
import { literals } from '../local/sql.ts';
import type { SegmentMonth } from '../store/warehouse-reader.ts';
import { ENTRIES, namesOf, selected } from '../tables/columns.ts';
import { declared, rowsOf } from '../tables/tables.ts';
import { type Build, findFile } from './build-context.ts';
import {
  type EntriesFile,
  OPEN_TAG,
  planCompaction,
  planEntries,
  SEGMENTS_TAG,
  taggedFile,
} from './entries-plan.ts';
import { formatIds } from './segment-ids.ts';

/** What the loader and Postgres write. */
const COPY_TEXT = String.raw`delim = '\t', quote = '', escape = '', nullstr = '\N', new_line = '\n'`;
/** DuckDB reads in buffers of the longest line; what is longer is rare, and takes the larger ones. */
const LINE_BYTES = 4 * 2 ** 20;
/** Of a row each byte may be escaped, and its ids stand beside it. */
const LINE_BYTES_MAX = 2 * ROW_BYTES_MAX + LINE_BYTES;

/** @returns the files that the table has then */
export async function buildEntries(build: Build): Promise<readonly EntriesFile[]> {
  const writer = build.writers.ledger_entries;
  const wanted = await build.warehouse.segmentMonths();
  const files = writer.isTrusted ? await describeFiles(build) : [];
  const known = new Set(files.map(({ add }) => add.path));
  const add: AddFile[] = [];
  const remove: AddFile[] = writer.files.filter(({ path }) => !known.has(path));
  const plan = planEntries(wanted, files);
  for (const segments of plan.append) add.push(await append(build, segments));
  for (const { file, keep } of plan.rewrite) {
    const content = { ...contentOf(keep), isOpen: file.isOpen };
    const where = ` where segment_id in (${content.ids.join(', ')})`;
    add.push(await rewrite(build, [file], content, where));
  }
  remove.push(...[...plan.rewrite.map(({ file }) => file), ...plan.drop].map((file) => file.add));
  if (await writer.commitChange('WRITE', { add, remove })) await build.kept?.forget(wanted);
  await compact(build);
  return describeFiles(build);
}

async function compact(build: Build): Promise<void> {
  const groups = planCompaction(await describeFiles(build));
  if (groups.length === 0) return;
  const add: AddFile[] = [];
  for (const group of groups) {
    const ids = group.flatMap(({ segments }) => [...segments]);
    const content = { month: group[0]?.month ?? '', ids, rows: sumOfRows(group), isOpen: false };
    add.push(await rewrite(build, group, content));
  }
  const remove = groups.flat().map((file) => file.add);
  await build.writers.ledger_entries.commit('OPTIMIZE', { add, remove }, false);
}

/** What each file holds: by the log, or where another writer made it, by a look into the file. */
async function describeFiles(build: Build): Promise<readonly EntriesFile[]> {
  const files: EntriesFile[] = [];
  for (const add of build.writers.ledger_entries.files)
    files.push(taggedFile(add) ?? (await inspect(build, add)));
  return files;
}

async function inspect(build: Build, add: AddFile): Promise<EntriesFile> {
  const from = rowsOf('ledger_entries', [await findFile(build, 'ledger_entries', add)], false);
  const sql = `select segment_id, count(*) from ${from} group by 1`;
  const counts = (await queryRows(build, `look into ${add.path}`, sql)) as readonly [bigint, bigint][];
  const rows = counts.reduce((sum, [, count]) => sum + count, 0n);
  const month = add.partitionValues['month'] ?? '';
  return { add, month, rows, isOpen: false, segments: new Set(counts.map(([id]) => id)) };
}

async function append(build: Build, segments: readonly SegmentMonth[]): Promise<AddFile> {
  const paths: string[] = [];
  const missing: SegmentMonth[] = [];
  for (const segment of segments) {
    const path = await build.kept?.find(segment);
    if (path === undefined) missing.push(segment);
    else paths.push(path);
  }
  if (missing.length > 0) paths.push(await fetchRows(build, missing));
  const write = (lineBytesMax: number): Promise<AddFile> => {
    const lines = `read_csv(${literals(paths)}, header = false, auto_detect = false, ${COPY_TEXT},
      max_line_size = ${lineBytesMax}, buffer_size = ${lineBytesMax}, columns = {${declared(LINE_COLUMNS)}})`;
    return writeFile(build, `select ${selected(ENTRIES)} from ${lines}`, contentOf(segments));
  };
  try {
    return await write(LINE_BYTES);
  } catch (error) {
    // DuckDB refuses a line that is longer, and now and then leaves it out: the count tells.
    if (errorCode(error) !== 'DUCKDB' && errorCode(error) !== 'LAKE_ROWS_DIFFER') throw error;
    return write(LINE_BYTES_MAX);
  }
}

/** Rows that no load has left here come from the warehouse. */
async function fetchRows(build: Build, segments: readonly SegmentMonth[]): Promise<string> {
  const { warehouse, folder, signal } = build;
  const path = join(folder, `${randomUUID()}.copy`);
  const { month, ids, rows } = contentOf(segments);
  await pipeline(warehouse.rows(month, ids, signal), createWriteStream(path));
  build.rowsSent += rows;
  return path;
}

/** What a file is to hold. */
type Content = Omit<EntriesFile, 'add' | 'segments'> & { readonly ids: readonly bigint[] };

function contentOf(segments: readonly SegmentMonth[]): Content {
  const [first] = segments;
  return {
    month: first?.month ?? '',
    ids: segments.map(({ segmentId }) => segmentId),
    rows: sumOfRows(segments),
    isOpen: first?.isOpen ?? false,
  };
}

async function rewrite(
  build: Build,
  files: readonly EntriesFile[],
  content: Content,
  where = '',
): Promise<AddFile> {
  const paths: string[] = [];
  for (const { add } of files) paths.push(await findFile(build, 'ledger_entries', add));
  const from = rowsOf('ledger_entries', paths, false);
  return writeFile(build, `select ${namesOf(ENTRIES)} from ${from}${where}`, content);
}

/** @throws RetryableError `LAKE_ROWS_DIFFER` where other rows came than the warehouse counts */
async function writeFile(
  { writers, onProgress }: Build,
  select: string,
  { month, ids, rows, isOpen }: Content,
): Promise<AddFile> {
  const tags = { [SEGMENTS_TAG]: formatIds(ids), [OPEN_TAG]: String(isOpen) };
  const file = await writers.ledger_entries.write(select, { month, tags });
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
