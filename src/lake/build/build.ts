/**
 * Brings the lake up to date with the warehouse: one commit for each table that changed, then the moment that
 * names their versions. Whatever a killed build has left, the next one goes on from what the logs say.
 */
import type { Build, LakeDeps, LakeProgress } from './build-context.ts';
import { buildEntries, countRows } from './build-entries.ts';
import { buildSummaries } from './build-summaries.ts';
import { buildWhole } from './build-whole.ts';
import { LAKE_TABLES, type LakeTable } from '../tables/columns.ts';
import { type Committer, openCommitter } from './committer.ts';
import type { TableState } from '../delta/actions.ts';
import { type ListedObject, listObjects } from '../delta/log.ts';
import { BUILD_MEMORY_LIMIT, openDuckDb } from '../local/duckdb.ts';
import { type Moment, publishMoment, readMoment } from '../moment.ts';
import type { LakeSnapshot } from '../ports.ts';
import { removeUnnamed } from '../retention.ts';
import { scratchFolder, sweepScratch } from '../local/scratch.ts';
import { SUMMARY_TABLES } from '../tables/summaries.ts';
import { LAKE_PREFIX } from '../tables/tables.ts';
import { appIdOf, SPOOL_PREFIX, TableWriter, type Workshop } from './table-writer.ts';

export type { LakeDeps, LakeProgress } from './build-context.ts';

export interface LakeBuild {
  /** The moment's number. */
  readonly version: number;
  /** Tables that changed. */
  readonly changed: readonly LakeTable[];
  readonly files: number;
  /** Of the tables; summaries and coverage are not among them. */
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
    const committer = await openCommitter(deps.objects, deps.repository, signal);
    await deps.objects.clearSpool(SPOOL_PREFIX, new Set());
    await sweepScratch(deps.scratchDir);
    await using folder = await scratchFolder(deps.scratchDir);
    await using engine = await openDuckDb(folder.path, BUILD_MEMORY_LIMIT);
    await engine.connection.run('set preserve_insertion_order = false');
    const listed = await listObjects(deps.objects, LAKE_PREFIX, signal);
    const before = await readMoment(deps.objects, signal, undefined, listed);
    const shop = workshop(deps, snapshot, before, {
      committer,
      connection: engine.connection,
      folder: folder.path,
      signal,
    });
    return await run(deps, snapshot, shop, { before, listed }, onProgress);
  }, signal);
}

function workshop(
  deps: LakeDeps,
  snapshot: LakeSnapshot,
  before: Moment | undefined,
  place: Pick<Workshop, 'committer' | 'connection' | 'folder' | 'signal'>,
): Workshop {
  let number: Promise<number> | undefined;
  const { objects, retentionMs } = deps;
  return {
    ...place,
    objects,
    retentionMs,
    appId: appIdOf(snapshot.mirrorId),
    buildNumber: () => (number ??= deps.repository.beginBuild((before?.moment ?? 0) + 1)),
  };
}

/** The lake before a build, read once. */
interface FormerLake {
  readonly before: Moment | undefined;
  readonly listed: readonly ListedObject[];
}

async function run(
  deps: LakeDeps,
  snapshot: LakeSnapshot,
  shop: Workshop,
  { before, listed }: FormerLake,
  onProgress: (progress: LakeProgress) => void,
): Promise<LakeBuild> {
  const writers = new Map<LakeTable, TableWriter>();
  for (const table of LAKE_TABLES) writers.set(table, await TableWriter.open(table, shop, listed));
  const writerOf = (table: LakeTable): TableWriter => {
    const writer = writers.get(table);
    if (writer === undefined) throw new RangeError(`no table ${table}`);
    return writer;
  };
  const former = statesOf(writers);
  let rowsSent = 0n;
  const build: Build = {
    deps,
    snapshot,
    shop,
    before,
    listed,
    former,
    written: new Map(),
    isTrusted: ({ table }) => {
      const txn = former.get(table)?.txns.get(shop.appId);
      return former.get(table) === undefined || (txn !== undefined && txn.version <= snapshot.lastBuild);
    },
    countSent: (rows) => {
      rowsSent += rows;
    },
    onProgress,
  };
  await buildWhole(build, 'parties', writerOf('parties'));
  await buildWhole(build, 'checkpoints', writerOf('checkpoints'));
  const coverage = await buildWhole(build, 'coverage', writerOf('coverage'));
  const entries = await buildEntries(build, writerOf('ledger_entries'));
  const summaries = new Map(SUMMARY_TABLES.map((table) => [table, writerOf(table)] as const));
  await buildSummaries(build, summaries, entries, coverage);

  const changed = [...writers.values()].filter(({ commits }) => commits > 0).map(({ table }) => table);
  const version = await publish(deps, snapshot, shop, before, [...writers.values()], changed.length > 0);
  const removedFiles = await removeUnnamed(deps, listed, statesOf(writers), shop.signal);
  const files = [...writers.values()].flatMap((writer) => writer.files);
  const counted = (['ledger_entries', 'parties', 'checkpoints'] as const).flatMap(
    (table) => writerOf(table).files,
  );
  return {
    version,
    changed,
    files: files.length,
    rows: countRows(counted),
    bytes: files.reduce((sum, { size }) => sum + BigInt(size), 0n),
    rowsSent,
    removedFiles,
    commitsDecidedBy: shop.committer.decidedBy,
  };
}

function statesOf(writers: ReadonlyMap<LakeTable, TableWriter>): ReadonlyMap<LakeTable, TableState> {
  return new Map([...writers].flatMap(([table, { state }]) => (state === undefined ? [] : [[table, state]])));
}

/** @returns the number of the lake's moment */
async function publish(
  { objects, repository }: LakeDeps,
  { mirrorId }: LakeSnapshot,
  { buildNumber, signal, appId }: Workshop,
  before: Moment | undefined,
  writers: readonly TableWriter[],
  isChanged: boolean,
): Promise<number> {
  const states = writers.flatMap(({ table, state }) => (state === undefined ? [] : [{ table, state }]));
  const isNamed = states.every(
    ({ table, state }) =>
      before?.tables[table]?.version === state.version && before.tables[table].id === state.metaData.id,
  );
  if (before !== undefined && !isChanged && isNamed) return before.moment;
  const number = await buildNumber();
  const tables = states.map(
    ({ table, state }) => [table, { id: state.metaData.id, version: state.version }] as const,
  );
  await publishMoment(
    objects,
    { moment: number, mirrorId, builtAt: new Date().toISOString(), tables: Object.fromEntries(tables) },
    signal,
  );
  await repository.record(
    states.map(({ table, state }) => ({
      table,
      tableId: state.metaData.id,
      version: state.version,
      build: state.txns.get(appId)?.version ?? number,
    })),
  );
  return number;
}
