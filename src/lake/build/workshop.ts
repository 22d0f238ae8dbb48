/** Where a build or a restore works: the lake as it finds it, an engine, and a folder of its own. */
import type { ListedObject, ObjectStore } from '../../objects/object-store.ts';
import type { TableState } from '../delta/actions.ts';
import { listObjects } from '../delta/listing.ts';
import { BUILD_MEMORY_LIMIT, type Engine, openEngine } from '../local/duckdb.ts';
import { sweepScratch } from '../local/scratch.ts';
import { type Moment, publishMoment, readMoment } from '../moment.ts';
import type { LakeRepository } from '../store/lake-store.ts';
import type { LakeSnapshot } from '../store/warehouse-snapshot.ts';
import type { KeptRows } from './row-spool.ts';
import type { LakeTable } from '../tables/columns.ts';
import { LAKE_PREFIX } from '../tables/tables.ts';
import { Committer } from './committer.ts';

/** What a build writes into the spool, and may find there after a crash. */
export const SPOOL_PREFIX = 'lake-';
export const APP_PREFIX = 'ledger-mirror:';

export interface LakeDeps {
  readonly repository: LakeRepository;
  readonly objects: ObjectStore;
  readonly scratchDir: string;
  /** How long files that no newer version names stay. */
  readonly retentionMs: number;
  /** What loads on this machine have left. */
  readonly kept?: KeptRows;
}

export interface Workshop extends Engine {
  readonly deps: LakeDeps;
  readonly snapshot: LakeSnapshot;
  /** The lake before, listed once. */
  readonly listed: readonly ListedObject[];
  readonly before: Moment | undefined;
  readonly committer: Committer;
  /** Local copies of what a build wrote stay there to its end. */
  readonly folder: string;
  readonly signal: AbortSignal;
  /** The application that commits, and the number of its build. */
  readonly appId: string;
  readonly buildNumber: () => Promise<number>;
}

/** To be opened by who has the lake for itself. */
export async function openWorkshop(
  deps: LakeDeps,
  snapshot: LakeSnapshot,
  signal: AbortSignal,
): Promise<Workshop & AsyncDisposable> {
  const { repository, objects, scratchDir } = deps;
  const committer = await Committer.open(objects, repository, signal);
  await objects.clearSpool(SPOOL_PREFIX);
  await sweepScratch(scratchDir);
  await using stack = new AsyncDisposableStack();
  const { connection, folder } = stack.use(await openEngine(scratchDir, BUILD_MEMORY_LIMIT));
  await connection.run('set preserve_insertion_order = false');
  const listed = await listObjects(objects, LAKE_PREFIX, signal);
  const before = await readMoment(objects, signal, undefined, listed);
  let number: Promise<number> | undefined;
  const owned = stack.move();
  return {
    deps,
    snapshot,
    listed,
    before,
    committer,
    connection,
    folder,
    signal,
    appId: appIdOf(snapshot.mirrorId),
    buildNumber: () => (number ??= repository.beginBuild((before?.moment ?? 0) + 1)),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

export function appIdOf(mirrorId: string): string {
  return `${APP_PREFIX}${mirrorId}`;
}

/** Makes these versions of the tables the lake. @returns the moment's number */
export async function publishTables(
  { deps, snapshot, buildNumber, signal, appId }: Workshop,
  states: ReadonlyMap<LakeTable, TableState>,
): Promise<number> {
  const { objects, repository } = deps;
  const { mirrorId } = snapshot;
  const moment = await buildNumber();
  const tables = [...states].map(
    ([table, { metaData, version }]) => [table, { id: metaData.id, version }] as const,
  );
  const builtAt = new Date().toISOString();
  await publishMoment(objects, { moment, mirrorId, builtAt, tables: Object.fromEntries(tables) }, signal);
  await repository.record(
    [...states].map(([table, { metaData, version, txns }]) => ({
      table,
      tableId: metaData.id,
      version,
      build: txns.get(appId)?.version ?? moment,
    })),
  );
  return moment;
}
