/**
 * Updates the lake from the warehouse: one commit for each table that changed, then a
 * snapshot with their versions. If a build is killed, the next one continues from the
 * state of the logs.
 *
 * Each file of entries has one file in each summary, and the two are written and removed
 * together. When the coverage of other parties changes, a row that did not count may
 * count now, or the reverse. Summaries of counted entries are then rewritten too.
 */
import { type AddFile, totalOfFiles } from '../delta/actions.ts';
import { readTable } from '../delta/log.ts';
import { literals, queryRows } from '../local/duckdb.ts';
import { removeUnnamed } from '../retention.ts';
import {
  COVERAGE,
  LAKE_TABLES,
  type LakeTable,
  SUMMARY_TABLES,
  type SummaryTable,
} from '../tables/columns.ts';
import type { ListTable, WholeTable } from '../store/lake-store.ts';
import { SUMMARIES, SUMMARY_FORM, summaryOf } from '../tables/summaries.ts';
import { countedEntries, rootOf, rowsOf, SHAPES } from '../tables/tables.ts';
import { buildEntries, type EntriesFile } from './build-entries.ts';
import {
  type Build,
  type LakeProgress,
  openTable,
  statesOf,
  type TableWriter,
} from './table-writer.ts';
import {
  fetchCsv,
  withBuildSession,
  type LakeDeps,
  publishTables,
  selectCsv,
  type BuildSession,
} from './build-session.ts';

export type { LakeProgress } from './table-writer.ts';
export type { LakeDeps } from './build-session.ts';

/** SHA-256 of the CSV that a table's only file was written from. */
const CONTENT_TAG = 'content';
/** Path of the entries file that a summary's file was computed from. */
const OF_TAG = 'of';
const FORM_TAG = 'form';
/** Number of the build that wrote a summary's file. */
const BUILD_TAG = 'build';

/** The results of a build, and the size of the lake afterwards. */
export interface BuiltLake {
  /** Number of the snapshot. */
  readonly version: number;
  /** The tables that changed. */
  readonly changed: readonly LakeTable[];
  /** Files, rows and bytes of all tables together, including summaries and coverage. */
  readonly files: number;
  readonly rows: bigint;
  readonly bytes: bigint;
  /**
   * Number of objects removed because no version referred to them and their retention had
   * expired.
   */
  readonly removedFiles: number;
  /**
   * How many rows of entries the warehouse sent to the build. It does not send rows whose
   * lines the preceding load left in local files.
   */
  readonly rowsSent: bigint;
  readonly commitsDecidedBy: BuildSession['decidedBy'];
}

/**
 * Publishes a lake with exactly the rows that the warehouse had loaded at one instant.
 * @throws RetryableError | PermanentError; commits made before the error stay, and the
 *   next build continues from there
 */
export async function buildLake(
  deps: LakeDeps,
  signal: AbortSignal,
  onProgress: (progress: LakeProgress) => void = () => undefined,
): Promise<BuiltLake> {
  return withBuildSession(deps, signal, (session) =>
    runBuild(session, onProgress),
  );
}

async function runBuild(
  session: BuildSession,
  onProgress: Build['onProgress'],
): Promise<BuiltLake> {
  const opened: TableWriter[] = [];
  for (const table of LAKE_TABLES) opened.push(await openTable(table, session));
  const writers = Object.fromEntries(
    opened.map((writer) => [writer.table, writer]),
  ) as Build['writers'];
  const sent = { rows: 0n };
  const build: Build = { ...session, writers, onProgress, sent };
  await buildList(build, 'parties');
  await buildList(build, 'checkpoints');
  const coveragePath = await buildWhole(build, 'coverage');
  const entries = await buildEntries(build);
  await buildSummaries(build, entries, coveragePath);

  const states = statesOf(opened);
  const changed = opened.filter(({ isChanged }) => isChanged);
  return {
    version: await publishTables(session, states),
    changed: changed.map(({ table }) => table),
    ...totalOfFiles(opened.flatMap((writer) => writer.files)),
    removedFiles: await removeUnnamed(session, states),
    rowsSent: sent.rows,
    commitsDecidedBy: session.decidedBy,
  };
}

/**
 * Writes a list, unless the warehouse has never read all of it and the lake has more
 * rows. Such a warehouse is being rebuilt after a loss, so the lake may have the last
 * copy of rows that the source has dropped.
 */
async function buildList(build: Build, table: ListTable): Promise<void> {
  const inLake = totalOfFiles(build.writers[table].files).rows;
  if (inLake > 0n) {
    const { rows, isProven } = await build.warehouse.listState(table);
    if (!isProven && rows < inLake) return;
  }
  await buildWhole(build, table);
}

/**
 * Writes a single-file table if its rows have changed.
 * @returns the path of a local CSV file with the table's rows
 */
async function buildWhole(build: Build, table: WholeTable): Promise<string> {
  const writer = build.writers[table];
  const rows = build.warehouse.whole(table, build.signal);
  const { path, sha256 } = await fetchCsv(build, rows);
  const before = writer.files;
  const isUnchanged =
    before.length === 1 && before[0]?.tags?.[CONTENT_TAG] === sha256;
  if (isUnchanged) return path;

  const select = selectCsv(path, SHAPES[table].columns);
  const file = await writer.write(select, { [CONTENT_TAG]: sha256 });
  await writer.commit('WRITE', [file], before);
  build.onProgress({
    partition: rootOf(table),
    rows: totalOfFiles([file]).rows,
  });
  return path;
}

