/** The warehouse's side of loading: what waits, and the transaction in which segments change place. */
import { quarantineSegment } from '../../catalog/segment-rows.ts';
import { type RawBuilder, sql } from 'kysely';
import type { PoolClient } from 'pg';
import type { LoadedSums } from '../copy-rows.ts';
import type { Replacement, StaleSegment } from '../load-plan.ts';
import type { Problem } from '../ports.ts';
import { takeLock } from '../../postgres/advisory-lock.ts';
import { WAITS_FOR_THE_STORE, type Warehouse } from '../../postgres/database.ts';
import { mapDatabaseError } from '../../postgres/database-error.ts';
import { readRow, readRows } from '../../postgres/transaction.ts';
import { openCopySink, type RowSink } from './copy-sink.ts';
import { readSegments, type SegmentRecord } from '../../catalog/segment-records.ts';

/** For one statement, a COPY of a whole segment among them. */
const STATEMENT_TIMEOUT_MS = 3_600_000;

const PENDING = `status = 'current' and loaded_at is null`;
const STALE = `status = 'superseded' and loaded_at is not null`;

export class LoadStore {
  readonly #warehouse: Warehouse;

  constructor(warehouse: Warehouse) {
    this.#warehouse = warehouse;
  }

  /** Parties with something to load or to remove, in order, after `after`. */
  async partiesToLoad(
    after: string | undefined,
    rowsMax: number,
  ): Promise<readonly string[]> {
    const waiting = (state: string): RawBuilder<unknown> =>
      sql`(select distinct party_id from mirror.segments where ${sql.raw(state)}
            and party_id > ${after ?? ''} order by party_id limit ${rowsMax})`;
    const parties = sql<{ party_id: string }>`
      ${waiting(PENDING)} union ${waiting(STALE)} order by party_id limit ${rowsMax}`;
    const rows = await readRows(this.#warehouse.db, 'list what is to be loaded', parties);
    return rows.map((row) => row.party_id);
  }

  /** `pending` are the current segments that are not loaded, those that were quarantined among them. */
  async toLoad(
    party: string,
  ): Promise<{ pending: readonly SegmentRecord[]; stale: readonly StaleSegment[] }> {
    const which = sql`party_id = ${party} and (${sql.raw(`${PENDING} or ${STALE}`)}) order by from_time`;
    const rows = await readSegments(
      this.#warehouse.db,
      'read what is to be loaded',
      which,
    );
    const { pending = [], stale = [] } = Object.groupBy(rows, (row) =>
      row.isLoaded ? 'stale' : 'pending',
    );
    return { pending, stale };
  }

  /**
   * One transaction: stale rows out, new rows in, sums and `loaded_at` set. `write` is called once a segment.
   * @returns how many rows it removed; undefined where the manifest has moved on meanwhile, and nothing was kept
   */
  async replace(
    partyId: string,
    replacement: Replacement,
    write: (segment: SegmentRecord, sink: RowSink) => Promise<LoadedSums>,
    signal: AbortSignal,
  ): Promise<bigint | undefined> {
    const { pool } = this.#warehouse;
    const client = await statement(() => pool.connect());
    // Unless it ends well, a COPY may be under way: the connection is given up, and so the transaction.
    let isBroken = true;
    try {
      await statement(async () => {
        await client.query('begin');
        await client.query(`set local statement_timeout = ${STATEMENT_TIMEOUT_MS}`);
        await client.query(WAITS_FOR_THE_STORE);
      });
      // Another loader of the same party has it as long as its segment takes.
      await takeLock(client, `mirror.load/${partyId}`, 'transaction', signal);
      let isCurrent = await statement(() => isUpToDate(client, replacement));
      const removed = isCurrent
        ? await statement(() => removeRows(client, replacement.remove))
        : 0n;
      for (const segment of isCurrent ? replacement.load : []) {
        const sink = openCopySink(pool, client, signal);
        const sums = await write(segment, sink);
        await sink.finish();
        isCurrent &&= await statement(() => markLoaded(client, segment.segmentId, sums));
      }
      await statement(() => client.query(isCurrent ? 'commit' : 'rollback'));
      isBroken = false;
      return isCurrent ? removed : undefined;
    } finally {
      client.release(isBroken);
    }
  }

  /** What is loaded now and was loaded since the run began, over all its deliveries. */
  async loadedSince(
    runId: string,
  ): Promise<{ readonly segments: number; readonly rows: bigint }> {
    const loaded = sql<{ segments: number; rows: bigint }>`
      select count(*)::int as segments, coalesce(sum(rows), 0)::bigint as rows from mirror.segments
       where status = 'current' and loaded_at >= (select started_at from mirror.runs where run_id = ${runId})`;
    return readRow(this.#warehouse.db, 'count what a run has loaded', loaded);
  }

  async quarantine(segmentId: bigint, reason: Omit<Problem, 'subject'>): Promise<void> {
    await quarantineSegment(
      this.#warehouse.db,
      sql`segment_id = ${segmentId} and loaded_at is null`,
      reason,
    );
  }
}

/** Errors of the writer are its own; those of statements get a retry class. */
async function statement<Result>(work: () => Promise<Result>): Promise<Result> {
  return mapDatabaseError('load segments', work);
}

async function isUpToDate(
  client: PoolClient,
  replacement: Replacement,
): Promise<boolean> {
  const [load, remove] = [replacement.load, replacement.remove].map((all) =>
    all.map((one) => one.segmentId),
  );
  const { rowCount } = await client.query(
    `select from mirror.segments where segment_id = any($1) and ${PENDING} or segment_id = any($2) and ${STALE}`,
    [load, remove],
  );
  return rowCount === replacement.load.length + replacement.remove.length;
}

async function removeRows(
  client: PoolClient,
  stale: readonly StaleSegment[],
): Promise<bigint> {
  if (stale.length === 0) return 0n;
  const ids = stale.map((segment) => segment.segmentId);
  const entries = 'delete from mirror.ledger_entries where segment_id = any($1)';
  const { rowCount } = await client.query(entries, [ids]);
  await client.query('delete from mirror.segment_months where segment_id = any($1)', [
    ids,
  ]);
  // loaded_at says whether the rows are here, whatever the status.
  await client.query(
    'update mirror.segments set loaded_at = null where segment_id = any($1)',
    [ids],
  );
  return BigInt(rowCount ?? 0);
}

/** @returns false where the segment was superseded while it was read */
async function markLoaded(
  client: PoolClient,
  segmentId: bigint,
  sums: LoadedSums,
): Promise<boolean> {
  const { rowCount } = await client.query(
    `update mirror.segments set loaded_at = clock_timestamp(), values_digest = $2, quarantine_reason = null,
        evidence = evidence - 'effectsContradicted'
          || case when $3 > 0 then jsonb_build_object('effectsContradicted', $3::bigint) else '{}' end
      where segment_id = $1 and status = 'current' and loaded_at is null`,
    [segmentId, sums.valuesDigest, sums.effectsContradicted],
  );
  const months = sums.months.map((month) => ({ ...month, rows: String(month.rows) }));
  await client.query(
    `insert into mirror.segment_months (segment_id, month, rows, values_digest)
      select $1, (month || '-01')::date, rows, "valuesDigest"
        from jsonb_to_recordset($2) as t (month text, rows bigint, "valuesDigest" text)`,
    [segmentId, JSON.stringify(months)],
  );
  return rowCount === 1;
}
