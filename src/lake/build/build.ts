/**
 * Brings the lake up to date with the warehouse: one commit for each table that changed, then the moment that
 * names their versions. Whatever a killed build has left, the next one goes on from what the logs say.
 */
import { type FilesTotal, type TableState, totalOfFiles } from '../delta/actions.ts';
import type { Moment } from '../moment.ts';
import { removeUnnamed } from '../retention.ts';
import { LAKE_TABLES, type LakeTable } from '../tables/columns.ts';
import type { Build, LakeProgress } from './build-context.ts';
import { buildEntries } from './build-entries.ts';
import { buildSummaries } from './build-summaries.ts';
import { buildWhole } from './build-whole.ts';
import type { Committer } from './committer.ts';
import { statesOf, TableWriter } from './table-writer.ts';
import { inWorkshop, type LakeDeps, publishTables, type Workshop } from './workshop.ts';

export type { LakeProgress } from './build-context.ts';
export type { LakeDeps } from './workshop.ts';

/** Its files, rows and bytes are of all tables, summaries and coverage among them. */
export interface LakeBuild extends FilesTotal {
  /** The moment's number. */
  readonly version: number;
  /** Tables that changed. */
  readonly changed: readonly LakeTable[];
  readonly rowsSent: Build['rowsSent'];
  /** Files that nothing names any more and whose time was over. */
  readonly removedFiles: number;
  readonly commitsDecidedBy: Committer['decidedBy'];
}

/**
 * Publishes a lake that holds exactly the warehouse's loaded rows of one moment.
 * @throws RetryableError | PermanentError; what was committed stays, and the next build goes on from there
 */
export async function buildLake(
  deps: LakeDeps,
  signal: AbortSignal,
  onProgress: (progress: LakeProgress) => void = () => undefined,
): Promise<LakeBuild> {
  return inWorkshop(deps, signal, (shop) => run(shop, onProgress));
}

async function run(shop: Workshop, onProgress: Build['onProgress']): Promise<LakeBuild> {
  const opened: TableWriter[] = [];
  for (const table of LAKE_TABLES) opened.push(await TableWriter.open(table, shop));
  const writers = Object.fromEntries(opened.map((writer) => [writer.table, writer])) as Build['writers'];
  const build: Build = { ...shop, writers, rowsSent: 0n, onProgress };
  await buildWhole(build, 'parties');
  await buildWhole(build, 'checkpoints');
  const coverage = await buildWhole(build, 'coverage');
  const entries = await buildEntries(build);
  await buildSummaries(build, entries, coverage);

  const changed = opened.filter(({ commits }) => commits > 0).map(({ table }) => table);
  const states = statesOf(opened);
  const isNew = changed.length > 0 || shop.before === undefined || !isNamed(shop.before, states);
  const version = isNew ? await publishTables(shop, states) : shop.before.moment;
  return {
    version,
    changed,
    ...totalOfFiles(opened.flatMap((writer) => writer.files)),
    rowsSent: build.rowsSent,
    removedFiles: await removeUnnamed(shop, states),
    commitsDecidedBy: shop.committer.decidedBy,
  };
}

function isNamed({ tables }: Moment, states: ReadonlyMap<LakeTable, TableState>): boolean {
  return [...states].every(
    ([table, { version, metaData }]) =>
      tables[table]?.version === version && tables[table].id === metaData.id,
  );
}
