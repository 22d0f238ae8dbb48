/**
 * Syncs against a real Postgres: runs, outcomes, and what the mirror holds afterwards.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { Pool } from 'pg';
import { afterAll, beforeEach } from 'vitest';
import type { VerdictWithEvidence } from '../../src/errors/verdict.ts';
import type { SyncDeps } from '../../src/lists/sync-context.ts';
import type {
  ListName,
  ListSource,
  ResumePointStore,
  SyncRequest,
} from '../../src/lists/ports.ts';
import { syncList } from '../../src/lists/sync-list.ts';
import { ListStore } from '../../src/lists/store/list-store.ts';
import { openWarehouse, type Warehouse } from '../../src/postgres/database.ts';
import { migrate } from '../../src/postgres/migrate.ts';
import { freshDatabase } from '../support/database.ts';
import { verdictOf } from '../support/mirror-state.ts';

/** Remembers nothing, as a Redis that is always flushed. */
export const NO_REDIS: ResumePointStore = {
  get: async () => undefined,
  set: async () => undefined,
};

export function rememberingStore(
  entries = new Map<string, unknown>(),
): ResumePointStore {
  return {
    get: async (key) => structuredClone(entries.get(key)),
    set: async (key, value) => void entries.set(key, structuredClone(value)),
  };
}

export async function openMigrated(url: string): Promise<Warehouse> {
  const warehouse = openWarehouse({ url, onIdleError: () => undefined });
  await migrate(warehouse.db);
  return warehouse;
}

/**
 * A world over a database of its own, empty before each test. Call it at the top level of
 * a test file.
 */
export async function freshSyncWorld(): Promise<SyncWorld> {
  const database = await freshDatabase();
  const warehouse = await openMigrated(database.url);
  const world = new SyncWorld(warehouse);
  afterAll(() => warehouse[Symbol.asyncDispose]());
  beforeEach(() => world.reset());
  return world;
}

export async function newRun(pool: Pool, list: ListName): Promise<string> {
  const runId = randomUUID();
  await pool.query(
    `insert into mirror.runs (run_id, kind, subject, state, started_at) values ($1, 'sync', $2, 'running', now())`,
    [runId, list],
  );
  return runId;
}

export class SyncWorld {
  readonly warehouse: Warehouse;
  readonly pool: Pool;

  constructor(warehouse: Warehouse) {
    this.warehouse = warehouse;
    this.pool = warehouse.pool;
  }

  async sync(
    source: ListSource,
    request: Partial<SyncRequest> & { list: ListName },
    options: { deps?: Partial<SyncDeps>; signal?: AbortSignal } = {},
  ): Promise<VerdictWithEvidence> {
    const runId = request.runId ?? (await newRun(this.pool, request.list));
    const outcome = await syncList(
      { isAudit: false, pageSize: 10, ...request, runId },
      {
        source,
        store: new ListStore(this.warehouse.db),
        resumePoints: NO_REDIS,
        onProgress: () => undefined,
        pauseMs: 1,
        ...options.deps,
      },
      options.signal ?? new AbortController().signal,
    );
    assert.equal(await verdictOf(this.pool, runId), outcome.verdict);
    return outcome;
  }

  /** The same run once more, or what it recorded where it had ended already. */
  async resume(
    source: ListSource,
    list: ListName,
    runId: string,
    deps: Partial<SyncDeps> = {},
  ): Promise<VerdictWithEvidence> {
    const { rows } = await this.pool.query(
      'select verdict, evidence from mirror.runs where run_id = $1',
      [runId],
    );
    const [run] = rows as (VerdictWithEvidence | { verdict: null })[];
    return run === undefined || run.verdict === null
      ? this.sync(source, { list, runId }, { deps })
      : run;
  }

  /** Clears the lists and all that is known of them. */
  async reset(): Promise<void> {
    // Small tables are deleted from in a hundredth of the time that it takes to truncate
    // them.
    await this.pool
      .query(`update mirror.list_leases set token = null, lease_until = null;
      delete from mirror.audit_rows; delete from mirror.generations; delete from mirror.parties;
      delete from mirror.checkpoints; delete from mirror.list_gaps; delete from mirror.doubts; delete from mirror.runs;
      delete from mirror.networks where epoch > 1`);
  }

  /** Keys by place, oldest first; rows that are marked as gone are not among them. */
  async held(list: ListName, epoch = 1): Promise<string[]> {
    const sql =
      list === 'parties'
        ? `select party_id as key from mirror.parties where epoch = $1 and gone_since is null order by pos nulls last`
        : `select at_block || '/' || hash || '/' || block_hash as key
           from mirror.checkpoints, generate_series(1, copies) where epoch = $1 and gone_since is null order by pos`;
    const { rows } = await this.pool.query<{ key: string }>(sql, [epoch]);
    return rows.map(({ key }) => key);
  }

  async openDoubts(list: ListName): Promise<string[]> {
    const { rows } = await this.pool.query<{ code: string }>(
      `select code from mirror.doubts where subject = $1 and closed_at is null order by code`,
      [list],
    );
    return rows.map(({ code }) => code);
  }
}
