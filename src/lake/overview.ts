/**
 * The lake as an operator sees it: its tables, damage to their logs, and the restore of
 * an earlier snapshot.
 */
import { PermanentError, UsageError } from '../errors/errors.ts';
import { openTable, statesOf, type TableWriter } from './build/table-writer.ts';
import {
  withBuildSession,
  type LakeDeps,
  publishTables,
  type BuildSession,
} from './build/build-session.ts';
import { type TableState, totalOfFiles } from './delta/actions.ts';
import { findBrokenCheckpoints } from './delta/checkpoint.ts';
import { listObjects, logAmong } from './delta/listing.ts';
import { readTable } from './delta/log.ts';
import { type LakeAccess, openEngine } from './local/duckdb.ts';
import { storedFile } from './local-copies.ts';
import { snapshotsAmong, readSnapshot } from './snapshot.ts';
import { removeUnnamed } from './retention.ts';
import { LAKE_TABLES, type LakeTable } from './tables/columns.ts';
import { LAKE_PREFIX, rootOf } from './tables/tables.ts';

/** One table of the lake. */
export interface TableOverview {
  readonly table: LakeTable;
  /** Address of the table's folder, as other engines open it. */
  readonly path: string;
  readonly version: number;
  /** The oldest version that can still be reconstructed from the log. */
  readonly oldestVersion: number;
  readonly files: number;
  readonly rows: bigint;
  readonly bytes: bigint;
  /**
   * Time of the newest commit, as RFC 3339; undefined if that commit has no timestamp.
   */
  readonly committedAt: string | undefined;
  /** Number of broken checkpoints and hints removed while compiling this overview. */
  readonly mended: number;
}

export interface LakeOverview {
  /** Address of the object store. */
  readonly store: string;
  /** Numbers of the snapshots that can be read or restored. */
  readonly moments: readonly number[];
  readonly tables: readonly TableOverview[];
}

/**
 * Describes the lake. Broken checkpoints, and hints that point to them, are removed along
 * the way, because they make a table unreadable and the commits have the same
 * information.
 */
export async function describeLake(
  { objects, scratchDir }: Pick<LakeDeps, 'objects' | 'scratchDir'>,
  signal: AbortSignal,
): Promise<LakeOverview> {
  await using engine = await openEngine(scratchDir);
  const listed = await listObjects({ objects, signal }, LAKE_PREFIX);
  const access = { ...engine, objects, signal, listed };
  const tables: TableOverview[] = [];
  for (const table of LAKE_TABLES) {
    const overview = await describeTable(access, table);
    if (overview !== undefined) tables.push(overview);
  }
  const moments = snapshotsAmong(listed).map(({ number }) => number);
  return { store: objects.url, moments, tables };
}

async function describeTable(
  access: LakeAccess,
  table: LakeTable,
): Promise<TableOverview | undefined> {
  const { objects, signal } = access;
  const root = rootOf(table);
  const broken = (await findBrokenCheckpoints(access, root)).map(
    ({ key }) => key,
  );
  for (const key of broken) await objects.remove(key, signal);
  const listed = access.listed.filter(({ key }) => !broken.includes(key));
  const state = await readTable({ ...access, listed }, root);
  if (state === undefined) return undefined;

  const oldest = logAmong(root, listed).find(
    ({ kind, version }) => kind === 'checkpoint' || version === 0,
  );
  return {
    table,
    path: `${objects.url}/${root}`,
    version: state.version,
    oldestVersion: oldest?.version ?? state.version,
    ...totalOfFiles([...state.live.values()]),
    committedAt:
      state.committedMs === 0
        ? undefined
        : new Date(state.committedMs).toISOString(),
    mended: broken.length,
  };
}

/**
 * Removes objects that no version refers to any more.
 * @returns the number of objects removed
 */
export async function vacuumLake(
  deps: LakeDeps,
  signal: AbortSignal,
): Promise<number> {
  return withBuildSession(deps, signal, async (session) => {
    const states = new Map<LakeTable, TableState>();
    for (const table of LAKE_TABLES) {
      const state = await readTable(session, rootOf(table));
      if (state !== undefined) states.set(table, state);
    }
    return removeUnnamed(session, states);
  });
}

/** The results of a restore. */
export interface RestoredLake {
  /** Number of the snapshot published by the restore. */
  readonly version: number;
  /** The tables that changed. */
  readonly tables: readonly LakeTable[];
}

/**
 * Restores every table to its state in a snapshot, by adding a new commit to its log. The
 * next load updates the lake again.
 * @throws UsageError if the snapshot does not exist, PermanentError `LAKE_VERSION_GONE`
 *   if its files no longer exist
 */
export async function restoreLake(
  deps: LakeDeps,
  number: number,
  signal: AbortSignal,
): Promise<RestoredLake> {
  return withBuildSession(deps, signal, async (session) => {
    const snapshot = await readSnapshot(session, number);
    if (snapshot === undefined) {
      throw new UsageError([
        `lake restore: there is no version ${number}; 'ledger-mirror lake' lists them`,
      ]);
    }
    const writers: TableWriter[] = [];
    for (const table of LAKE_TABLES) {
      const named = snapshot.tables[table];
      if (named === undefined) continue;
      const writer = await openTable(table, session);
      const earlier = await readTable(session, rootOf(table), named.version);
      await restoreTable(session, writer, earlier);
      writers.push(writer);
    }
    const version = await publishTables(session, statesOf(writers));
    const changed = writers.filter(({ isChanged }) => isChanged);
    return { version, tables: changed.map(({ table }) => table) };
  });
}

/**
 * Restores one table to an earlier state.
 * @param earlier the table at the version recorded in the snapshot
 */
async function restoreTable(
  session: BuildSession,
  writer: TableWriter,
  earlier: TableState | undefined,
): Promise<void> {
  const { state, table } = writer;
  if (earlier === undefined || earlier.metaData.id !== state?.metaData.id) {
    const action =
      `${rootOf(table)}: it is not the table that the snapshot names; run load, ` +
      'which builds it again';
    throw versionGone(action, { table });
  }
  const add = [...earlier.live.values()].filter(
    ({ path }) => !state.live.has(path),
  );
  const remove = [...state.live.values()].filter(
    ({ path }) => !earlier.live.has(path),
  );
  for (const file of add) {
    const { key, bytes } = storedFile(table, file);
    const head = await session.objects.head(key, session.signal);
    if (head?.bytes === bytes) continue;
    const version = `version ${earlier.version} of ${rootOf(table)}`;
    const action = `${version}: its file ${key} is gone; choose a newer version`;
    throw versionGone(action, { table, key });
  }
  await writer.commit('RESTORE', add, remove);
}

function versionGone(action: string, meta: object): PermanentError {
  const message = `Cannot restore ${action}`;
  return new PermanentError(message, {
    code: 'LAKE_VERSION_GONE',
    meta: { ...meta },
  });
}
