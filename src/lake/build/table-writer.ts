/** Writes one table: files first, each put where nothing lies, then the commit that names them. */
import { randomUUID } from 'node:crypto';
import { copyFile, rename, unlink } from 'node:fs/promises';
import type { DuckDBConnection } from '@duckdb/node-api';
import { errorCode, PermanentError } from '../../core/errors.ts';
import { hasStatistics, type LakeTable } from '../tables/columns.ts';
import { APP_PREFIX, SPOOL_PREFIX, type Workshop } from './workshop.ts';
import { type Action, type AddFile, removalOf, Replay, type TableState } from '../delta/actions.ts';
import { checkHint, mendCheckpoints, writeCheckpoint } from '../delta/checkpoint.ts';
import { logAmong } from '../delta/listing.ts';
import { readTable } from '../delta/log.ts';
import { statisticsJson, type WrittenFile } from '../delta/statistics.ts';
import { interruptible } from '../local/duckdb.ts';
import { fileFacts } from '../local/file-facts.ts';
import { copyStatement, newMetaData, rootOf, SHAPES, withNewColumns } from '../tables/tables.ts';

const COMMITS_BETWEEN_CHECKPOINTS = 30;

export interface NewFile {
  readonly add: AddFile;
  readonly rows: bigint;
  readonly path: string;
}

export class TableWriter {
  readonly table: LakeTable;
  readonly #shop: Workshop;
  #state: TableState | undefined;
  #commits = 0;

  private constructor(table: LakeTable, shop: Workshop, state: TableState | undefined) {
    this.table = table;
    this.#shop = shop;
    this.#state = state;
  }

  /** Reads the table's log, and takes away a checkpoint or hint that would make it unreadable for others. */
  static async open(table: LakeTable, shop: Workshop): Promise<TableWriter> {
    const log = await shop.committer.settle(table, logAmong(rootOf(table), shop.listed));
    const state = await readTable(shop.deps.objects, log, shop, shop.signal);
    if (state !== undefined) refuseForeign(table, state, shop.appId);
    const unreadable = log.checkpoints.filter((version) => version > (state?.checkpoint ?? -1));
    const faults = await checkHint(shop.deps.objects, log, unreadable, shop.signal);
    await mendCheckpoints(shop.deps.objects, log.root, faults, shop.signal);
    return new TableWriter(table, shop, state);
  }

  /** Undefined before its first commit. */
  get state(): TableState | undefined {
    return this.#state;
  }

