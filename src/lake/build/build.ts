/**
 * Brings the lake up to date with the warehouse: one commit for each table that changed, then the moment that
 * names their versions. Whatever a killed build has left, the next one goes on from what the logs say.
 */
import type { TableState } from '../delta/actions.ts';
import type { Moment } from '../moment.ts';
import { removeUnnamed } from '../retention.ts';
import { LAKE_TABLES, type LakeTable } from '../tables/columns.ts';
import type { Build, LakeProgress, TableWriters } from './build-context.ts';
import { buildEntries, countRows } from './build-entries.ts';
import { buildSummaries } from './build-summaries.ts';
import { buildWhole } from './build-whole.ts';
import type { Committer } from './committer.ts';
import { TableWriter } from './table-writer.ts';
import { type LakeDeps, openWorkshop, publishTables, type Workshop } from './workshop.ts';

export type { LakeProgress } from './build-context.ts';
export type { LakeDeps } from './workshop.ts';

export interface LakeBuild {
  /** The moment's number. */
  readonly version: number;
  /** Tables that changed. */
  readonly changed: readonly LakeTable[];
  readonly files: number;
  /** Of all tables, summaries and coverage among them. */
  readonly rows: bigint;
  readonly bytes: bigint;
  /** Rows that no load had left on this machine, and the warehouse sent. */
  readonly rowsSent: bigint;
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
  return deps.repository.exclusively(async (snapshot) => {
    await using shop = await openWorkshop(deps, snapshot, signal);
    return await run(shop, onProgress);
  }, signal);
}

async function run(shop: Workshop, onProgress: (progress: LakeProgress) => void): Promise<LakeBuild> {
  const writers: TableWriter[] = [];
  for (const table of LAKE_TABLES) writers.push(await TableWriter.open(table, shop));
  const by = Object.fromEntries(writers.map((writer) => [writer.table, writer])) as TableWriters;
  const former = statesOf(writers);
  let rowsSent = 0n;
  const build: Build = {
    shop,
    former,
    written: new Map(),
    isTrusted: ({ table }) => {
      const txn = former.get(table)?.txns.get(shop.appId);
      return former.get(table) === undefined || (txn !== undefined && txn.version <= shop.snapshot.lastBuild);
    },
    countSent: (rows) => {
      rowsSent += rows;
    },
    onProgress,
  };
  await buildWhole(build, 'parties', by.parties);
  await buildWhole(build, 'checkpoints', by.checkpoints);
  const coverage = await buildWhole(build, 'coverage', by.coverage);
  const entries = await buildEntries(build, by.ledger_entries);
  await buildSummaries(build, by, entries, coverage);

  const changed = writers.filter(({ commits }) => commits > 0).map(({ table }) => table);
  const states = statesOf(writers);
  const isNew = changed.length > 0 || shop.before === undefined || !isNamed(shop.before, states);
  const version = isNew ? await publishTables(shop, states) : shop.before.moment;
  const removedFiles = await removeUnnamed(shop.deps, shop.listed, states, shop.signal);
  const files = writers.flatMap((writer) => writer.files);
  return {
    version,
    changed,
    files: files.length,
    rows: countRows(files),
    bytes: files.reduce((sum, { size }) => sum + BigInt(size), 0n),
    rowsSent,
    removedFiles,
    commitsDecidedBy: shop.committer.decidedBy,
  };
}

function statesOf(writers: readonly TableWriter[]): ReadonlyMap<LakeTable, TableState> {
  return new Map(writers.flatMap(({ table, state }) => (state === undefined ? [] : [[table, state]])));
}

function isNamed({ tables }: Moment, states: ReadonlyMap<LakeTable, TableState>): boolean {
  return [...states].every(
    ([table, { version, metaData }]) =>
      tables[table]?.version === version && tables[table].id === metaData.id,
  );
}