/**
 * Updates the summaries to match the files of entries.
 * @param coveragePath today's coverage, as CSV
 */
async function buildSummaries(
  build: Build,
  entries: readonly EntriesFile[],
  coveragePath: string,
): Promise<void> {
  const coverage = `(${selectCsv(coveragePath, COVERAGE)})`;
  const flipped = await findFlippedFiles(build, entries, coverage);
  for (const table of SUMMARY_TABLES) {
    const writer = build.writers[table];
    const { isOfCounted } = SUMMARIES[table];
    const missing = new Map(entries.map((file) => [file.add.path, file]));
    const remove: AddFile[] = [];
    for (const file of writer.files) {
      const source = file.tags?.[OF_TAG] ?? '';
      const isStale =
        isOfCounted && (flipped.has(source) || !isOfFinishedBuild(build, file));
      const isOfThisForm = file.tags?.[FORM_TAG] === String(SUMMARY_FORM);
      const isUsable = writer.isTrusted && isOfThisForm && !isStale;
      if (isUsable && missing.has(source)) missing.delete(source);
      else remove.push(file);
    }
    const add: AddFile[] = [];
    for (const file of missing.values())
      add.push(await writeSummary(build, table, file, coverage));
    await writer.commit('WRITE', add, remove);
  }
}

/**
 * Whether the build that wrote a summary's file finished. An unfinished build may have
 * used coverage that was never published, so its summaries of counted entries are not
 * trusted.
 */
function isOfFinishedBuild(build: Build, { tags }: AddFile): boolean {
  const writtenBy = Number(tags?.[BUILD_TAG] ?? Infinity);
  return writtenBy <= (build.before?.moment ?? -1);
}

async function writeSummary(
  build: Build,
  table: SummaryTable,
  { add, month }: EntriesFile,
  coverage: string,
): Promise<AddFile> {
  const path = await build.writers.ledger_entries.find(add);
  const rows = rowsOf('ledger_entries', [path], false);
  const isOfCounted = SUMMARIES[table].isOfCounted;
  const entries = isOfCounted ? countedEntries(rows, coverage) : rows;
  const tags = {
    [OF_TAG]: add.path,
    [FORM_TAG]: String(SUMMARY_FORM),
    [BUILD_TAG]: String(await build.buildNumber()),
  };
  return build.writers[table].write(summaryOf(table, entries), tags, month);
}

/**
 * Finds the files in which a row may count now but did not before, or the reverse. Such a
 * row was received from another party, at an instant for which that party's coverage has
 * changed.
 * @param coverage today's coverage, as SQL
 * @returns paths as in the log; every older file if the former coverage is unknown
 */
async function findFlippedFiles(
  build: Build,
  entries: readonly EntriesFile[],
  coverage: string,
): Promise<ReadonlySet<string>> {
  const older = entries.filter(({ add }) => !build.written.has(add.path));
  const formerPath = await findFormerCoverage(build);
  if (formerPath === undefined || older.length === 0)
    return new Set(older.map(({ add }) => add.path));

  const run = (sql: string) =>
    queryRows(build, 'see which entries count now', sql);
  const former = rowsOf('coverage', [formerPath], false);
  await run(
    `create or replace temp table changed as ${changedRanges(former, coverage)}`,
  );
  const bounds = await run(
    `select strftime(min(from_time), '%Y-%m'), strftime(max(to_time), '%Y-%m') ` +
      'from changed',
  );
  const [first, last] = bounds[0] ?? [];
  if (typeof first !== 'string' || typeof last !== 'string') return new Set();

  const logPaths = new Map<string, string>();
  for (const { add, month } of older) {
    if (month < first || month > last) continue;
    logPaths.set(await build.writers.ledger_entries.find(add), add.path);
  }
  if (logPaths.size === 0) return new Set();
  const rows = await run(`select distinct filename
    from read_parquet(${literals([...logPaths.keys()])},
        filename = true, hive_partitioning = false, union_by_name = true) entry
      join changed on changed.party_id = account_from_party_id
        and from_time <= vega_time and to_time > vega_time
        and (changed.asset_id is null or changed.asset_id = entry.asset_id)
    where side = 'to'
      and vega_time >= (select min(from_time) from changed)
      and vega_time < (select max(to_time) from changed)`);
  return new Set(rows.map(([path]) => logPaths.get(String(path)) ?? ''));
}

/**
 * Returns SQL for the ranges where a party's coverage changed. If only the end of a range
 * moved, the change is the range between the old and the new end.
 */
function changedRanges(former: string, now: string): string {
  const keys = 'party_id, asset_id, from_time';
  const all = `${keys}, to_time`;
  return `select party_id, asset_id,
      case when count(*) = 2 then min(to_time) else min(from_time) end as from_time,
      max(to_time) as to_time
    from (
      (select ${all} from ${former} except select ${all} from ${now})
      union all
      (select ${all} from ${now} except select ${all} from ${former}))
    group by ${keys}`;
}

/**
 * Finds the coverage of the newest snapshot.
 * @returns the path of its file; undefined if there is no snapshot or its file was
 *   removed
 */
async function findFormerCoverage(build: Build): Promise<string | undefined> {
  const named = build.before?.tables.coverage;
  if (named === undefined) return undefined;
  const { former, find } = build.writers.coverage;
  const state =
    former?.version === named.version
      ? former
      : await readTable(build, rootOf('coverage'), named.version);
  if (state?.metaData.id !== named.id) return undefined;
  const files = [...state.live.values()];
  const [file] = files;
  return file === undefined || files.length > 1 ? undefined : find(file);
}
