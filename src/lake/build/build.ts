/**
 * Brings the lake up to date with the warehouse: one commit for each table that changed, then the moment that
 * names their versions. Whatever a killed build has left, the next one goes on from what the logs say. Each file of
 * entries and its summaries are kept together; a summary of counted entries is also made anew where the coverage of
 * other parties may have changed which rows of the file count.
 */
import { type AddFile, totalOfFiles } from '../delta/actions.ts';
import { readTable } from '../delta/log.ts';
import { literals, queryRows } from '../local/duckdb.ts';
import { removeUnnamed } from '../retention.ts';
import { COVERAGE, LAKE_TABLES, SUMMARY_TABLES } from '../tables/columns.ts';
import type { WholeTable } from '../store/lake-store.ts';
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

const CONTENT_TAG = 'content';
const OF_TAG = 'of';
const FORM_TAG = 'form';
const BUILD_TAG = 'build';

/**
 * Publishes a lake that holds exactly the warehouse's loaded rows of one moment.
 * @throws RetryableError | PermanentError; what was committed stays, and the next build goes on from there
 */
export async function buildLake(
  deps: LakeDeps,
  signal: AbortSignal,
  onProgress: (progress: LakeProgress) => void = () => undefined,
): ReturnType<typeof run> {
  return withBuildSession(deps, signal, (shop) => run(shop, onProgress));
}

async function run(shop: BuildSession, onProgress: Build['onProgress']) {
  const opened: TableWriter[] = [];
  for (const table of LAKE_TABLES) opened.push(await openTable(table, shop));
  const writers = Object.fromEntries(
    opened.map((writer) => [writer.table, writer]),
  ) as Build['writers'];
  const build: Build = { ...shop, writers, onProgress };
  await buildWhole(build, 'parties');
  await buildWhole(build, 'checkpoints');
  const coverage = await buildWhole(build, 'coverage');
  const entries = await buildEntries(build);
  await buildSummaries(build, entries, coverage);

  const states = statesOf(opened);
  return {
    /** The moment's number. */
    version: await publishTables(shop, states),
    /** Tables that changed. */
    changed: opened.filter(({ isChanged }) => isChanged).map(({ table }) => table),
    /** Files, rows and bytes of all tables, summaries and coverage among them. */
    ...totalOfFiles(opened.flatMap((writer) => writer.files)),
    /** Files that nothing names any more and whose time was over. */
    removedFiles: await removeUnnamed(shop, states),
    commitsDecidedBy: shop.decidedBy,
  };
}

/** A table that is written whole, and only where it changed. @returns its rows as CSV on the local disk */
async function buildWhole(build: Build, table: WholeTable): Promise<string> {
  const writer = build.writers[table];
  const { path, sha256 } = await fetchCsv(
    build,
    build.warehouse.whole(table, build.signal),
  );
  const before = writer.files;
  if (before.length === 1 && before[0]?.tags?.[CONTENT_TAG] === sha256) return path;
  const file = await writer.write(selectCsv(path, SHAPES[table].columns), {
    [CONTENT_TAG]: sha256,
  });
  await writer.commit('WRITE', [file], before);
  build.onProgress({ partition: rootOf(table), rows: totalOfFiles([file]).rows });
  return path;
}

