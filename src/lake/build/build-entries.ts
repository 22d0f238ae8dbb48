/** Brings `ledger_entries` to what is loaded: new segments appended, gone ones taken out, small files put together. */
import { createWriteStream } from 'node:fs';
import { join } from 'node:path';
import { randomUUID } from 'node:crypto';
import { pipeline } from 'node:stream/promises';
import { errorCode, RetryableError } from '../../core/errors.ts';
import { LINE_COLUMNS } from '../../ledger/canonical.ts';
import { ROW_BYTES_MAX } from '../../ledger/row-splitter.ts';
import type { Build } from './build-context.ts';
import { ENTRIES, namesOf, selected } from '../tables/columns.ts';
import type { AddFile } from '../delta/actions.ts';
import { interruptible } from '../local/duckdb.ts';
import {
  type EntriesFile,
  OPEN_TAG,
  planCompaction,
  planEntries,
  rowsOfFile,
  SEGMENTS_TAG,
  taggedFile,
} from './entries-plan.ts';
import { builderPath, storedFile } from '../local-files.ts';
import type { SegmentMonth } from '../store/warehouse-snapshot.ts';
import { formatIds } from './segment-ids.ts';
import { literals } from '../local/sql.ts';
import { declared, rowsOf } from '../tables/tables.ts';
import type { NewFile, TableWriter } from './table-writer.ts';

/** What the loader and Postgres write. */
const COPY_TEXT = String.raw`delim = '\t', quote = '', escape = '', nullstr = '\N', new_line = '\n'`;
/** DuckDB reads in buffers of the longest line; what is longer is rare, and takes the larger ones. */
const LINE_BYTES = 4 * 2 ** 20;
/** Of a row each byte may be escaped, and its ids stand beside it. */
const LINE_BYTES_MAX = 2 * ROW_BYTES_MAX + LINE_BYTES;
export async function buildEntries(build: Build, writer: TableWriter): Promise<readonly EntriesFile[]> {
  const { shop } = build;
  const wanted = await shop.snapshot.segmentMonths(shop.signal);
  const files = build.isTrusted(writer) ? await describeFiles(build, writer) : [];
  const known = new Set(files.map(({ add }) => add.path));
  const add: AddFile[] = [];
  const remove: AddFile[] = writer.files.filter(({ path }) => !known.has(path));
  for (const plan of planEntries(wanted, files)) {
    for (const segments of plan.append) add.push(await append(build, writer, segments));
    for (const { file, keep } of plan.rewrite) {
      const content = { ...contentOf(keep), isOpen: file.isOpen };
      const where = ` where segment_id in (${content.ids.join(', ')})`;
      add.push(await rewrite(build, writer, [file], content, where));
      remove.push(file.add);
    }
    remove.push(...plan.drop.map((file) => file.add));
  }
  if (add.length + remove.length > 0 || writer.state === undefined) {
    await writer.commit('WRITE', { add, remove });
    await build.shop.deps.kept?.forget(wanted);
  }
  await compact(build, writer);
  return describeFiles(build, writer);
}

async function compact(build: Build, writer: TableWriter): Promise<void> {
  const groups = planCompaction(await describeFiles(build, writer));
  if (groups.length === 0) return;
  const add: AddFile[] = [];
  for (const group of groups) {
    const ids = group.flatMap(({ segments }) => [...segments]);
    const content = { month: group[0]?.month ?? '', ids, rows: sumOfRows(group), isOpen: false };
    add.push(await rewrite(build, writer, group, content));
  }
  const remove = groups.flat().map((file) => file.add);
  await writer.commit('OPTIMIZE', { add, remove }, false);
}

/** What each file holds: by the log, or where another writer made it, by a look into the file. */
async function describeFiles(build: Build, writer: TableWriter): Promise<readonly EntriesFile[]> {
  const files: EntriesFile[] = [];
  for (const add of writer.files) files.push(taggedFile(add) ?? (await inspect(build, add)));
  return files;
}

