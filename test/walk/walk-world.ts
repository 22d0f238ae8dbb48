/** A walk against the double and a real Postgres: runs, outcomes, and what the mirror holds afterwards. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { Pool } from 'pg';
import { createLog } from '../../src/core/log.ts';
import type { Outcome } from '../../src/core/verdict.ts';
import type { WalkDeps } from '../../src/walk/context.ts';
import type { WalkEvidence } from '../../src/walk/evidence.ts';
import type { ListName, ListSource, WalkHints } from '../../src/walk/ports.ts';
import { walkList, type WalkRequest } from '../../src/walk/walk.ts';
import type { Warehouse } from '../../src/postgres/database.ts';
import { openWarehouse } from '../../src/postgres/database.ts';
import { migrate } from '../../src/postgres/migrate.ts';
import { WalkStore } from '../../src/walk/store/walk-store.ts';
import type { ListDouble } from './list-double.ts';

export const NO_HINTS: WalkHints = { get: async () => undefined, set: async () => undefined };

export async function openMigrated(url: string): Promise<Warehouse> {
  const warehouse = openWarehouse({ url, onIdleError: () => undefined });
  await migrate(warehouse.db);
  return warehouse;
}

export async function newRun(pool: Pool, list: ListName): Promise<string> {
  const runId = randomUUID();
  await pool.query(
    `insert into mirror.runs (run_id, kind, subject, state, started_at) values ($1, 'walk', $2, 'running', now())`,
    [runId, list],
  );
  return runId;
}

export interface Walked extends Outcome {
  readonly evidence: Outcome['evidence'] & WalkEvidence;
}

export class WalkWorld {
  readonly warehouse: Warehouse;
  readonly pool: Pool;

  constructor(warehouse: Warehouse) {
    this.warehouse = warehouse;
    this.pool = warehouse.pool;
  }

  async walk(
    source: ListSource,
    request: Partial<WalkRequest> & { list: ListName },
    options: { deps?: Partial<WalkDeps>; signal?: AbortSignal } = {},
  ): Promise<Walked> {
    const runId = request.runId ?? (await newRun(this.pool, request.list));
    const outcome = await walkList(
      { kind: 'walk', pageSize: 10, ...request, runId },
      {
        source,
        books: new WalkStore(this.warehouse),
        hints: NO_HINTS,
        log: createLog('silent'),
        onProgress: () => undefined,
        ...options.deps,
      },
      options.signal ?? new AbortController().signal,
    );
    const { rows } = await this.pool.query('select verdict, evidence from mirror.runs where run_id = $1', [
      runId,
    ]);
    assert.equal(rows[0]?.verdict, outcome.verdict);
    return outcome as Walked;
  }

  /** The same run once more, or what it recorded where it had ended already. */
  async resume(double: ListDouble, list: ListName, runId: string): Promise<Walked> {
    const { rows } = await this.pool.query('select verdict, evidence from mirror.runs where run_id = $1', [
      runId,
    ]);
    const [run] = rows as (Walked | { verdict: null })[];
    return run === undefined || run.verdict === null ? this.walk(double, { list, runId }) : run;
  }

  /** Clears the lists and all that is known of them. */
  async reset(): Promise<void> {
    await this.pool
      .query(`truncate mirror.walk_pages, mirror.walks, mirror.chains, mirror.former_places, mirror.parties,
      mirror.checkpoints, mirror.known_gaps, mirror.runs cascade`);
    await this.pool.query('delete from mirror.networks where epoch > 1');
  }

  /** Party ids by place, lowest first; those that are gone too. */
  async placedParties(epoch = 1): Promise<string[]> {
    const { rows } = await this.pool.query(
      'select party_id from mirror.places where epoch = $1 order by pos',
      [epoch],
    );
    return rows.map(({ party_id }) => party_id);
  }

  /** Checkpoint keys with repetition, sorted. */
  async checkpointKeys(epoch = 1): Promise<string[]> {
    const { rows } = await this.pool.query(
      `select at_block || '/' || hash || '/' || block_hash as key
       from mirror.checkpoints, generate_series(1, copies) where epoch = $1`,
      [epoch],
    );
    return rows.map(({ key }) => String(key)).toSorted(inOrder);
  }

  async expectParties(double: ListDouble, epoch = 1): Promise<void> {
    const served = double.lists.parties.filter(({ rank }) => rank !== undefined).map(({ row }) => row.key);
    assert.deepEqual(await this.placedParties(epoch), served);
  }

  async expectList(double: ListDouble, list: ListName): Promise<void> {
    await (list === 'parties' ? this.expectParties(double) : this.expectCheckpoints(double));
  }

  async expectCheckpoints(double: ListDouble, epoch = 1): Promise<void> {
    const served = double.lists.checkpoints.map(({ row }) => row.key).toSorted(inOrder);
    assert.deepEqual(await this.checkpointKeys(epoch), served);
  }
}

function inOrder(left: string, right: string): number {
  return left < right ? -1 : Number(left > right);
}
