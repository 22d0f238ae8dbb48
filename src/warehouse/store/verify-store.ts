/**
 * The database side of a verification: which segments to prove, the contents of the
 * tables, and the recorded proofs.
 */
import { sql } from 'kysely';
import { readRowHashes } from '../../catalog/row-hashes.ts';
import { quarantineSegment } from '../../catalog/segment-rows.ts';
import {
  readSegments,
  type SegmentRecord,
} from '../../catalog/segment-records.ts';
import { addDigests, RowDigest } from '../../ledger/digest.ts';
import type { Warehouse } from '../../postgres/database.ts';
import { execute, readRow, readRows } from '../../postgres/run-statement.ts';
import { type Statement, statement } from '../../postgres/statement.ts';
import type { ObjectStore } from '../../storage/object-store.ts';
import type { Problem, Reason } from '../ports.ts';
import { checkStore, type StoreFindings } from './check-store.ts';

const ACTION = 'verify the warehouse';
/** An invariant of the tables. It is violated if its query counts any rows. */
interface Invariant {
  readonly code: string;
  /** Whether the query reads every row of the ledger entries. */
  readonly isFull: boolean;
  readonly message: string;
  readonly count: Statement<{ readonly count: bigint }>;
}

/**
 * The invariants are checked one after another. Each query has its own snapshot, which
 * shows only committed transactions.
 */
const INVARIANTS: readonly Invariant[] = [
  {
    code: 'ROWS_WITHOUT_SEGMENT',
    isFull: true,
    message: 'ledger entries whose segment is not loaded',
    count: statement({ count: 'bigint' })`
      select count(*) as count from mirror.ledger_entries e
      where not exists (
        select from mirror.segments s
        where s.segment_id = e.segment_id and s.loaded_at is not null)`,
  },
  {
    code: 'ENTRIES_OUT_OF_PLACE',
    isFull: true,
    message: 'ledger entries outside their segment',
    count: statement({ count: 'bigint' })`
      select count(*) as count
      from mirror.ledger_entries e join mirror.segments s using (segment_id)
      where e.party_id <> s.party_id or e.vega_time < s.from_time
        or e.vega_time >= s.to_time or e.asset_id <> s.asset_id`,
  },
  {
    code: 'SEGMENT_NOT_COVERED',
    isFull: false,
    message: 'current segments without coverage of the same range',
    count: statement({ count: 'bigint' })`
      select count(*) as count from mirror.segments s
      where status = 'current' and not exists (
        select from mirror.coverage c
        where c.segment_id = s.segment_id and c.party_id = s.party_id
          and c.from_time <= s.from_time and c.to_time >= s.to_time)`,
  },
  {
    code: 'COVERAGE_WITHOUT_SEGMENT',
    isFull: false,
    message: 'covered ranges whose segment is not current',
    count: statement({ count: 'bigint' })`
      select count(*) as count
      from mirror.coverage c join mirror.segments s using (segment_id)
      where s.status <> 'current'`,
  },
  {
    code: 'PLACE_OUTSIDE_GENERATION',
    isFull: false,
    message: 'rows of a list that are in no generation',
    count: statement({ count: 'bigint' })`
      select count(*) as count from (
        select 'parties' as list, epoch, pos from mirror.parties where pos is not null
        union all
        select 'checkpoints', epoch, pos from mirror.checkpoints where pos is not null) placed
      where not exists (
        select from mirror.generations g
        where g.list = placed.list and g.epoch = placed.epoch and g.kind = 'current'
          and placed.pos <= g.last_pos)`,
  },
];

/** Data that was never fetched. `verify` lists it, but does not fail because of it. */
export interface NeverFetched {
  /** Number of listed parties for which no range is known. */
  readonly parties: number;
  readonly listsWithGaps: readonly string[];
  readonly openSegments: bigint;
  readonly exportsQuarantined: number;
  readonly segmentsNotLoaded: bigint;
}

/** The warehouse's rows for a loaded segment. */
export interface CheckedRows {
  readonly segment: SegmentRecord;
  readonly rows: bigint;
  /** How the rows differ from the record; undefined if they agree. */
  readonly difference: Reason | undefined;
}

export class VerifyStore {
  readonly #warehouse: Warehouse;

  constructor(warehouse: Warehouse) {
    this.#warehouse = warehouse;
  }

