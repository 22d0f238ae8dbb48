/**
 * The resources of a build, a vacuum or a restore: the lake as found at the start, a
 * DuckDB engine, a scratch folder, and the exclusive right to commit. Only one session
 * runs at a time, across all processes.
 */
import { randomUUID } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { isDeepStrictEqual } from 'node:util';
import { ByteCounter, type FileFacts } from '../../files/byte-counter.ts';
import { PermanentError } from '../../errors/errors.ts';
import { LINE_COLUMNS } from '../../ledger/canonical.ts';
import type { ListedObject, ObjectStore } from '../../storage/object-store.ts';
import type { TableState } from '../delta/actions.ts';
import { commitKey, listObjects, logAmong } from '../delta/listing.ts';
import {
  BUILD_MEMORY_LIMIT,
  type Engine,
  type LakeAccess,
  literal,
  literals,
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
  ENTRIES,
  type LakeColumn,
  type LakeTable,
  selected,
} from '../tables/columns.ts';
import { LAKE_PREFIX, rootOf } from '../tables/tables.ts';

/**
 * Prefix of the files that a session writes to the spool. The next session removes any
 * that a crash left behind.
 */
export const SPOOL_PREFIX = 'lake-';
const COMMIT_SPOOL_PREFIX = `${SPOOL_PREFIX}commit-`;
export const APP_PREFIX = 'ledger-mirror:';

export interface LakeDeps {
  readonly repository: LakeRepository;
  readonly objects: ObjectStore;
  readonly scratchDir: string;
  /** How long an object is kept after the last version that refers to it. */
  readonly retentionMs: number;
  /** What the load before this build left; absent if there was none. */
  readonly loadedLines?: LoadedLines | undefined;
}

/** Lines of loaded segments in local files, with the columns LINE_COLUMNS. */
export interface LoadedLines {
  /**
   * Returns the number of the part that contains a segment: its files have every line of
   * the segment exactly once. Undefined if there is no such part.
   */
  partOf(segmentId: bigint): number | undefined;
  /**
   * Returns the path of the file that contains a part's lines of one month. The part may
   * have several segments, and the file contains the lines of all of them. Values are
   * separated by tabs and need no unescaping; NULL is `\N`.
   */
  pathOf(month: string, part: number): string;
}

/** The newest state of each table that had a commit. */
export type TableStates = ReadonlyMap<LakeTable, TableState>;

/** A commit that is about to be written to the store. */
export type Commit = DecidedCommit & { readonly content: Buffer };

/**
 * Writes commits, and guarantees that a table version is never written with two different
 * contents.
 */
interface Committer {
  /**
   * What decides between two writers of the same version: the store if it can, and
   * otherwise the database.
   */
  readonly decidedBy: 'store' | 'database';
  /**
   * Writes a commit if its version is free. The write is atomic for readers.
   * @throws PermanentError `LAKE_SECOND_WRITER` if another writer has committed the
   *   version
   */
  commit(commit: Commit): Promise<void>;
}

export interface BuildSession extends LakeDeps, LakeAccess, Committer {
  /** Reads the warehouse as of one instant. */
  readonly warehouse: WarehouseReader;
  /** The newest snapshot when the session began; undefined if there was no snapshot. */
  readonly before: LakeSnapshot | undefined;
  /**
   * Local copies of the files that this session wrote, by their paths in the log; kept
   * until the session ends.
   */
  readonly written: Map<string, string>;
  /** Identifies this mirror in the logs of the tables. */
  readonly appId: string;
  /** Returns the number of this session's build, which is allocated on the first call. */
  buildNumber(): Promise<number>;
}

/** What a session has before it reads the lake. */
type Opening = LakeDeps &
  Engine & {
    readonly warehouse: WarehouseReader;
    readonly signal: AbortSignal;
  };

/** Runs `work` while no other process can build the lake or remove anything from it. */
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
    return await work(await beginSession(opening, decidedBy));
  }, signal);
}

async function beginSession(
  opening: Opening,
  decidedBy: Committer['decidedBy'],
): Promise<BuildSession> {
  const { repository, connection, warehouse } = opening;
  await connection.run('set preserve_insertion_order = false');
  const found = await listObjects(opening, LAKE_PREFIX);
  const committer = await openCommitter(opening, decidedBy, found);
  // If a killed session had recorded a commit in the database but not written it, opening
  // the committer has just written it. List again, because `found` lacks that commit.
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
 * Publishes a snapshot of these versions, unless the newest snapshot already has them.
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

/** Writes the rows that the warehouse sends to a new CSV file on the local disk. */
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
 * Default size of DuckDB's read buffer, which must fit the longest line. Files with
 * longer lines are rare, and are read again with a larger buffer.
 */
export const LINE_BYTES = 4 * 2 ** 20;

/**
 * Returns SQL that selects a table's columns from a CSV file without a header.
 * @param sent the columns in the file, all of them text
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
 * Returns SQL that selects the columns of the entries from local files that a load wrote.
 * @param segmentIds the segments whose lines are selected
 */
export function selectLines(
  paths: readonly string[],
  segmentIds: readonly bigint[],
  lineBytesMax: number,
): string {
  const types = LINE_COLUMNS.map((name) => `${name}: 'VARCHAR'`).join(', ');
  const ids = segmentIds.map((id) => `'${id}'`).join(', ');
  return `select ${selected(ENTRIES)}
    from read_csv(${literals(paths)}, header = false, auto_detect = false,
      delim = '\t', quote = '', escape = '', nullstr = '\\N',
      max_line_size = ${lineBytesMax}, buffer_size = ${lineBytesMax},
      columns = {${types}})
    where segment_id in (${ids})`;
}

/**
 * Opens the committer. If the store can guarantee that a key is written only once, the
 * store decides which writer gets a version. Otherwise the database decides, by recording
 * the content of each version until it is in the store. Even if a session freezes for
 * longer than its lock lasts, it and its successor can then write only the same bytes. A
 * commit that a killed session had decided but not written is written here first.
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
    // Write the commit only if it is the next one in the log. Otherwise it is already
    // there, or an operator has restored or removed the log since the commit was decided;
    // the build then continues from the log as it is.
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
