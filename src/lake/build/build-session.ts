/**
 * What a build, a vacuum or a restore works with: the lake as it was found, an engine, a
 * scratch folder, and the right to commit. One session at a time, over all processes.
 */
import { randomUUID } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { isDeepStrictEqual } from 'node:util';
import { ByteCounter, type FileFacts } from '../../files/byte-counter.ts';
import { PermanentError } from '../../errors/errors.ts';
import type { ListedObject, ObjectStore } from '../../storage/object-store.ts';
import type { TableState } from '../delta/actions.ts';
import { commitKey, listObjects, logAmong } from '../delta/listing.ts';
import {
  BUILD_MEMORY_LIMIT,
  type Engine,
  type LakeAccess,
  literal,
  openEngine,
} from '../local/duckdb.ts';
import { removeLeftovers } from '../local/scratch.ts';
import {
  type LakeSnapshot,
  publishSnapshot,
  readSnapshot,
} from '../snapshot.ts';
import type {
  DecidedCommit,
  LakeRepository,
  WarehouseReader,
} from '../store/lake-store.ts';
import {
  type LakeColumn,
  type LakeTable,
  selected,
} from '../tables/columns.ts';
import { LAKE_PREFIX, rootOf } from '../tables/tables.ts';

/**
 * Prefix of what a session writes into the spool; a later session clears what a crash
 * left behind.
 */
export const SPOOL_PREFIX = 'lake-';
const COMMIT_SPOOL_PREFIX = `${SPOOL_PREFIX}commit-`;
export const APP_PREFIX = 'ledger-mirror:';

export interface LakeDeps {
  readonly repository: LakeRepository;
  readonly objects: ObjectStore;
  readonly scratchDir: string;
  /** How long objects stay after the last version that names them. */
  readonly retentionMs: number;
}

/** The tables that had a commit, as they are at their newest version. */
export type TableStates = ReadonlyMap<LakeTable, TableState>;

/** A commit that is about to be put. */
export type Commit = DecidedCommit & { readonly content: Buffer };

/** Puts commits so that each version of a table has one content only. */
interface Committer {
  /**
   * Who decides which of two writers has a version: the store, or the database if the
   * store cannot.
   */
  readonly decidedBy: 'store' | 'database';
  /**
   * Puts a commit if its version is free, so that a reader sees all of it or nothing.
   * @throws PermanentError `LAKE_SECOND_WRITER` if the version is another writer's
   */
  commit(commit: Commit): Promise<void>;
}

export interface BuildSession extends LakeDeps, LakeAccess, Committer {
  /** Reads the warehouse as of one instant. */
  readonly warehouse: WarehouseReader;
  /** The newest snapshot when the session began; undefined if there was none. */
  readonly before: LakeSnapshot | undefined;
  /**
   * Local copies of the files that this session wrote, by their paths in the log. They
   * stay to its end.
   */
  readonly written: Map<string, string>;
  /** Names this mirror in the logs of the tables. */
  readonly appId: string;
  /** The number of this session's build; it is drawn when it is first needed. */
  buildNumber(): Promise<number>;
}

/** What a session has before it looked at the lake. */
type Opening = LakeDeps &
  Engine & {
    readonly warehouse: WarehouseReader;
    readonly signal: AbortSignal;
  };

/** Runs `work` while no other process builds the lake or removes anything from it. */
export async function withBuildSession<Result>(
  deps: LakeDeps,
  signal: AbortSignal,
  work: (session: BuildSession) => Promise<Result>,
): Promise<Result> {
  return deps.repository.withLakeLock(async (warehouse) => {
    const decidedBy = await chooseDecider(deps.objects, signal);
    await deps.objects.clearSpool(SPOOL_PREFIX);
    await removeLeftovers(deps.scratchDir);
    await using engine = await openEngine(deps.scratchDir, BUILD_MEMORY_LIMIT);
    const opening = { ...deps, ...engine, warehouse, signal };
    return await work(await openSession(opening, decidedBy));
  }, signal);
}

async function openSession(
  opening: Opening,
  decidedBy: Committer['decidedBy'],
): Promise<BuildSession> {
  const { repository, connection, warehouse } = opening;
  await connection.run('set preserve_insertion_order = false');
  const found = await listObjects(opening, LAKE_PREFIX);
  const committer = await openCommitter(opening, decidedBy, found);
  // The committer may have put a commit that a killed session had only decided: then list
  // again.
  const listed =
    decidedBy === 'store' ? found : await listObjects(opening, LAKE_PREFIX);
  const before = await readSnapshot({ ...opening, listed });
  let number: Promise<number> | undefined;
  const buildNumber = (): Promise<number> => {
    number ??= repository.beginBuild((before?.moment ?? 0) + 1);
    return number;
  };
  return {
    ...opening,
    ...committer,
    listed,
    before,
    written: new Map<string, string>(),
    appId: appIdOf(warehouse.mirrorId),
    buildNumber,
  };
}

