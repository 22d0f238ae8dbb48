/** Brings `ledger_entries` to what is loaded: new segments appended, gone ones taken out, small files put together. */
import { errorCode, RetryableError } from '../../core/errors.ts';
import { LINE_COLUMNS } from '../../ledger/canonical.ts';
import { ROW_BYTES_MAX } from '../../ledger/row-splitter.ts';
import { type AddFile, rowsOfFile } from '../delta/actions.ts';
import type { SegmentMonth } from '../store/warehouse-reader.ts';
import { ENTRIES, namesOf, selected } from '../tables/columns.ts';
import { rowsOf } from '../tables/tables.ts';
import { type Build, csvRows, fetchCsv, LINE_BYTES } from './build-context.ts';
import { describeFiles, type EntriesFile, entriesTags } from './entries-file.ts';
import { planCompaction, planEntries } from './entries-plan.ts';

/** Of a row each byte may be escaped, and its ids stand beside it. */
const LINE_BYTES_MAX = 2 * ROW_BYTES_MAX + LINE_BYTES;

/** @returns the files that the table has then */
export async function buildEntries(build: Build): Promise<readonly EntriesFile[]> {
  const writer = build.writers.ledger_entries;
  const describe = (): Promise<readonly EntriesFile[]> =>
    describeFiles(build, writer.files, (add) => writer.find(add));
  const plan = planEntries(await build.warehouse.segmentMonths(), writer.isTrusted ? await describe() : []);
  const add: AddFile[] = [];
  for (const segments of plan.append) add.push(await append(build, segments));
  for (const { file, keep } of plan.rewrite) {
    const content = { ...contentOf(keep), isOpen: file.isOpen };
    const where = ` where segment_id in (${[...content.segments].join(', ')})`;
    add.push(await rewrite(build, [file], content, where));
  }
  await writer.commit('WRITE', { add, remove: writer.files.filter(({ path }) => !plan.stay.has(path)) });
  await compact(build, await describe());
  return describe();
}

async function compact(build: Build, files: readonly EntriesFile[]): Promise<void> {
  const groups = planCompaction(files);
  if (groups.length === 0) return;
  const add: AddFile[] = [];
  for (const group of groups) {
    const segments = new Set(group.flatMap((file) => [...file.segments]));
    const content = { month: group[0]?.month ?? '', segments, rows: sumOfRows(group), isOpen: false };
    add.push(await rewrite(build, group, content));
  }
  const remove = groups.flat().map((file) => file.add);
  await build.writers.ledger_entries.commit('OPTIMIZE', { add, remove, dataChange: false });
}

async function append(build: Build, segments: readonly SegmentMonth[]): Promise<AddFile> {
  const { warehouse, signal } = build;
  const content = contentOf(segments);
  const rows = warehouse.rows(content.month, [...content.segments], signal);
  const { path } = await fetchCsv(build, rows);
  const write = (lineBytesMax: number): Promise<AddFile> =>
    writeFile(
      build,
      `select ${selected(ENTRIES)} from ${csvRows(path, LINE_COLUMNS, lineBytesMax)}`,
      content,
    );
  try {
    return await write(LINE_BYTES);
  } catch (error) {
    // DuckDB refuses a line that is longer, and now and then leaves it out: the count tells.
    if (errorCode(error) !== 'DUCKDB' && errorCode(error) !== 'LAKE_ROWS_DIFFER') throw error;
    return write(LINE_BYTES_MAX);
  }
}

/** What a file is to hold. */
type Content = Omit<EntriesFile, 'add'>;

function contentOf(segments: readonly SegmentMonth[]): Content {
  const [first] = segments;
  return {
    month: first?.month ?? '',
    segments: new Set(segments.map(({ segmentId }) => segmentId)),
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
  for (const { add } of files) paths.push(await build.writers.ledger_entries.find(add));
  const from = rowsOf('ledger_entries', paths, false);
  return writeFile(build, `select ${namesOf(ENTRIES)} from ${from}${where}`, content);
}

/** @throws RetryableError `LAKE_ROWS_DIFFER` where other rows came than the warehouse counts */
async function writeFile({ writers, onProgress }: Build, select: string, content: Content): Promise<AddFile> {
  const { month, rows } = content;
  const file = await writers.ledger_entries.write(select, { month, tags: entriesTags(content) });
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