async function inspect(build: Build, add: AddFile): Promise<EntriesFile> {
  const { connection, signal } = build.shop;
  const path = await entriesPath(build, add);
  const from = rowsOf('ledger_entries', [path], false);
  const result = await interruptible(connection, `look into ${add.path}`, signal, () =>
    connection.runAndReadAll(`select segment_id, count(*) from ${from} group by 1`),
  );
  const counts = result.getRows().map(([id, rows]) => [BigInt(String(id)), BigInt(String(rows))] as const);
  const rows = counts.reduce((sum, [, count]) => sum + count, 0n);
  const month = add.partitionValues['month'] ?? '';
  return { add, month, rows, isOpen: false, segments: new Set(counts.map(([id]) => id)) };
}

export async function entriesPath(build: Build, add: AddFile): Promise<string> {
  const written = build.written.get(add.path);
  if (written !== undefined) return written;
  const { folder, deps, signal } = build.shop;
  return builderPath(storedFile('ledger_entries', add), folder, deps, signal);
}

async function append(
  build: Build,
  writer: TableWriter,
  segments: readonly SegmentMonth[],
): Promise<AddFile> {
  const paths: string[] = [];
  const missing: SegmentMonth[] = [];
  for (const segment of segments) {
    const path = await build.shop.deps.kept?.find(segment);
    if (path === undefined) missing.push(segment);
    else paths.push(path);
  }
  if (missing.length > 0) paths.push(await sentRows(build, missing));
  const write = (lineBytesMax: number): Promise<AddFile> => {
    const lines = `read_csv(${literals(paths)}, header = false, auto_detect = false, ${COPY_TEXT},
      max_line_size = ${lineBytesMax}, buffer_size = ${lineBytesMax}, columns = {${declared(LINE_COLUMNS)}})`;
    return writeFile(build, writer, `select ${selected(ENTRIES)} from ${lines}`, contentOf(segments));
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
async function sentRows(build: Build, segments: readonly SegmentMonth[]): Promise<string> {
  const path = join(build.shop.folder, `${randomUUID()}.copy`);
  const { month, ids, rows } = contentOf(segments);
  await pipeline(build.shop.snapshot.rows(month, ids, build.shop.signal), createWriteStream(path));
  build.countSent(rows);
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
  writer: TableWriter,
  files: readonly EntriesFile[],
  content: Content,
  where = '',
): Promise<AddFile> {
  const paths: string[] = [];
  for (const file of files) paths.push(await entriesPath(build, file.add));
  const from = rowsOf('ledger_entries', paths, false);
  return writeFile(build, writer, `select ${namesOf(ENTRIES)} from ${from}${where}`, content);
}

/** @throws RetryableError `LAKE_ROWS_DIFFER` where other rows came than the warehouse counts */
async function writeFile(
  build: Build,
  writer: TableWriter,
  select: string,
  { month, ids, rows, isOpen }: Content,
): Promise<AddFile> {
  const tags = { [SEGMENTS_TAG]: formatIds(ids), [OPEN_TAG]: String(isOpen) };
  const file: NewFile = await writer.write(select, { month, tags });
  if (file.rows !== rows) {
    throw new RetryableError(
      `Cannot build the lake: ${file.rows} rows came of ${month}, the warehouse counts ${rows}; build again, and verify where it stays so`,
      { code: 'LAKE_ROWS_DIFFER', meta: { month } },
    );
  }
  build.written.set(file.add.path, file.path);
  build.onProgress({ partition: `ledger_entries/month=${month}`, rows });
  return file.add;
}

function sumOfRows(parts: readonly { readonly rows: bigint }[]): bigint {
  return parts.reduce((sum, { rows }) => sum + rows, 0n);
}

/** Rows of a table by its log. */
export function countRows(files: readonly AddFile[]): bigint {
  return files.reduce((sum, file) => sum + (rowsOfFile(file) ?? 0n), 0n);
}
