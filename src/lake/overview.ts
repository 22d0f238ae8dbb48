/** The lake as an operator sees it: its tables, what is wrong with their logs, and going back to a moment. */
import { countRows } from './build/build-entries.ts';
import { LAKE_TABLES, type LakeTable } from './tables/columns.ts';
import { isDecidedByStore } from './build/committer.ts';
import type { TableState } from './delta/actions.ts';
import { checkCheckpoints, mendCheckpoints } from './delta/checkpoint.ts';
import { listObjects, logAmong } from './delta/listing.ts';
import { readTable } from './delta/log.ts';
import { openEngine } from './local/duckdb.ts';
import { PermanentError, UsageError } from '../core/errors.ts';
import { storedFile } from './local-files.ts';
import { momentsAmong, readMoment } from './moment.ts';
import { removeUnnamed } from './retention.ts';
import { TableWriter } from './build/table-writer.ts';
import { type LakeDeps, openWorkshop, publishTables } from './build/workshop.ts';
import { LAKE_PREFIX, rootOf } from './tables/tables.ts';

export interface TableOverview {
  readonly table: LakeTable;
  readonly path: string;
  readonly version: number;
  /** The oldest version that its log still tells. */
  readonly oldestVersion: number;
  readonly files: number;
  readonly rows: bigint;
  readonly bytes: bigint;
  readonly committedAt: string | undefined;
  /** Checkpoints and hints that made the table unreadable, and were taken away. */
  readonly mended: number;
}

export interface LakeOverview {
  readonly store: string;
  /** Numbers of the moments that can be asked for or restored. */
  readonly moments: readonly number[];
  readonly tables: readonly TableOverview[];
  /** `database` where the store would let two writers put one commit; undefined to who may only read the store. */
  readonly commitsDecidedBy: 'store' | 'database' | undefined;
}

/** Also takes away broken checkpoints: the commits say the same. */
export async function describeLake(
  { objects, scratchDir }: Pick<LakeDeps, 'objects' | 'scratchDir'>,
  signal: AbortSignal,
): Promise<LakeOverview> {
  await using engine = await openEngine(scratchDir);
  const tables: TableOverview[] = [];
  const listed = await listObjects(objects, LAKE_PREFIX, signal);
  for (const table of LAKE_TABLES) {
    const root = rootOf(table);
    const log = logAmong(root, listed);
    const { commits, checkpoints } = log;
    const faults = await checkCheckpoints(objects, log, engine, signal);
    await mendCheckpoints(objects, root, faults, signal);
    const usable = checkpoints.filter((version) => !faults.unreadable.includes(version));
    const state = await readTable(objects, { ...log, checkpoints: usable }, engine, signal);
    if (state === undefined) continue;
    const files = [...state.live.values()];
    tables.push({
      table,
      path: `${objects.url}/${root}`,
      version: state.version,
      oldestVersion: commits[0] === 0 ? 0 : (usable[0] ?? state.version),
      files: files.length,
      rows: countRows(files),
      bytes: files.reduce((sum, { size }) => sum + BigInt(size), 0n),
      committedAt: state.committedMs === 0 ? undefined : new Date(state.committedMs).toISOString(),
      mended: faults.unreadable.length + (faults.isHintWrong ? 1 : 0),
    });
  }
  const moments = momentsAmong(listed);
  const commitsDecidedBy = await isDecidedByStore(objects, signal).then(
    (isStore) => (isStore ? 'store' : 'database'),
    (error: unknown) => {
      if (error instanceof PermanentError) return undefined;
      throw error;
    },
  );
  return { store: objects.url, moments: moments.map(({ number }) => number), tables, commitsDecidedBy };
}

/** @returns how many objects were removed */
export async function vacuumLake(deps: LakeDeps, signal: AbortSignal): Promise<number> {
  return deps.repository.exclusively(async () => {
    await using engine = await openEngine(deps.scratchDir);
    const listed = await listObjects(deps.objects, LAKE_PREFIX, signal);
    const states = new Map<LakeTable, TableState>();
    for (const table of LAKE_TABLES) {
      const state = await readTable(deps.objects, logAmong(rootOf(table), listed), engine, signal);
      if (state !== undefined) states.set(table, state);
    }
    return await removeUnnamed(deps, listed, states, signal);
  }, signal);
}

export interface LakeRestore {
  /** The new moment. */
  readonly version: number;
  readonly tables: readonly LakeTable[];
}

/**
 * Makes every table what it was at a moment, by a commit on top; the next load brings it up to date again.
 * @throws UsageError where there is no such moment, PermanentError `LAKE_VERSION_GONE` where its files are gone
 */
export async function restoreLake(deps: LakeDeps, number: number, signal: AbortSignal): Promise<LakeRestore> {
  return deps.repository.exclusively(async (snapshot) => {
    await using shop = await openWorkshop(deps, snapshot, signal);
    const moment = await readMoment(deps.objects, signal, number, shop.listed);
    if (moment === undefined)
      throw new UsageError([`lake restore: there is no moment ${number}; 'ledger-mirror lake' shows them`]);
    const restored: LakeTable[] = [];
    const states = new Map<LakeTable, TableState>();
    for (const table of LAKE_TABLES) {
      const named = moment.tables[table];
      if (named === undefined) continue;
      const writer = await TableWriter.open(table, shop);
      const log = logAmong(rootOf(table), shop.listed);
      const then = await readTable(deps.objects, log, shop, signal, named.version);
      if (await restoreTable(deps, writer, then, signal)) restored.push(table);
      if (writer.state !== undefined) states.set(table, writer.state);
    }
    return { version: await publishTables(shop, states), tables: restored };
  }, signal);
}

async function restoreTable(
  { objects }: LakeDeps,
  writer: TableWriter,
  then: TableState | undefined,
  signal: AbortSignal,
): Promise<boolean> {
  const { state, table } = writer;
  if (then === undefined || state === undefined || then.metaData.id !== state.metaData.id) {
    throw new PermanentError(
      `Cannot restore ${rootOf(table)}: it is not the table that the moment names; load builds it again`,
      { code: 'LAKE_VERSION_GONE', meta: { table } },
    );
  }
  const add = [...then.live.values()].filter(({ path }) => !state.live.has(path));
  const remove = [...state.live.values()].filter(({ path }) => !then.live.has(path));
  for (const file of add) {
    const { key, bytes } = storedFile(table, file);
    if ((await objects.head(key, signal))?.bytes === bytes) continue;
    throw new PermanentError(
      `Cannot restore version ${then.version} of ${rootOf(table)}: its file ${key} is gone; choose a newer moment`,
      { code: 'LAKE_VERSION_GONE', meta: { table, key } },
    );
  }
  if (add.length + remove.length === 0) return false;
  await writer.commit('RESTORE', { add, remove });
  return true;
}
