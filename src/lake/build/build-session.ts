/** Where a build or a restore works: the lake as it finds it, an engine, and a folder of its own. */
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
import { BUILD_MEMORY_LIMIT, type Engine, literal, openEngine } from '../local/duckdb.ts';
import { sweepScratch } from '../local/scratch.ts';
import { publishSnapshot, readSnapshot } from '../snapshot.ts';
import type {
  DecidedCommit,
  LakeRepository,
  WarehouseReader,
} from '../store/lake-store.ts';
import { type LakeColumn, type LakeTable, selected } from '../tables/columns.ts';
import { LAKE_PREFIX, rootOf } from '../tables/tables.ts';

/** What a build writes into the spool, and may find there after a crash. */
export const SPOOL_PREFIX = 'lake-';
const COMMIT_SPOOL_PREFIX = `${SPOOL_PREFIX}commit-`;
export const APP_PREFIX = 'ledger-mirror:';

export interface LakeDeps {
  readonly repository: LakeRepository;
  readonly objects: ObjectStore;
  readonly scratchDir: string;
  /** How long files that no newer version names stay. */
  readonly retentionMs: number;
}

/** Runs `work` while nobody else builds or tidies the lake. */
export async function withBuildSession<Result>(
  deps: LakeDeps,
  signal: AbortSignal,
  work: (shop: BuildSession) => Promise<Result>,
): Promise<Result> {
  return deps.repository.exclusively(async (warehouse) => {
    const decidedBy = await whoDecides(deps.objects, signal);
    await deps.objects.clearSpool(SPOOL_PREFIX);
    await sweepScratch(deps.scratchDir);
    await using engine = await openEngine(deps.scratchDir, BUILD_MEMORY_LIMIT);
    return await work(await setUp({ ...deps, ...engine, warehouse, signal }, decidedBy));
  }, signal);
}

type Shop = LakeDeps &
  Engine & { readonly warehouse: WarehouseReader; readonly signal: AbortSignal };

/** Of tables that had a commit. */
export type TableStates = ReadonlyMap<LakeTable, TableState>;

export type BuildSession = Awaited<ReturnType<typeof setUp>>;

/** @param decidedBy what the store was found to honour when it was tried out */
async function setUp(shop: Shop, decidedBy: 'store' | 'database') {
  const { repository, connection, warehouse } = shop;
  await connection.run('set preserve_insertion_order = false');
  const found = await listObjects(shop, LAKE_PREFIX);
  const committer = await openCommitter(shop, decidedBy, found);
  // The lake before, listed once where no dead builder's commit may have come to it.
  const listed = decidedBy === 'store' ? found : await listObjects(shop, LAKE_PREFIX);
  const before = await readSnapshot({ ...shop, listed });
  let number: Promise<number> | undefined;
  return {
    ...shop,
    ...committer,
    listed,
    before,
    /** Local copies of what was written here, by their paths in the log; they stay to the end. */
    written: new Map<string, string>(),
    /** The application that commits, and the number of its build. */
    appId: appIdOf(warehouse.mirrorId),
    buildNumber: () => (number ??= repository.beginBuild((before?.moment ?? 0) + 1)),
  };
}

export function appIdOf(mirrorId: string): string {
  return `${APP_PREFIX}${mirrorId}`;
}

/** Makes these versions of the tables the lake, where they are not. @returns the moment's number */
export async function publishTables(
  shop: BuildSession,
  states: TableStates,
): Promise<number> {
  const { repository, warehouse, buildNumber, appId, before } = shop;
  const tables = Object.fromEntries(
    [...states].map(([table, { metaData, version }]) => [
      table,
      { id: metaData.id, version },
    ]),
  );
  if (before !== undefined && isDeepStrictEqual(tables, before.tables))
    return before.moment;
  const moment = await buildNumber();
  const builtAt = new Date().toISOString();
  await publishSnapshot(shop, { moment, mirrorId: warehouse.mirrorId, builtAt, tables });
  const recorded = [...states].map(([table, { metaData, version, txns }]) => {
    const build = txns.get(appId)?.version ?? moment;
    return { table, tableId: metaData.id, version, build };
  });
  await repository.record(recorded);
  return moment;
}

async function whoDecides(
  objects: ObjectStore,
  signal: AbortSignal,
): Promise<'store' | 'database'> {
  const { put, hasOneWinner } = await objects.capabilities(signal);
  return put === 'honoured' && hasOneWinner ? 'store' : 'database';
}

/** Brings what the warehouse sends to the local disk. */
export async function fetchCsv(
  { folder }: Engine,
  csv: AsyncIterable<Buffer>,
): Promise<FileFacts & { readonly path: string }> {
  const path = join(folder, `${randomUUID()}.csv`);
  const sums = new ByteCounter();
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

type Commit = DecidedCommit & { readonly content: Buffer };

/**
 * Who decides that a commit is the next version of a table: the store, where it writes a key once; otherwise the
 * database. There a version has one content, which is kept until it lies in the store: a builder that was frozen
 * beyond its lock, and the one that came after it, can only put the same bytes. What a dead builder had decided and
 * not put is put first.
 */
async function openCommitter(
  shop: Shop,
  decidedBy: 'store' | 'database',
  listed: readonly ListedObject[],
) {
  const { objects, repository, signal } = shop;
  const register = decidedBy === 'database' ? repository : undefined;
  const decided = new Map<LakeTable, number>();
  const put = async (commit: Commit): Promise<void> => {
    const { table, version, content } = commit;
    decided.set(table, version);
    const key = commitKey(rootOf(table), version);
    const outcome = await objects.putIfAbsent(key, content, signal, COMMIT_SPOOL_PREFIX);
    if (outcome === 'present') throw secondWriter(commit);
    await register?.forgetContent(objects.url, commit);
  };
  for (const { table, version, content } of (await register?.decidedCommits(
    objects.url,
  )) ?? []) {
    decided.set(table, version);
    // A log that ends elsewhere was restored or removed since: it is built on as it is.
    const last = logAmong(rootOf(table), listed).at(-1)?.version ?? -1;
    if (content !== null && version === last + 1) await put({ table, version, content });
  }
  return {
    decidedBy,
    /**
     * Puts it where nothing lies, so a reader sees it whole or not at all, and two writers cannot both have it.
     * @throws PermanentError `LAKE_SECOND_WRITER` where the version is another writer's
     */
    commit: async (commit: Commit): Promise<void> => {
      const isOurs = await register?.decideCommit(
        objects.url,
        commit,
        decided.get(commit.table),
      );
      if (isOurs === false) throw secondWriter(commit);
      await put(commit);
    },
  };
}

function secondWriter({ table, version }: DecidedCommit): PermanentError {
  return new PermanentError(
    `Cannot commit version ${version} of ${rootOf(table)}: another writer has; build again, on top of what it wrote`,
    { code: 'LAKE_SECOND_WRITER', meta: { root: rootOf(table), version } },
  );
}
