/**
 * Writes one table of the lake: first the files, each under a new key, then the commit
 * that adds them.
 */
import { randomUUID } from 'node:crypto';
import { copyFile, unlink } from 'node:fs/promises';
import { PermanentError } from '../../errors/errors.ts';
import {
  type Action,
  type AddFile,
  replay,
  type TableState,
} from '../delta/actions.ts';
import { findBrokenCheckpoints, writeCheckpoint } from '../delta/checkpoint.ts';
import { encodeCommit, readTable } from '../delta/log.ts';
import { statisticsJson } from '../delta/statistics.ts';
import { interruptible } from '../local/duckdb.ts';
import { fileFacts } from '../local/scratch.ts';
import { builderPath } from '../local-copies.ts';
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

/** A build session with a writer for each table. */
export interface Build extends BuildSession {
  readonly writers: Readonly<Record<LakeTable, TableWriter>>;
  readonly onProgress: (progress: LakeProgress) => void;
  /** How many rows of entries the warehouse has sent to this build. */
  readonly sent: { rows: bigint };
}

type Tags = Readonly<Record<string, string>>;
type Files = readonly AddFile[];

/**
 * Opens a table for writing and reads its log. Checkpoints and hints that would make the
 * table unreadable to others are removed.
 * @throws PermanentError `LAKE_FOREIGN` if the table belongs to another mirror
 */
export async function openTable(
  table: LakeTable,
  session: BuildSession,
): Promise<TableWriter> {
  const root = rootOf(table);
  const former = await readTable(session, root);
  if (former !== undefined) refuseForeign(table, former, session.appId);
  // readTable takes the newest checkpoint that it can read, so only newer ones can be
  // broken.
  const broken = await findBrokenCheckpoints(session, root, former?.checkpoint);
  for (const { key } of broken)
    await session.objects.remove(key, session.signal);
  return new TableWriter(table, session, former);
}

export class TableWriter {
  readonly table: LakeTable;
  /** The table's state when the session began; undefined if the table did not exist. */
  readonly former: TableState | undefined;
  /** Whether the segment ids in the table refer to this warehouse. */
  readonly isTrusted: boolean;
  readonly #session: BuildSession;
  #state: TableState | undefined;

  constructor(
    table: LakeTable,
    session: BuildSession,
    former: TableState | undefined,
  ) {
    this.table = table;
    this.former = former;
    this.#session = session;
    this.#state = former;
    // If the table is from a later build than the last one in the database, the database
    // was restored or rebuilt, and the segment ids in the table may mean other segments.
    const lastBuild = former?.txns.get(session.appId)?.version ?? Infinity;
    this.isTrusted =
      former === undefined || lastBuild <= session.warehouse.lastBuild;
  }

  /** The table's current state; undefined before its first commit. */
  get state(): TableState | undefined {
    return this.#state;
  }

  get files(): Files {
    return [...(this.#state?.live.values() ?? [])];
  }

  get isChanged(): boolean {
    return this.#state !== this.former;
  }

  /** Returns the path under which DuckDB can read a file that the table's log lists. */
  readonly find = async (add: AddFile): Promise<string> =>
    this.#session.written.get(add.path) ??
    builderPath(this.table, add, this.#session);

  /**
   * Writes and publishes one file. It stays invisible to readers until a commit adds it.
   */
  write(select: string, tags: Tags, month?: string): Promise<AddFile> {
    return writeFile(this.#session, this.table, select, tags, month);
  }

  /**
   * Commits if anything changes, or if the table is new.
   * @param dataChange false if the same rows only move to other files
   */
  async commit(
    operation: string,
    add: Files,
    remove: Files,
    dataChange = true,
  ): Promise<void> {
    const isNew = this.#state === undefined;
    if (add.length + remove.length === 0 && !isNew) return;

    const nowMs = Date.now();
    const actions = await this.#actions(add, remove, dataChange, nowMs);
    const version = (this.#state?.version ?? -1) + 1;
    const checkpoint = this.#state?.checkpoint ?? -1;
    const content = encodeCommit(operation, actions);
    await this.#session.commit({ table: this.table, version, content });
    this.#state = replay(
      [...actions, { commitInfo: { timestamp: nowMs } }],
      { version, checkpoint },
      this.#state,
    );
    const isCheckpointDue = version - checkpoint >= COMMITS_BETWEEN_CHECKPOINTS;
    if (this.#state === undefined || !isCheckpointDue) return;
    await writeCheckpoint(this.#session, rootOf(this.table), this.#state);
    this.#state = { ...this.#state, checkpoint: version };
  }

  async #actions(
    add: Files,
    remove: Files,
    dataChange: boolean,
    nowMs: number,
  ): Promise<Action[]> {
    const { appId, retentionMs } = this.#session;
    const version = await this.#session.buildNumber();
    const removal = {
      deletionTimestamp: nowMs,
      dataChange,
      extendedFileMetadata: true,
    };
    return [
      ...schemaActions(this.table, this.#state, retentionMs),
      { txn: { appId, version, lastUpdated: nowMs } },
      ...remove.map(({ path, partitionValues, size }) => ({
        remove: { path, partitionValues, size, ...removal },
      })),
      ...add.map((file) => ({ add: { ...file, dataChange } })),
    ];
  }
}

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
  // Later steps read a copy, because another process may clear the spool. The file cannot
  // simply be renamed, because the spool may be on another disk.
  await copyFile(spooled, `${folder}/${name}`);
  await unlink(spooled);
  written.set(path, `${folder}/${name}`);
  const columns = SHAPES[table].columns.filter(hasStatistics);
  return {
    path,
    partitionValues: month === undefined ? {} : { month },
    size: Number(facts.bytes),
    modificationTime: Date.now(),
    dataChange: true,
    stats: statisticsJson(copied.getRowObjectsJson()[0], columns),
    tags: { ...tags, sha256: facts.sha256 },
  };
}

function schemaActions(
  table: LakeTable,
  state: TableState | undefined,
  retentionMs: number,
): Action[] {
  if (state === undefined) {
    const protocol = { minReaderVersion: 1, minWriterVersion: 2 };
    return [{ protocol }, { metaData: newMetaData(table, retentionMs) }];
  }
  const metaData = withNewColumns(table, state.metaData);
  return metaData === undefined ? [] : [{ metaData }];
}

/** Returns the states of the tables that had a commit. */
export function statesOf(writers: readonly TableWriter[]): TableStates {
  const states = new Map<LakeTable, TableState>();
  for (const { table, state } of writers)
    if (state !== undefined) states.set(table, state);
  return states;
}

/** Refuses a table that another mirror has written to and this mirror has not. */
function refuseForeign(
  table: LakeTable,
  { txns }: TableState,
  appId: string,
): void {
  const others = [...txns.keys()].filter(
    (id) => id.startsWith(APP_PREFIX) && id !== appId,
  );
  if (txns.has(appId) || others.length === 0) return;
  throw new PermanentError(
    `Cannot use the table ${rootOf(table)}: it is another mirror's ` +
      `(${others[0]?.slice(APP_PREFIX.length)}); ` +
      'give this mirror an OBJECT_STORE_URL of its own, or remove the table and ' +
      'load again',
    { code: 'LAKE_FOREIGN', meta: { table, others } },
  );
}
