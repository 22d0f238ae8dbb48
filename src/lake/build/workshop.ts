/** Where a build or a restore works: the lake as it finds it, an engine, and a folder of its own. */
import { randomUUID } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { ByteSums, type FileFacts } from '../../core/byte-sums.ts';
import type { ListedObject, ObjectStore } from '../../objects/object-store.ts';
import type { TableState } from '../delta/actions.ts';
import { BUILD_MEMORY_LIMIT, type LakeAccess, openEngine } from '../local/duckdb.ts';
import { type Commit, encodeCommit, putCommit, secondWriter } from '../delta/log.ts';
import { sweepScratch } from '../local/scratch.ts';
import { type Moment, publishMoment, readMoment } from '../moment.ts';
import type { LakeRepository } from '../store/lake-store.ts';
import type { WarehouseReader } from '../store/warehouse-reader.ts';
import { literal } from '../local/sql.ts';
import { type LakeColumn, type LakeTable, selected } from '../tables/columns.ts';
import { LAKE_PREFIX, rootOf } from '../tables/tables.ts';
import { listObjects, type LogListing, newestVersion } from '../delta/listing.ts';

/** What a build writes into the spool, and may find there after a crash. */
export const SPOOL_PREFIX = 'lake-';
export const APP_PREFIX = 'ledger-mirror:';

export interface LakeDeps {
  readonly repository: LakeRepository;
  readonly objects: ObjectStore;
  readonly scratchDir: string;
  /** How long files that no newer version names stay. */
  readonly retentionMs: number;
}

export interface Workshop extends LakeDeps, LakeAccess {
  readonly warehouse: WarehouseReader;
  /** The lake before, listed once. */
  readonly listed: readonly ListedObject[];
  readonly before: Moment | undefined;
  readonly committer: Committer;
  /** Local copies of what was written here, by their paths in the log; they stay to the end. */
  readonly written: Map<string, string>;
  /** The application that commits, and the number of its build. */
  readonly appId: string;
  readonly buildNumber: () => Promise<number>;
}

/** Runs `work` while nobody else builds or tidies the lake. */
export async function inWorkshop<Result>(
  deps: LakeDeps,
  signal: AbortSignal,
  work: (shop: Workshop) => Promise<Result>,
): Promise<Result> {
  const { repository, objects, scratchDir } = deps;
  return repository.exclusively(async (warehouse) => {
    const decidedBy = await whoDecides(objects, signal);
    await objects.clearSpool(SPOOL_PREFIX);
    await sweepScratch(scratchDir);
    await using engine = await openEngine(scratchDir, BUILD_MEMORY_LIMIT);
    await engine.connection.run('set preserve_insertion_order = false');
    const listed = await listObjects(objects, LAKE_PREFIX, signal);
    const before = await readMoment(objects, signal, undefined, listed);
    let number: Promise<number> | undefined;
    return await work({
      ...deps,
      ...engine,
      signal,
      warehouse,
      listed,
      before,
      committer: new Committer({ ...deps, signal }, decidedBy),
      written: new Map(),
      appId: appIdOf(warehouse.mirrorId),
      buildNumber: () => (number ??= repository.beginBuild((before?.moment ?? 0) + 1)),
    });
  }, signal);
}

export function appIdOf(mirrorId: string): string {
  return `${APP_PREFIX}${mirrorId}`;
}

/** Makes these versions of the tables the lake. @returns the moment's number */
export async function publishTables(
  { objects, repository, warehouse, buildNumber, signal, appId }: Workshop,
  states: ReadonlyMap<LakeTable, TableState>,
): Promise<number> {
  const moment = await buildNumber();
  const tables = Object.fromEntries(
    [...states].map(([table, { metaData, version }]) => [table, { id: metaData.id, version }]),
  );
  const builtAt = new Date().toISOString();
  await publishMoment(objects, { moment, mirrorId: warehouse.mirrorId, builtAt, tables }, signal);
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

export async function whoDecides(objects: ObjectStore, signal: AbortSignal): Promise<'store' | 'database'> {
  const { put, hasOneWinner } = await objects.capabilities(signal);
  return put === 'honoured' && hasOneWinner ? 'store' : 'database';
}

/** Brings what the warehouse sends to the local disk. */
export async function fetchCsv(
  { folder }: Workshop,
  csv: AsyncIterable<Buffer>,
): Promise<FileFacts & { readonly path: string }> {
  const path = join(folder, `${randomUUID()}.csv`);
  const sums = new ByteSums();
  await pipeline(csv, sums.through(), createWriteStream(path));
  return { path, ...sums.facts() };
}

/** DuckDB reads in buffers of the longest line; what is longer is rare, and takes larger ones. */
export const LINE_BYTES = 4 * 2 ** 20;

/** Selects the columns from what was brought. @param sent the columns that it has, as text */
export function selectCsv(
  path: string,
  columns: readonly LakeColumn[],
  sent: readonly string[] = columns.map(({ name }) => name),
  lineBytesMax = LINE_BYTES,
): string {
  const types = sent.map((name) => `${name}: 'VARCHAR'`).join(', ');
  return `select ${selected(columns)} from read_csv(${literal(path)}, header = false, auto_detect = false, delim = ',', quote = '"', escape = '"', nullstr = '',
    max_line_size = ${lineBytesMax}, buffer_size = ${lineBytesMax}, columns = {${types}})`;
}

type CommitterDeps = Pick<LakeDeps & LakeAccess, 'objects' | 'repository' | 'signal'>;

/**
 * Who decides that a commit is the next version of a table: the store, where it writes a key once; otherwise the
 * database. There a version has one content, which is kept until it lies in the store: a builder that was frozen
 * beyond its lock, and the one that came after it, can only put the same bytes.
 */
class Committer {
  readonly decidedBy: 'store' | 'database';
  readonly #deps: CommitterDeps;
  /** Undefined where the store decides. */
  readonly #register: LakeRepository | undefined;
  readonly #decided = new Map<LakeTable, number>();

  /** @param decidedBy what the store was found to honour when it was tried out */
  constructor(deps: CommitterDeps, decidedBy: 'store' | 'database') {
    this.decidedBy = decidedBy;
    this.#deps = deps;
    this.#register = decidedBy === 'database' ? deps.repository : undefined;
  }

  /** Before a table is read: puts what a dead builder had decided and not put. @returns the log with it */
  async settle(table: LakeTable, log: LogListing): Promise<LogListing> {
    const decided = await this.#register?.decidedCommit(this.#deps.objects.url, table);
    if (decided === undefined) return log;
    const { version, content } = decided;
    this.#decided.set(table, version);
    // A log that ends elsewhere was restored or removed since: it is built on as it is.
    if (content === null || version !== newestVersion(log) + 1) return log;
    await this.#put(table, version, content);
    return { ...log, commits: [...log.commits, version] };
  }

  /** @throws PermanentError `LAKE_SECOND_WRITER` where the version is another writer's */
  async commit(table: LakeTable, version: number, commit: Commit): Promise<void> {
    const { url } = this.#deps.objects;
    const content = encodeCommit(commit);
    const after = this.#decided.get(table);
    const isOurs = await this.#register?.decideCommit(url, table, { version, content }, after);
    if (isOurs === false) throw secondWriter(rootOf(table), version);
    this.#decided.set(table, version);
    await this.#put(table, version, content);
  }

  async #put(table: LakeTable, version: number, content: Buffer): Promise<void> {
    const { objects, signal } = this.#deps;
    await putCommit(objects, rootOf(table), version, content, signal);
    await this.#register?.forgetContent(objects.url, table, version);
  }
}