  /**
   * Returns the current segments that have been published or loaded since they were last
   * proven, and one in `parts` of the others, namely those that were proven longest ago.
   * The result is ordered by id.
   */
  async segmentsToProve(parts: number): Promise<readonly bigint[]> {
    const segments = statement({ segmentId: 'bigint' })`
      with current_segments as (
        select s.segment_id, p.proven_at, greatest(s.published_at, s.loaded_at) as changed_at
        from mirror.segments s left join mirror.segment_proofs p using (segment_id)
        where s.status = 'current'),
      turn as (
        select segment_id from current_segments where proven_at >= changed_at
        order by proven_at, segment_id
        limit (
          select ceil(count(*) / ${parts}::numeric) from current_segments
          where proven_at >= changed_at))
      select segment_id as "segmentId" from current_segments
      where proven_at is null or proven_at < changed_at
      union select segment_id from turn order by "segmentId"`;
    const rows = await readRows(this.#warehouse.db, ACTION, segments);
    return rows.map(({ segmentId }) => segmentId);
  }

  /** Returns those of the given segments that are still current, ordered by id. */
  async segmentsById(
    segmentIds: readonly bigint[],
  ): Promise<readonly SegmentRecord[]> {
    const ids = [...segmentIds];
    const which = sql`status = 'current' and segment_id = any(${ids}) order by segment_id`;
    return readSegments(this.#warehouse.db, ACTION, which);
  }

  /**
   * Quarantines a segment whose object is lost, damaged or different. The next export
   * of its party requests the range again.
   */
  async distrust(segmentId: bigint, reason: Reason): Promise<void> {
    const which = sql`segment_id = ${segmentId}`;
    await quarantineSegment(this.#warehouse.db, which, reason);
  }

  /**
   * Records that the objects and rows of these segments were read and match. Loaded
   * segments that were quarantined are trusted again.
   */
  async noteProven(segmentIds: readonly bigint[]): Promise<void> {
    const ids = [...segmentIds];
    const { db } = this.#warehouse;
    const trust = statement()`
      update mirror.segments set quarantine_reason = null
      where segment_id = any(${ids}) and quarantine_reason is not null
        and loaded_at is not null`;
    await execute(db, ACTION, trust);
    const prove = statement()`
      insert into mirror.segment_proofs (segment_id)
      select segment_id from mirror.segments where segment_id = any(${ids}) for share
      on conflict (segment_id) do update set proven_at = excluded.proven_at`;
    await execute(db, ACTION, prove);
  }

  /**
   * Returns when the oldest proof of a current segment was made, as RFC 3339; null if a
   * segment has never been proven.
   */
  async oldestProof(): Promise<string | null> {
    const proofs = statement({ oldest: 'instant?', unproven: 'bigint' })`
      select min(p.proven_at) as oldest,
        count(*) filter (where p.segment_id is null) as unproven
      from mirror.segments s left join mirror.segment_proofs p using (segment_id)
      where s.status = 'current'`;
    const { oldest, unproven } = await readRow(
      this.#warehouse.db,
      ACTION,
      proofs,
    );
    return unproven > 0n ? null : oldest;
  }

  /** Reports the objects in the store that the database does not record. */
  async checkStore(
    objects: ObjectStore,
    signal: AbortSignal,
  ): Promise<StoreFindings> {
    return checkStore({ objects, db: this.#warehouse.db }, signal);
  }

  /**
   * Counts the rows of loaded segments and compares them with the record.
   * @param isDeep whether to also sum the row values
   */
  async checkRows(
    segments: readonly SegmentRecord[],
    isDeep: boolean,
    signal: AbortSignal,
  ): Promise<readonly CheckedRows[]> {
    const ids = segments.map(({ segmentId }) => segmentId);
    const counts = await this.#countRows(ids);
    const sums = isDeep ? await this.#sumRows(ids, signal) : undefined;
    return segments.map((segment) => {
      const { segmentId } = segment;
      const counted = counts.get(segmentId) ?? NO_ROWS;
      const valuesDigest =
        sums === undefined
          ? undefined
          : (sums.get(String(segmentId)) ?? new RowDigest()).hex();
      const difference = findDifference(segment, counted, valuesDigest);
      return { segment, rows: counted.rows, difference };
    });
  }

  async #countRows(
    segmentIds: readonly bigint[],
  ): Promise<ReadonlyMap<bigint, RowCounts>> {
    const ids = [...segmentIds];
    const counted = statement({
      segmentId: 'bigint',
      rows: 'bigint',
      monthRows: 'bigint',
      digests: 'text[]',
    })`
      select id as "segmentId", coalesce(e.rows, 0) as rows,
        coalesce(m.rows, 0) as "monthRows", coalesce(m.digests, '{}') as digests
      from unnest(${ids}::bigint[]) as given (id)
      left join (
        select segment_id as id, count(*) as rows from mirror.ledger_entries
        where segment_id = any(${ids}) group by segment_id) e using (id)
      left join (
        select segment_id as id, sum(rows)::bigint as rows, array_agg(values_digest) as digests
        from mirror.segment_months
        where segment_id = any(${ids}) group by segment_id) m using (id)`;
    const rows = await readRows(this.#warehouse.db, ACTION, counted);
    return new Map(rows.map((row) => [row.segmentId, row]));
  }

  /** Returns the sums of loaded rows by segment id, computed outside the database. */
  async #sumRows(
    segmentIds: readonly bigint[],
    signal: AbortSignal,
  ): Promise<ReadonlyMap<string, RowDigest>> {
    const sums = new Map<string, RowDigest>();
    const reading = { segmentIds, action: ACTION, signal };
    for await (const rows of readRowHashes(this.#warehouse, reading)) {
      for (const { segmentId, hash } of rows) {
        const sum = sums.get(segmentId) ?? new RowDigest();
        sums.set(segmentId, sum);
        sum.add(hash);
      }
    }
    return sums;
  }

  /**
   * Returns the table invariants that are violated.
   * @param isFull whether to also check the invariants that read every row
   */
  async inconsistencies(
    signal: AbortSignal,
    isFull: boolean,
  ): Promise<readonly Problem[]> {
    const problems: Problem[] = [];
    for (const invariant of INVARIANTS) {
      if (invariant.isFull && !isFull) continue;
      signal.throwIfAborted();
      const { count } = await readRow(
        this.#warehouse.db,
        ACTION,
        invariant.count,
      );
      if (count === 0n) continue;
      const message = `${invariant.message}: ${count}`;
      problems.push({ code: invariant.code, subject: 'mirror', message });
    }
    return problems;
  }

  neverFetched(): Promise<NeverFetched> {
    const missing = statement({
      parties: 'int',
      listsWithGaps: 'text[]',
      openSegments: 'bigint',
      exportsQuarantined: 'int',
      segmentsNotLoaded: 'bigint',
    })`
      select
        (select count(*)::int from mirror.parties p
          where p.party_id <> 'network' and not exists (
            select from mirror.coverage c where c.party_id = p.party_id)) as parties,
        (select coalesce(array_agg(list order by list), '{}') from (
          select list from mirror.list_gaps
          where closed_at is null and epoch = (select max(epoch) from mirror.networks)
          union
          select list from mirror.generations
          where kind = 'current' and confirmed_at is null
            and epoch = (select max(epoch) from mirror.networks)) gaps) as "listsWithGaps",
        (select count(*) from mirror.segments
          where status = 'current' and open) as "openSegments",
        (select count(*)::int from mirror.exports
          where quarantined_at is not null) as "exportsQuarantined",
        (select count(*) from mirror.segments
          where status = 'current' and loaded_at is null) as "segmentsNotLoaded"`;
    return readRow(this.#warehouse.db, ACTION, missing);
  }
}

/** Counts and sums of a segment in the tables. */
interface RowCounts {
  /** Rows in mirror.ledger_entries. */
  readonly rows: bigint;
  /** Rows according to mirror.segment_months. */
  readonly monthRows: bigint;
  /** The sums of the segment's months. */
  readonly digests: readonly string[];
}

const NO_ROWS: RowCounts = { rows: 0n, monthRows: 0n, digests: [] };

/**
 * Compares a segment's rows with its record; undefined if they agree.
 * @param valuesDigest the sum of the rows' values; undefined if they were not summed
 */
function findDifference(
  segment: SegmentRecord,
  { rows, monthRows, digests }: RowCounts,
  valuesDigest: string | undefined,
): Reason | undefined {
  if (rows !== segment.rows) {
    const message = `mirror.ledger_entries has ${rows} rows of it, its manifest ${segment.rows}`;
    return { code: 'ROWS_DIFFER', message };
  }
  if (valuesDigest !== undefined && valuesDigest !== segment.valuesDigest) {
    const message = `the rows in mirror.ledger_entries sum to ${valuesDigest}, but those loaded summed to ${segment.valuesDigest}`;
    return { code: 'VALUES_DIFFER', message };
  }
  // The digest is additive, so the sums of the months add up to the segment's.
  if (monthRows !== rows || addDigests(digests) !== segment.valuesDigest) {
    const message = 'its sums by month do not add up to its own';
    return { code: 'MONTHS_DIFFER', message };
  }
  return undefined;
}
