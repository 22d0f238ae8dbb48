/** Writes one table: files first, each put where nothing lies, then the commit that names them. */
import { randomUUID } from 'node:crypto';
import { copyFile, unlink } from 'node:fs/promises';
import { PermanentError } from '../../errors/errors.ts';
import { type Action, type AddFile, replay, type TableState } from '../delta/actions.ts';
import { findBrokenCheckpoints, writeCheckpoint } from '../delta/checkpoint.ts';
import { encodeCommit, readTable } from '../delta/log.ts';
import { statisticsJson } from '../delta/statistics.ts';
import { interruptible } from '../local/duckdb.ts';
import { fileFacts } from '../local/scratch.ts';
import { builderPath } from '../local-files.ts';
import { hasStatistics, type LakeTable } from '../tables/columns.ts';
import {
  copyStatement,
  newMetaData,
  rootOf,
  SHAPES,
  withNewColumns,
} from '../tables/tables.ts';
import {
  APP_PREFIX,
  SPOOL_PREFIX,
  type TableStates,
  type BuildSession,
} from './build-session.ts';

const COMMITS_BETWEEN_CHECKPOINTS = 30;

export interface LakeProgress {
  readonly partition: string;
  readonly rows: bigint;
}

export interface Build extends BuildSession {
  readonly writers: Readonly<Record<LakeTable, TableWriter>>;
  readonly onProgress: (progress: LakeProgress) => void;
}

/** Reads the table's log, and takes away a checkpoint or hint that would make it unreadable for others. */
export async function openTable(
  table: LakeTable,
  shop: BuildSession,
): Promise<TableWriter> {
  const root = rootOf(table);
  const former = await readTable(shop, root);
  if (former !== undefined) refuseForeign(table, former, shop.appId);
  // The reading passed over those that are newer than the one that it took.
  for (const { key } of await findBrokenCheckpoints(shop, root, former?.checkpoint))
    await shop.objects.remove(key, shop.signal);
  return writerOf(table, shop, former);
}

export type TableWriter = ReturnType<typeof writerOf>;

function writerOf(table: LakeTable, shop: BuildSession, former: TableState | undefined) {
  const { appId, buildNumber, warehouse } = shop;
  let state = former;
  const lastBuild = former?.txns.get(appId)?.version ?? Infinity;
  return {
    table,
    /** The table before; undefined where there was none. */
    former,
    /** Whether the segments that the table names are those of this warehouse. */
    isTrusted: former === undefined || lastBuild <= warehouse.lastBuild,
    /** Undefined before its first commit. */
    get state() {
      return state;
    },
    get files(): Files {
      return [...(state?.live.values() ?? [])];
    },
    get isChanged() {
      return state !== former;
    },
    /** Where DuckDB finds a file that the table's log names. */
    find: async (add: AddFile) =>
      shop.written.get(add.path) ?? builderPath(table, add, shop),
    write: (select: string, tags: Tags, month?: string) =>
      writeFile(shop, table, select, tags, month),
    /**
     * Commits where something changes, or the table is new.
     * @param dataChange false where the same rows stand in other files
     */
    commit: async (operation: string, add: Files, remove: Files, dataChange = true) => {
      if (add.length + remove.length === 0 && state !== undefined) return;
      const nowMs = Date.now();
      const removal = {
        deletionTimestamp: nowMs,
        dataChange,
        extendedFileMetadata: true,
      };
      const actions: Action[] = [
        ...schemaActions(table, state, shop.retentionMs),
        { txn: { appId, version: await buildNumber(), lastUpdated: nowMs } },
        ...remove.map(({ path, partitionValues, size }) => ({
          remove: { path, partitionValues, size, ...removal },
        })),
        ...add.map((file) => ({ add: { ...file, dataChange } })),
      ];
      const version = (state?.version ?? -1) + 1;
      const checkpoint = state?.checkpoint ?? -1;
      await shop.commit({ table, version, content: encodeCommit(operation, actions) });
      state = replay(
        [...actions, { commitInfo: { timestamp: nowMs } }],
        { version, checkpoint },
        state,
      );
      if (state === undefined || version - checkpoint < COMMITS_BETWEEN_CHECKPOINTS)
        return;
      await writeCheckpoint(shop, rootOf(table), state);
      state = { ...state, checkpoint: version };
    },
  };
}

type Tags = Readonly<Record<string, string>>;
type Files = readonly AddFile[];

/** Writes and publishes one file; until a commit names it, it is nobody's. */
async function writeFile(
  { objects, signal, connection, folder, written }: BuildSession,
  table: LakeTable,
  select: string,
  tags: Tags,
  month?: string,
): Promise<AddFile> {
  const name = `${randomUUID()}.parquet`;
  const path = `${month === undefined ? '' : `month=${month}/`}part-${name}`;
  const key = `${rootOf(table)}/${path}`;
  const spooled = await objects.spoolPath(`${SPOOL_PREFIX}${name}`);
  const copied = await interruptible(connection, `write ${key}`, signal, () =>
    connection.runAndReadAll(copyStatement(table, select, spooled)),
  );
  const facts = await fileFacts(spooled, signal);
  await objects.publishFile(key, spooled, facts, signal);
  // The spool is anyone's to clear, and may be on another disk.
  await copyFile(spooled, `${folder}/${name}`);
  await unlink(spooled);
  written.set(path, `${folder}/${name}`);
  return {
    path,
    partitionValues: month === undefined ? {} : { month },
    size: Number(facts.bytes),
    modificationTime: Date.now(),
    dataChange: true,
    stats: statisticsJson(
      copied.getRowObjectsJson()[0],
      SHAPES[table].columns.filter(hasStatistics),
    ),
    tags: { ...tags, sha256: facts.sha256 },
  };
}

function schemaActions(
  table: LakeTable,
  state: TableState | undefined,
  retentionMs: number,
): Action[] {
  const protocol = { minReaderVersion: 1, minWriterVersion: 2 };
  if (state === undefined)
    return [{ protocol }, { metaData: newMetaData(table, retentionMs) }];
  const metaData = withNewColumns(table, state.metaData);
  return metaData === undefined ? [] : [{ metaData }];
}

/** Tables that never had a commit are left out. */
export function statesOf(writers: readonly TableWriter[]): TableStates {
  return new Map(
    writers.flatMap(({ table, state }) => (state === undefined ? [] : [[table, state]])),
  );
}

/** @throws PermanentError `LAKE_FOREIGN` where another mirror has written the table and this one never */
function refuseForeign(table: LakeTable, { txns }: TableState, appId: string): void {
  const others = [...txns.keys()].filter(
    (id) => id.startsWith(APP_PREFIX) && id !== appId,
  );
  if (txns.has(appId) || others.length === 0) return;
  throw new PermanentError(
    `Cannot use the table ${rootOf(table)}: it is another mirror's (${others[0]?.slice(APP_PREFIX.length)}); ` +
      'give this mirror an OBJECT_STORE_URL of its own, or remove the table and load again',
    { code: 'LAKE_FOREIGN', meta: { table, others } },
  );
}
