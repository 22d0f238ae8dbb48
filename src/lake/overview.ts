/** The lake as an operator sees it: its tables, what is wrong with their logs, and going back to a moment. */
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
import { storedFile } from './local-files.ts';
import { snapshotsAmong, readSnapshot } from './snapshot.ts';
import { removeUnnamed } from './retention.ts';
import { LAKE_TABLES, type LakeTable } from './tables/columns.ts';
import { LAKE_PREFIX, rootOf } from './tables/tables.ts';

type LakeTables = readonly NonNullable<Awaited<ReturnType<typeof describeTable>>>[];

/**
 * Also takes away broken checkpoints, and hints to them, that make a table unreadable: the commits say the same.
 * @returns `moments`: the numbers of those that can be asked for or restored
 */
export async function describeLake(
  { objects, scratchDir }: Pick<LakeDeps, 'objects' | 'scratchDir'>,
  signal: AbortSignal,
): Promise<{
  readonly store: string;
  readonly moments: readonly number[];
  readonly tables: LakeTables;
}> {
  await using engine = await openEngine(scratchDir);
  const listed = await listObjects({ objects, signal }, LAKE_PREFIX);
  const access = { ...engine, objects, signal, listed };
  const tables = [];
  for (const table of LAKE_TABLES) {
    const described = await describeTable(access, table);
    if (described !== undefined) tables.push(described);
  }
  const moments = snapshotsAmong(listed).map(({ number }) => number);
  return { store: objects.url, moments, tables };
}

async function describeTable(access: LakeAccess, table: LakeTable) {
  const { objects, signal } = access;
  const root = rootOf(table);
  const broken = (await findBrokenCheckpoints(access, root)).map(({ key }) => key);
  for (const key of broken) await objects.remove(key, signal);
  const listed = access.listed.filter(({ key }) => !broken.includes(key));
  const state = await readTable({ ...access, listed }, root);
  const oldest = logAmong(root, listed).find(
    ({ kind, version }) => kind === 'checkpoint' || version === 0,
  );
  return (
    state && {
      table,
      path: `${objects.url}/${root}`,
      version: state.version,
      /** The oldest version that its log still tells. */
      oldestVersion: oldest?.version ?? state.version,
      ...totalOfFiles([...state.live.values()]),
      committedAt:
        state.committedMs === 0 ? undefined : new Date(state.committedMs).toISOString(),
      /** Checkpoints and hints that were taken away. */
      mended: broken.length,
    }
  );
}

/** @returns how many objects were removed */
export async function vacuumLake(deps: LakeDeps, signal: AbortSignal): Promise<number> {
  return withBuildSession(deps, signal, async (shop) => {
    const states = new Map<LakeTable, TableState>();
    for (const table of LAKE_TABLES) {
      const state = await readTable(shop, rootOf(table));
      if (state !== undefined) states.set(table, state);
    }
    return removeUnnamed(shop, states);
  });
}

/**
 * Makes every table what it was at a moment, by a commit on top; the next load brings it up to date again.
 * @returns the new moment, and what changed
 * @throws UsageError where there is no such moment, PermanentError `LAKE_VERSION_GONE` where its files are gone
 */
export async function restoreLake(
  deps: LakeDeps,
  number: number,
  signal: AbortSignal,
): Promise<{ readonly version: number; readonly tables: readonly LakeTable[] }> {
  return withBuildSession(deps, signal, async (shop) => {
    const moment = await readSnapshot(shop, number);
    if (moment === undefined)
      throw new UsageError([
        `lake restore: there is no moment ${number}; 'ledger-mirror lake' shows them`,
      ]);
    const writers: TableWriter[] = [];
    for (const table of LAKE_TABLES) {
      const named = moment.tables[table];
      if (named === undefined) continue;
      const writer = await openTable(table, shop);
      await restoreTable(
        shop,
        writer,
        await readTable(shop, rootOf(table), named.version),
      );
      writers.push(writer);
    }
    const version = await publishTables(shop, statesOf(writers));
    return {
      version,
      tables: writers.filter(({ isChanged }) => isChanged).map(({ table }) => table),
    };
  });
}

async function restoreTable(
  shop: BuildSession,
  writer: TableWriter,
  then: TableState | undefined,
) {
  const { state, table } = writer;
  const gone = (action: string, meta: object): PermanentError =>
    new PermanentError(`Cannot restore ${action}`, {
      code: 'LAKE_VERSION_GONE',
      meta: { table, ...meta },
    });
  if (then === undefined || then.metaData.id !== state?.metaData.id)
    throw gone(
      `${rootOf(table)}: it is not the table that the moment names; load builds it again`,
      {},
    );
  const add = [...then.live.values()].filter(({ path }) => !state.live.has(path));
  const remove = [...state.live.values()].filter(({ path }) => !then.live.has(path));
  for (const file of add) {
    const { key, bytes } = storedFile(table, file);
    if ((await shop.objects.head(key, shop.signal))?.bytes === bytes) continue;
    const version = `version ${then.version} of ${rootOf(table)}`;
    throw gone(`${version}: its file ${key} is gone; choose a newer moment`, { key });
  }
  await writer.commit('RESTORE', add, remove);
}
