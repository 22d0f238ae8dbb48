/** The lake as an operator sees it: its tables, what is wrong with their logs, and going back to a moment. */
import { PermanentError, UsageError } from '../core/errors.ts';
import { statesOf, TableWriter } from './build/table-writer.ts';
import { inWorkshop, type LakeDeps, publishTables, whoDecides, type Workshop } from './build/workshop.ts';
import { type FilesTotal, type TableState, totalOfFiles } from './delta/actions.ts';
import { findBrokenCheckpoints } from './delta/checkpoint.ts';
import { checkpointKey, listObjects, logAmong } from './delta/listing.ts';
import { readTable } from './delta/log.ts';
import { openEngine } from './local/duckdb.ts';
import { storedFile } from './local-files.ts';
import { momentsAmong, readMoment } from './moment.ts';
import { removeUnnamed } from './retention.ts';
import { LAKE_TABLES, type LakeTable } from './tables/columns.ts';
import { LAKE_PREFIX, rootOf } from './tables/tables.ts';

export interface TableOverview extends FilesTotal {
  readonly table: LakeTable;
  readonly path: string;
  readonly version: number;
  /** The oldest version that its log still tells. */
  readonly oldestVersion: number;
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
  const access = { ...engine, objects, signal };
  const tables: TableOverview[] = [];
  const listed = await listObjects(objects, LAKE_PREFIX, signal);
  for (const table of LAKE_TABLES) {
    const log = logAmong(rootOf(table), listed);
    const broken = (await findBrokenCheckpoints(access, log)).map(({ key }) => key);
    for (const key of broken) await objects.remove(key, signal);
    const checkpoints = log.checkpoints.filter(
      (version) => !broken.includes(checkpointKey(log.root, version)),
    );
    const state = await readTable(access, { ...log, checkpoints });
    if (state === undefined) continue;
    tables.push({
      table,
      path: `${objects.url}/${log.root}`,
      version: state.version,
      oldestVersion: log.commits[0] === 0 ? 0 : (checkpoints[0] ?? state.version),
      ...totalOfFiles([...state.live.values()]),
      committedAt: state.committedMs === 0 ? undefined : new Date(state.committedMs).toISOString(),
      mended: broken.length,
    });
  }
  const moments = momentsAmong(listed).map(({ number }) => number);
  const commitsDecidedBy = await whoDecides(objects, signal).catch((error: unknown) => {
    if (error instanceof PermanentError) return undefined;
    throw error;
  });
  return { store: objects.url, moments, tables, commitsDecidedBy };
}

/** @returns how many objects were removed */
export async function vacuumLake(deps: LakeDeps, signal: AbortSignal): Promise<number> {
  return deps.repository.exclusively(async () => {
    await using engine = await openEngine(deps.scratchDir);
    const listed = await listObjects(deps.objects, LAKE_PREFIX, signal);
    const access = { ...engine, ...deps, signal, listed };
    const states = new Map<LakeTable, TableState>();
    for (const table of LAKE_TABLES) {
      const state = await readTable(access, logAmong(rootOf(table), listed));
      if (state !== undefined) states.set(table, state);
    }
    return await removeUnnamed(access, states);
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
  return inWorkshop(deps, signal, async (shop) => {
    const moment = await readMoment(deps.objects, signal, number, shop.listed);
    if (moment === undefined)
      throw new UsageError([`lake restore: there is no moment ${number}; 'ledger-mirror lake' shows them`]);
    const writers: TableWriter[] = [];
    for (const table of LAKE_TABLES) {
      const named = moment.tables[table];
      if (named === undefined) continue;
      const writer = await TableWriter.open(table, shop);
      const then = await readTable(shop, logAmong(rootOf(table), shop.listed), named.version);
      await restoreTable(shop, writer, then);
      writers.push(writer);
    }
    const version = await publishTables(shop, statesOf(writers));
    return { version, tables: writers.filter(({ isChanged }) => isChanged).map(({ table }) => table) };
  });
}

async function restoreTable(
  { objects, signal }: Workshop,
  writer: TableWriter,
  then: TableState | undefined,
): Promise<void> {
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
  await writer.commit('RESTORE', { add, remove });
}
