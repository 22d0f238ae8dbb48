/**
 * The database side of a load: the pending segments, and the transaction that replaces
 * segments.
 */
import { sql } from 'kysely';
import { quarantineSegment } from '../../catalog/segment-rows.ts';
import {
  readSegments,
  type SegmentRecord,
} from '../../catalog/segment-records.ts';
import { takeLock } from '../../postgres/advisory-lock.ts';
import {
  WAITS_FOR_THE_STORE,
  type Warehouse,
} from '../../postgres/database.ts';
import { builder } from '../../postgres/builder.ts';
import { execute, readRow, readRows } from '../../postgres/run-statement.ts';
import { openSession, type Session } from '../../postgres/session.ts';
import { statement } from '../../postgres/statement.ts';
import type { LoadedSums } from '../copy-rows.ts';
import type { Replacement, StaleSegment } from '../load-plan.ts';
import type { Reason } from '../ports.ts';
import { openCopySink, type RowSink } from './copy-sink.ts';

const ACTION = 'load segments';
/** Timeout of one statement. The COPY of an entire segment is one statement. */
const STATEMENT_TIMEOUT_MS = 3_600_000;

const PENDING = sql`status = 'current' and loaded_at is null`;
const STALE = sql`status = 'superseded' and loaded_at is not null`;

/** Sends the rows of a segment to the sink and returns their sums. */
export type WriteSegment = (
  segment: SegmentRecord,
  sink: RowSink,
) => Promise<LoadedSums>;

/** The segments that a load has to add and remove for one party. */
export interface PartyWork {
  /** The current segments that are not loaded, including those that were quarantined. */
  readonly pending: readonly SegmentRecord[];
  /** The superseded segments whose rows are still in the warehouse. */
  readonly stale: readonly StaleSegment[];
}

/** Number of segments and rows that a run has loaded. */
export interface LoadedCounts {
  readonly segments: number;
  readonly rows: bigint;
}

export class LoadStore {
  readonly #warehouse: Warehouse;

  constructor(warehouse: Warehouse) {
    this.#warehouse = warehouse;
  }

  /**
   * Returns the next parties after `after`, ordered by id, that have rows to load or
   * remove.
   */
  async partiesToLoad(
    after: string | undefined,
    rowsMax: number,
  ): Promise<readonly string[]> {
    const start = after ?? '';
    const parties = statement({ partyId: 'text' })`
      (select distinct party_id as "partyId" from mirror.segments
        where ${PENDING} and party_id > ${start} order by party_id limit ${rowsMax})
      union
      (select distinct party_id from mirror.segments
        where ${STALE} and party_id > ${start} order by party_id limit ${rowsMax})
      order by "partyId" limit ${rowsMax}`;
    const rows = await readRows(
      this.#warehouse.db,
      'list what is to be loaded',
      parties,
    );
    return rows.map(({ partyId }) => partyId);
  }

