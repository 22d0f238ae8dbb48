/** Writes one table: files first, each put where nothing lies, then the commit that names them. */
import { randomUUID } from 'node:crypto';
import { copyFile, unlink } from 'node:fs/promises';
import { PermanentError } from '../../core/errors.ts';
import { type Action, type AddFile, removalOf, replay, type TableState } from '../delta/actions.ts';
import { findBrokenCheckpoints, writeCheckpoint } from '../delta/checkpoint.ts';
import { logAmong } from '../delta/listing.ts';
import { readTable } from '../delta/log.ts';
import { statisticsJson } from '../delta/statistics.ts';
import { interruptible } from '../local/duckdb.ts';
import { fileFacts } from '../local/scratch.ts';
import { builderPath, storedFile } from '../local-files.ts';
import { hasStatistics, type LakeTable } from '../tables/columns.ts';
import { copyStatement, newMetaData, rootOf, SHAPES, withNewColumns } from '../tables/tables.ts';
import { APP_PREFIX, SPOOL_PREFIX, type Workshop } from './workshop.ts';

const COMMITS_BETWEEN_CHECKPOINTS = 30;

export interface LakeProgress {
  readonly partition: string;
  readonly rows: bigint;
}

export interface Build extends Workshop {
  readonly writers: Readonly<Record<LakeTable, TableWriter>>;
  readonly onProgress: (progress: LakeProgress) => void;
}

/** What a commit brings and takes. */
export interface Change {
  readonly add: readonly AddFile[];
  readonly remove: readonly AddFile[];
  /** False where the same rows stand in other files. */
  readonly dataChange?: boolean;
}

export class TableWriter {
  readonly table: LakeTable;
  /** The table before; undefined where there was none. */
  readonly former: TableState | undefined;
  /** Undefined before its first commit. */
  state: TableState | undefined;
  readonly #shop: Workshop;

  private constructor(table: LakeTable, shop: Workshop, former: TableState | undefined) {
    this.table = table;
    this.#shop = shop;
    this.former = former;
    this.state = former;
  }

  /** Reads the table's log, and takes away a checkpoint or hint that would make it unreadable for others. */
  static async open(table: LakeTable, shop: Workshop): Promise<TableWriter> {
    const log = await shop.committer.settle(table, logAmong(rootOf(table), shop.listed));
    const state = await readTable(shop, log);
    if (state !== undefined) refuseForeign(table, state, shop.appId);
    // The reading passed over those that are newer than the one that it took.
    for (const { key } of await findBrokenCheckpoints(shop, log, state?.checkpoint))
      await shop.objects.remove(key, shop.signal);
    return new TableWriter(table, shop, state);
  }

  get files(): readonly AddFile[] {
    return [...(this.state?.live.values() ?? [])];
  }

  get isChanged(): boolean {
    return this.state !== this.former;
  }

  /** Whether the segments that the table names are those of this warehouse. */
  get isTrusted(): boolean {
    if (this.former === undefined) return true;
    const txn = this.former.txns.get(this.#shop.appId);
    return txn !== undefined && txn.version <= this.#shop.warehouse.lastBuild;
  }

  /** Where DuckDB finds a file that the table's log names. */
  async find(add: AddFile): Promise<string> {
    return this.#shop.written.get(add.path) ?? builderPath(storedFile(this.table, add), this.#shop);
  }

  /** Writes and publishes one file; until a commit names it, it is nobody's. */
  async write(
    select: string,
    { month, tags }: { readonly month?: string; readonly tags: Readonly<Record<string, string>> },
  ): Promise<AddFile> {
    const { objects, signal, connection, folder, written } = this.#shop;
    const name = `${randomUUID()}.parquet`;
    const path = `${month === undefined ? '' : `month=${month}/`}part-${name}`;
    const key = `${rootOf(this.table)}/${path}`;
    const spooled = await objects.spoolPath(`${SPOOL_PREFIX}${name}`);
    const copied = await interruptible(connection, `write ${key}`, signal, () =>
      connection.runAndReadAll(copyStatement(this.table, select, spooled)),
    );
    const { bytes, sha256 } = await fileFacts(spooled, signal);
    await objects.publishFile(key, spooled, { bytes, sha256 }, signal);
    // The spool is anyone's to clear, and may be on another disk.
    await copyFile(spooled, `${folder}/${name}`);
    await unlink(spooled);
    written.set(path, `${folder}/${name}`);
    return {
      path,
      partitionValues: month === undefined ? {} : { month },
      size: Number(bytes),
      modificationTime: Date.now(),
      dataChange: true,
      stats: statisticsJson(copied.getRowObjectsJson()[0], SHAPES[this.table].columns.filter(hasStatistics)),
      tags: { ...tags, sha256 },
    };
  }

  /** Commits where something changes, or the table is new. */
  async commit(operation: string, { add, remove, dataChange = true }: Change): Promise<void> {
    const before = this.state;
    if (add.length + remove.length === 0 && before !== undefined) return;
    const { committer, appId, buildNumber } = this.#shop;
    const nowMs = Date.now();
    const actions: Action[] = [
      ...this.#schemaActions(),
      { txn: { appId, version: await buildNumber(), lastUpdated: nowMs } },
      ...remove.map((file) => removalOf(file, dataChange, nowMs)),
      ...add.map((file) => ({ add: { ...file, dataChange } })),
    ];
    const version = (before?.version ?? -1) + 1;
    await committer.commit(this.table, version, { operation, actions });
    const at = { version, checkpoint: before?.checkpoint ?? -1 };
    const state = replay([...actions, { commitInfo: { timestamp: nowMs } }], at, before);
    this.state = state;
    if (state === undefined || version - state.checkpoint < COMMITS_BETWEEN_CHECKPOINTS) return;
    await writeCheckpoint(this.#shop, rootOf(this.table), state);
    this.state = { ...state, checkpoint: version };
  }

  #schemaActions(): readonly Action[] {
    if (this.state === undefined) {
      const metaData = newMetaData(this.table, this.#shop.retentionMs);
      return [{ protocol: { minReaderVersion: 1, minWriterVersion: 2 } }, { metaData }];
    }
    const metaData = withNewColumns(this.table, this.state.metaData);
    return metaData === undefined ? [] : [{ metaData }];
  }
}

/** Tables that never had a commit are left out. */
export function statesOf(writers: readonly TableWriter[]): ReadonlyMap<LakeTable, TableState> {
  return new Map(writers.flatMap(({ table, state }) => (state === undefined ? [] : [[table, state]])));
}

/** @throws PermanentError `LAKE_FOREIGN` where another mirror has written the table and this one never */
function refuseForeign(table: LakeTable, { txns }: TableState, appId: string): void {
  const others = [...txns.keys()].filter((id) => id.startsWith(APP_PREFIX) && id !== appId);
  if (txns.has(appId) || others.length === 0) return;
  throw new PermanentError(
    `Cannot use the table ${rootOf(table)}: it is another mirror's (${others[0]?.slice(APP_PREFIX.length)}); ` +
      'give this mirror an OBJECT_STORE_URL of its own, or remove the table and load again',
    { code: 'LAKE_FOREIGN', meta: { table, others } },
  );
}
