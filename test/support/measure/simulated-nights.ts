/**
 * Runs nights of a whole mirror with a simulated clock: the network advances, and
 * everything that the mirror remembers grows older.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Pool } from 'pg';
import type { App } from '../../../src/app/app.ts';
import { enqueueRun } from '../../../src/runs/enqueue.ts';
import { forgetHistory } from '../../../src/runs/store/history.ts';
import type { Run } from '../../../src/runs/store/run-store.ts';
import { startSandbox, type Sandbox } from '../sandbox.ts';

const DAY_MS = 86_400_000;
const LOOK_MS = 50;
/**
 * Columns with times from the database's clock, for data that is kept for a limited time
 * or whose treatment depends on its age.
 */
const AGED: Readonly<Record<string, readonly string[]>> = {
  runs: ['queued_at', 'started_at', 'heartbeat_at', 'finished_at'],
  segments: ['published_at', 'superseded_at', 'removed_at', 'loaded_at'],
  segment_proofs: ['proven_at'],
  lake_proofs: ['proven_at'],
  exports: ['last_asked_at', 'quarantined_at'],
  run_keys: ['made_at'],
};

/**
 * Starts a network whose parties all exist from the first night on and have at least one
 * entry nearly every day.
 */
export function startBusyNetwork(parties: number): Promise<Sandbox> {
  return startSandbox({
    parties,
    partiesMax: parties,
    historyMs: 7 * DAY_MS,
    blockIntervalMs: 10_000,
    entriesMean: 140,
    entriesMax: 400,
    checkpointIntervalMs: DAY_MS / 4,
    rateLimit: 'none',
  });
}

/** Makes everything that the mirror remembers this many days older. */
export async function ageMirror(pool: Pool, days: number): Promise<void> {
  for (const [table, columns] of Object.entries(AGED)) {
    const sets = columns.map(
      (column) => `${column} = ${column} - interval '${days} days'`,
    );
    const ended =
      table === 'runs' ? ` where state in ('done', 'cancelled')` : '';
    await pool.query(`update mirror.${table} set ${sets.join(', ')}${ended}`);
  }
}

export async function passNight(
  app: App,
  sandbox: Sandbox,
  days: number,
): Promise<Run> {
  sandbox.advance(days * DAY_MS);
  await ageMirror(app.warehouse.pool, days);
  const { runId } = await app.jobs.runs.create({
    kind: 'nightly',
    subject: 'now',
  });
  const created = await app.jobs.runs.get(runId);
  if (created === undefined) throw new Error('the run is gone');
  await enqueueRun(created, app.jobs);
  for (;;) {
    const run = await app.jobs.runs.get(runId);
    if (run?.state === 'done') {
      await forgetHistory(app.warehouse.db, app.config.historyRetention);
      return run;
    }
    await sleep(LOOK_MS);
  }
}

/**
 * Counts the rows of every table, including those of the queues; the partitions of a
 * table count as one.
 */
export async function countRows({
  warehouse: { pool },
}: App): Promise<ReadonlyMap<string, number>> {
  const { rows } = await pool.query<{ name: string }>(
    `select format('%I.%I', n.nspname, c.relname) as name
     from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where c.relkind in ('r', 'p') and not c.relispartition
       and n.nspname not in ('pg_catalog', 'information_schema') order by 1`,
  );
  const counts = new Map<string, number>();
  for (const { name } of rows) {
    const found = await pool.query<{ count: string }>(
      `select count(*)::text as count from ${name}`,
    );
    counts.set(name, Number(found.rows[0]?.count));
  }
  return counts;
}

export interface Kept {
  readonly partyId: string;
  readonly year: number;
  readonly segments: number;
}

/** Counts the closed current segments of each party, by the year in which they end. */
export async function closedSegments({
  warehouse: { pool },
}: App): Promise<readonly Kept[]> {
  const { rows } = await pool.query<{
    party_id: string;
    year: number;
    segments: number;
  }>(
    `select party_id, extract(year from to_time - interval '1 microsecond')::int as year, count(*)::int as segments
     from mirror.segments where status = 'current' and not open group by 1, 2 order by 1, 2`,
  );
  return rows.map(({ party_id: partyId, year, segments }) => ({
    partyId,
    year,
    segments,
  }));
}