  get files(): readonly AddFile[] {
    return [...(this.#state?.live.values() ?? [])];
  }

  /** How many commits this writer made. */
  get commits(): number {
    return this.#commits;
  }

  /** Writes and publishes one file; until a commit names it, it is nobody's. */
  async write(
    select: string,
    { month, tags }: { readonly month?: string | undefined; readonly tags: Readonly<Record<string, string>> },
  ): Promise<NewFile> {
    const { deps, signal, folder } = this.#shop;
    const { objects } = deps;
    const name = `${randomUUID()}.parquet`;
    const folderName = month === undefined ? '' : `month=${month}/`;
    const path = `${folderName}part-${name}`;
    const spooled = await objects.spoolPath(`${SPOOL_PREFIX}${name}`);
    const written = await this.#copy(select, spooled, path);
    const facts = await fileFacts(spooled, signal);
    await objects.publishFile(`${rootOf(this.table)}/${path}`, spooled, facts, signal);
    const kept = `${folder}/${name}`;
    await moveFile(spooled, kept);
    const add: AddFile = {
      path,
      partitionValues: month === undefined ? {} : { month },
      size: Number(facts.bytes),
      modificationTime: Date.now(),
      dataChange: true,
      stats: statisticsJson(written, SHAPES[this.table].columns.filter(hasStatistics)),
      tags: { ...tags, sha256: facts.sha256 },
    };
    return { add, rows: written.rows, path: kept };
  }

  /** @param dataChange false where the same rows stand in other files */
  async commit(
    operation: string,
    { add, remove }: { readonly add: readonly AddFile[]; readonly remove: readonly AddFile[] },
    dataChange = true,
  ): Promise<void> {
    const { committer, appId, deps, buildNumber } = this.#shop;
    const nowMs = Date.now();
    const actions: Action[] = [
      { txn: { appId, version: await buildNumber(), lastUpdated: nowMs } },
      ...remove.map((file) => removalOf(file, dataChange, nowMs)),
      ...add.map((file) => ({ add: { ...file, dataChange } })),
    ];
    const before = this.#state;
    if (before === undefined) {
      actions.unshift(
        { protocol: { minReaderVersion: 1, minWriterVersion: 2 } },
        { metaData: newMetaData(this.table, deps.retentionMs) },
      );
    } else {
      const metaData = withNewColumns(this.table, before.metaData);
      if (metaData !== undefined) actions.unshift({ metaData });
    }
    const version = (before?.version ?? -1) + 1;
    await committer.commit(this.table, version, { operation, actions });
    const replay = new Replay(before);
    for (const action of [...actions, { commitInfo: { timestamp: nowMs } }]) replay.apply(action);
    this.#state = replay.state(version, before?.checkpoint ?? -1);
    this.#commits += 1;
    await this.#checkpoint();
  }

  async #checkpoint(): Promise<void> {
    const state = this.#state;
    if (state === undefined || state.version - state.checkpoint < COMMITS_BETWEEN_CHECKPOINTS) return;
    await writeCheckpoint(this.#shop.deps.objects, rootOf(this.table), state, this.#shop, this.#shop.signal);
    this.#state = { ...state, checkpoint: state.version };
  }

  async #copy(select: string, path: string, shown: string): Promise<WrittenFile> {
    const { connection, signal } = this.#shop;
    const result = await interruptible(connection, `write ${rootOf(this.table)}/${shown}`, signal, () =>
      connection.runAndReadAll(copyStatement(this.table, select, path)),
    );
    return writtenFile(result.getRowObjectsJson()[0]);
  }
}

type JsonRow = ReturnType<
  Awaited<ReturnType<DuckDBConnection['runAndReadAll']>>['getRowObjectsJson']
>[number];

/** What `return_stats` says of the file. */
function writtenFile(row: JsonRow | undefined): WrittenFile {
  const { count, file_size_bytes: bytes, column_statistics: statistics } = row ?? {};
  const columns = pairs(statistics).map(([name, facts]) => {
    const texts = pairs(facts).map(([fact, value]): [string, string] => [fact, String(value)]);
    return [name.replaceAll(/^"|"$/g, ''), Object.fromEntries(texts)] as const;
  });
  if (typeof count !== 'string') throw new Error('DuckDB does not say what it wrote');
  return { rows: BigInt(count), bytes: Number(bytes), columns: new Map(columns) };
}

/** A MAP comes as a list of keys and values. */
function pairs(value: unknown): readonly (readonly [string, unknown])[] {
  if (!Array.isArray(value)) return [];
  return (value as readonly { readonly key: unknown; readonly value: unknown }[]).map((entry) => [
    String(entry.key),
    entry.value,
  ]);
}

/** @throws PermanentError `LAKE_FOREIGN` where another mirror has written the table and this one never */
export function refuseForeign(table: LakeTable, { txns }: TableState, appId: string): void {
  const others = [...txns.keys()].filter((id) => id.startsWith(APP_PREFIX) && id !== appId);
  if (txns.has(appId) || others.length === 0) return;
  throw new PermanentError(
    `Cannot use the table ${rootOf(table)}: it is another mirror's (${others[0]?.slice(APP_PREFIX.length)}); ` +
      'give this mirror an OBJECT_STORE_URL of its own, or remove the table and load again',
    { code: 'LAKE_FOREIGN', meta: { table, others } },
  );
}

async function moveFile(from: string, to: string): Promise<void> {
  try {
    await rename(from, to);
  } catch (error) {
    if (errorCode(error) !== 'EXDEV') throw error;
    await copyFile(from, to);
    await unlink(from);
  }
}