  async toLoad(partyId: string): Promise<PartyWork> {
    const which = sql`party_id = ${partyId} and (${PENDING} or ${STALE}) order by from_time`;
    const action = 'read what is to be loaded';
    const rows = await readSegments(this.#warehouse.db, action, which);
    return {
      pending: rows.filter(({ isLoaded }) => !isLoaded),
      stale: rows.filter(({ isLoaded }) => isLoaded),
    };
  }

  /**
   * Carries out a replacement in one transaction: removes the stale rows, writes the new
   * ones, and records their sums and `loaded_at`. `write` is called once per segment.
   * @returns the number of rows removed; undefined if the manifest table has changed
   *   since the plan was made, in which case nothing is stored
   */
  async replace(
    partyId: string,
    replacement: Replacement,
    write: WriteSegment,
    signal: AbortSignal,
  ): Promise<bigint | undefined> {
    const { pool } = this.#warehouse;
    const session = await openSession(pool, ACTION);
    // If the transaction fails, a COPY may still be running. Closing the connection rolls
    // it back.
    let isBroken = true;
    try {
      await execute(session, ACTION, statement()`begin`);
      const limit = statement({ limit: 'text' })`
        select set_config('statement_timeout', ${String(STATEMENT_TIMEOUT_MS)}, true)
          as "limit"`;
      await execute(session, ACTION, limit);
      await execute(session, ACTION, WAITS_FOR_THE_STORE);
      // Another loader of the same party holds the lock until its segment is loaded.
      await takeLock(session, `mirror.load/${partyId}`, 'transaction', signal);
      let isCurrent = await isUpToDate(session, replacement);
      let removedRows = 0n;
      if (isCurrent) {
        removedRows = await removeRows(session, replacement.remove);
        for (const segment of replacement.load) {
          const sink = openCopySink(pool, session, signal);
          const sums = await write(segment, sink);
          await sink.finish();
          if (!isCurrent) continue;
          isCurrent = await markLoaded(session, segment.segmentId, sums);
        }
      }
      const end = isCurrent ? statement()`commit` : statement()`rollback`;
      await execute(session, ACTION, end);
      isBroken = false;
      return isCurrent ? removedRows : undefined;
    } finally {
      session.release(isBroken);
    }
  }

  /**
   * Counts the segments that were loaded since the run began, across all deliveries of
   * its job, and that are still current.
   */
  async loadedSince(runId: string): Promise<LoadedCounts> {
    const loaded = statement({ segments: 'int', rows: 'bigint' })`
      select count(*)::int as segments, coalesce(sum(rows), 0)::bigint as rows
      from mirror.segments
      where status = 'current'
        and loaded_at >= (select started_at from mirror.runs where run_id = ${runId})`;
    return readRow(this.#warehouse.db, 'count what a run has loaded', loaded);
  }

  async quarantine(segmentId: bigint, reason: Reason): Promise<void> {
    const which = sql`segment_id = ${segmentId} and loaded_at is null`;
    await quarantineSegment(this.#warehouse.db, which, reason);
  }
}

async function isUpToDate(
  session: Session,
  { load, remove }: Replacement,
): Promise<boolean> {
  const found = statement({ count: 'int' })`
    select count(*)::int as count from mirror.segments
    where segment_id = any(${idsOf(load)}::bigint[]) and ${PENDING}
      or segment_id = any(${idsOf(remove)}::bigint[]) and ${STALE}`;
  const { count } = await readRow(session, ACTION, found);
  return count === load.length + remove.length;
}

function idsOf(segments: readonly StaleSegment[]): readonly bigint[] {
  return segments.map(({ segmentId }) => segmentId);
}

async function removeRows(
  session: Session,
  stale: readonly StaleSegment[],
): Promise<bigint> {
  if (stale.length === 0) return 0n;
  const isStale = sql<boolean>`segment_id = any(${idsOf(stale)}::bigint[])`;
  const entries = builder.deleteFrom('mirror.ledger_entries').where(isStale);
  const removedRows = await execute(session, ACTION, entries);
  const months = builder.deleteFrom('mirror.segment_months').where(isStale);
  await execute(session, ACTION, months);
  // `loaded_at` records whether the rows are in the warehouse, regardless of the status.
  const segments = builder
    .updateTable('mirror.segments')
    .set({ loaded_at: null })
    .where(isStale);
  await execute(session, ACTION, segments);
  return removedRows;
}

/**
 * Marks a segment as loaded and records its sums.
 * @returns false if the segment was superseded while it was being read
 */
async function markLoaded(
  session: Session,
  segmentId: bigint,
  sums: LoadedSums,
): Promise<boolean> {
  const { valuesDigest, effectsContradicted } = sums;
  const mark = statement()`
    update mirror.segments set loaded_at = clock_timestamp(), values_digest = ${valuesDigest},
      quarantine_reason = null,
      evidence = evidence - 'effectsContradicted'
        || case when ${effectsContradicted}::bigint > 0
          then jsonb_build_object('effectsContradicted', ${effectsContradicted}::bigint)
          else '{}' end
    where segment_id = ${segmentId} and ${PENDING}`;
  const marked = await execute(session, ACTION, mark);
  const months = sums.months.map((month) => ({
    ...month,
    rows: String(month.rows),
  }));
  const insert = statement()`
    insert into mirror.segment_months (segment_id, month, rows, values_digest)
    select ${segmentId}::bigint, (month || '-01')::date, rows, "valuesDigest"
    from jsonb_to_recordset(${JSON.stringify(months)}::jsonb)
      as given(month text, rows bigint, "valuesDigest" text)`;
  await execute(session, ACTION, insert);
  return marked === 1n;
}
