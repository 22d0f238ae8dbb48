/**
 * Brings the lake up to date with the warehouse: one commit for each table that changed, then the moment that
 * names their versions. Whatever a killed build has left, the next one goes on from what the logs say.
 */
import { totalOfFiles } from '../delta/actions.ts';
import { removeUnnamed } from '../retention.ts';
import { LAKE_TABLES } from '../tables/columns.ts';
import type { WholeTable } from '../store/lake-store.ts';
import { rootOf, SHAPES } from '../tables/tables.ts';
import { buildEntries } from './build-entries.ts';
import { buildSummaries } from './build-summaries.ts';
import { type Build, type LakeProgress, openTable, statesOf, type TableWriter } from './table-writer.ts';
import { fetchCsv, inWorkshop, type LakeDeps, publishTables, selectCsv, type Workshop } from './workshop.ts';

export type { LakeProgress } from './table-writer.ts';
export type { LakeDeps } from './workshop.ts';

/**
 * Publishes a lake that holds exactly the warehouse's loaded rows of one moment.
 * @throws RetryableError | PermanentError; what was committed stays, and the next build goes on from there
 */
export async function buildLake(
  deps: LakeDeps,
  signal: AbortSignal,
  onProgress: (progress: LakeProgress) => void = () => undefined,
): ReturnType<typeof run> {
  return inWorkshop(deps, signal, (shop) => run(shop, onProgress));
}

async function run(shop: Workshop, onProgress: Build['onProgress']) {
  const opened: TableWriter[] = [];
  for (const table of LAKE_TABLES) opened.push(await openTable(table, shop));
  const writers = Object.fromEntries(opened.map((writer) => [writer.table, writer])) as Build['writers'];
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

const CONTENT_TAG = 'content';

/** A table that is written whole, and only where it changed. @returns its rows as CSV on the local disk */
async function buildWhole(build: Build, table: WholeTable): Promise<string> {
  const writer = build.writers[table];
  const { path, sha256 } = await fetchCsv(build, build.warehouse.whole(table, build.signal));
  const before = writer.files;
  if (before.length === 1 && before[0]?.tags?.[CONTENT_TAG] === sha256) return path;
  const file = await writer.write(selectCsv(path, SHAPES[table].columns), { [CONTENT_TAG]: sha256 });
  await writer.commit('WRITE', [file], before);
  build.onProgress({ partition: rootOf(table), rows: totalOfFiles([file]).rows });
  return path;
}