export function appIdOf(mirrorId: string): string {
  return `${APP_PREFIX}${mirrorId}`;
}

/**
 * Publishes a snapshot that names these versions, unless the newest one already does.
 * @returns the snapshot's number
 */
export async function publishTables(
  session: BuildSession,
  states: TableStates,
): Promise<number> {
  const { repository, warehouse, appId, before } = session;
  const tables = Object.fromEntries(
    [...states].map(([table, { metaData, version }]) => [
      table,
      { id: metaData.id, version },
    ]),
  );
  if (before !== undefined && isDeepStrictEqual(tables, before.tables))
    return before.moment;

  const moment = await session.buildNumber();
  const builtAt = new Date().toISOString();
  const { mirrorId } = warehouse;
  await publishSnapshot(session, { moment, mirrorId, builtAt, tables });
  const recorded = [...states].map(([table, { metaData, version, txns }]) => {
    const build = txns.get(appId)?.version ?? moment;
    return { table, tableId: metaData.id, version, build };
  });
  await repository.record(recorded);
  return moment;
}

async function chooseDecider(
  objects: ObjectStore,
  signal: AbortSignal,
): Promise<Committer['decidedBy']> {
  const { put, hasOneWinner } = await objects.capabilities(signal);
  return put === 'honoured' && hasOneWinner ? 'store' : 'database';
}

/** Writes what the warehouse sends to a new file on the local disk. */
export async function fetchCsv(
  { folder }: Engine,
  csv: AsyncIterable<Buffer>,
): Promise<FileFacts & { readonly path: string }> {
  const path = join(folder, `${randomUUID()}.csv`);
  const counter = new ByteCounter();
  await pipeline(csv, counter.through(), createWriteStream(path));
  return { path, ...counter.facts() };
}

/**
 * DuckDB reads with a buffer for the longest line. Longer lines are rare; they are read
 * with a larger buffer.
 */
export const LINE_BYTES = 4 * 2 ** 20;

/**
 * SQL that selects a table's columns from a CSV file without header.
 * @param sent the columns that the file has, all as text
 */
export function selectCsv(
  path: string,
  columns: readonly LakeColumn[],
  sent: readonly string[] = columns.map(({ name }) => name),
  lineBytesMax = LINE_BYTES,
): string {
  const types = sent.map((name) => `${name}: 'VARCHAR'`).join(', ');
  return `select ${selected(columns)}
    from read_csv(${literal(path)}, header = false, auto_detect = false,
      delim = ',', quote = '"', escape = '"', nullstr = '',
      max_line_size = ${lineBytesMax}, buffer_size = ${lineBytesMax},
      columns = {${types}})`;
}

/**
 * Opens the committer. If the store writes a key once, the store decides which writer has
 * a version. Otherwise the database does: it keeps one content for each version until
 * that content lies in the store. A session that was frozen beyond its lock, and the one
 * that followed it, can then only put the same bytes. A commit that a killed session had
 * decided and not put is put here first.
 */
async function openCommitter(
  opening: Opening,
  decidedBy: Committer['decidedBy'],
  listed: readonly ListedObject[],
): Promise<Committer> {
  const { objects, repository, signal } = opening;
  const register = decidedBy === 'database' ? repository : undefined;
  const decidedVersions = new Map<LakeTable, number>();
  const put = async (commit: Commit): Promise<void> => {
    const { table, version, content } = commit;
    decidedVersions.set(table, version);
    const key = commitKey(rootOf(table), version);
    const outcome = await objects.putIfAbsent(
      key,
      content,
      signal,
      COMMIT_SPOOL_PREFIX,
    );
    if (outcome === 'present') throw secondWriter(commit);
    await register?.forgetContent(objects.url, commit);
  };

  const decided = (await register?.decidedCommits(objects.url)) ?? [];
  for (const { table, version, content } of decided) {
    decidedVersions.set(table, version);
    // If the log ends elsewhere, somebody restored or removed it since: build on it as it
    // is.
    const last = logAmong(rootOf(table), listed).at(-1)?.version ?? -1;
    const isNext = version === last + 1;
    if (content !== null && isNext) await put({ table, version, content });
  }
  return {
    decidedBy,
    commit: async (commit) => {
      const before = decidedVersions.get(commit.table);
      const isOurs = await register?.decideCommit(objects.url, commit, before);
      if (isOurs === false) throw secondWriter(commit);
      await put(commit);
    },
  };
}

function secondWriter({ table, version }: DecidedCommit): PermanentError {
  return new PermanentError(
    `Cannot commit version ${version} of ${rootOf(table)}: another writer has ` +
      'committed it; build again, on top of what it wrote',
    { code: 'LAKE_SECOND_WRITER', meta: { root: rootOf(table), version } },
  );
}