/** @param coveragePath the coverage of now, as CSV */
async function buildSummaries(
  build: Build,
  entries: readonly EntriesFile[],
  coveragePath: string,
) {
  const coverage = `(${selectCsv(coveragePath, COVERAGE)})`;
  const flipped = await findFlippedFiles(build, entries, coverage);
  for (const table of SUMMARY_TABLES) {
    const writer = build.writers[table];
    const { isOfCounted } = SUMMARIES[table];
    const missing = new Map(entries.map((file) => [file.add.path, file]));
    const [add, remove]: [AddFile[], AddFile[]] = [[], []];
    for (const file of writer.files) {
      const {
        [OF_TAG]: of = '',
        [FORM_TAG]: form,
        [BUILD_TAG]: madeBy,
      } = file.tags ?? {};
      // Of counted entries, what a build made that did not come to its end is not trusted.
      const isStale =
        isOfCounted &&
        (flipped.has(of) || !(Number(madeBy) <= (build.before?.moment ?? -1)));
      const isUsable = writer.isTrusted && form === String(SUMMARY_FORM) && !isStale;
      if (!isUsable || !missing.delete(of)) remove.push(file);
    }
    for (const file of missing.values()) {
      const rows = rowsOf(
        'ledger_entries',
        [await build.writers.ledger_entries.find(file.add)],
        false,
      );
      const tags = {
        [OF_TAG]: file.add.path,
        [FORM_TAG]: String(SUMMARY_FORM),
        [BUILD_TAG]: String(await build.buildNumber()),
      };
      const select = summaryOf(
        table,
        isOfCounted ? countedEntries(rows, coverage) : rows,
      );
      add.push(await writer.write(select, tags, file.month));
    }
    await writer.commit('WRITE', add, remove);
  }
}

/** Paths of files that hold an entry, received from a party, at an instant of which the party's coverage changed. */
async function findFlippedFiles(
  build: Build,
  entries: readonly EntriesFile[],
  now: string,
) {
  const old = entries.filter(({ add }) => !build.written.has(add.path));
  const formerPath = await findFormerCoverage(build);
  if (formerPath === undefined || old.length === 0)
    return new Set(old.map(({ add }) => add.path));
  const run = (sql: string) => queryRows(build, 'see which entries count now', sql);
  await run(`create or replace temp table changed as
    ${changedRanges(rowsOf('coverage', [formerPath], false), now)}`);
  const ends = `select strftime(min(from_time), '%Y-%m'), strftime(max(to_time), '%Y-%m') from changed`;
  const [[first, last] = []] = await run(ends);
  const byPath = new Map<string, string>();
  for (const { add, month } of old) {
    if (
      typeof first !== 'string' ||
      typeof last !== 'string' ||
      month < first ||
      month > last
    )
      continue;
    byPath.set(await build.writers.ledger_entries.find(add), add.path);
  }
  if (byPath.size === 0) return new Set<string>();
  const found = await run(`select distinct filename
    from read_parquet(${literals([...byPath.keys()])}, filename = true, hive_partitioning = false, union_by_name = true) entry
      join changed on changed.party_id = account_from_party_id and from_time <= vega_time and to_time > vega_time
        and (changed.asset_id is null or changed.asset_id = entry.asset_id)
    where side = 'to' and vega_time >= (select min(from_time) from changed) and vega_time < (select max(to_time) from changed)`);
  return new Set(found.map(([path]) => byPath.get(String(path)) ?? ''));
}

/** Ranges in which a party's coverage may differ: where only an end moved, what lies between both ends. */
function changedRanges(former: string, now: string): string {
  const keys = 'party_id, asset_id, from_time';
  return `select party_id, asset_id,
      case when count(*) = 2 then min(to_time) else min(from_time) end as from_time, max(to_time) as to_time
    from (
      (select ${keys}, to_time from ${former} except select ${keys}, to_time from ${now})
      union all (select ${keys}, to_time from ${now} except select ${keys}, to_time from ${former}))
    group by ${keys}`;
}

/** The coverage at the last moment; undefined where there is none, or it is no longer there. */
async function findFormerCoverage(build: Build): Promise<string | undefined> {
  const named = build.before?.tables.coverage;
  if (named === undefined) return undefined;
  const { former, find } = build.writers.coverage;
  const state =
    former?.version === named.version
      ? former
      : await readTable(build, rootOf('coverage'), named.version);
  const [file, ...others] = [...(state?.live.values() ?? [])];
  if (state?.metaData.id !== named.id || file === undefined || others.length > 0)
    return undefined;
  return find(file);
}
