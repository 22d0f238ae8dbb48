/** What the warehouse says of itself when it is verified. */
import { type RawBuilder, sql } from 'kysely';
import { quarantineSegment } from '../../export/store/segment-rows.ts';
import type { LoadedSums } from '../copy-rows.ts';
import type { Problem } from '../ports.ts';
import { CANONICAL_SQL, copyOut } from '../../postgres/copy-out.ts';
import type { Warehouse } from '../../postgres/database.ts';
import { readIdentity } from '../../postgres/identity.ts';
import { readRow, readRows } from '../../postgres/transaction.ts';
import { readKnownObjects, readSegments, type SegmentRecord } from './segment-records.ts';

const ACTION = 'verify the warehouse';

/** Each must count nothing. They are asked one by one: each sees its own moment, whole transactions only. */
const STATEMENTS: readonly {
  readonly code: string;
  readonly message: string;
  readonly count: string;
  /** It reads every row. */
  readonly isFull?: boolean;
}[] = [
  {
    code: 'ROWS_WITHOUT_SEGMENT',
    isFull: true,
    message: 'ledger entries whose segment is not loaded',
    count: `select count(*) from mirror.ledger_entries e where not exists (
      select from mirror.segments s where s.segment_id = e.segment_id and s.loaded_at is not null)`,
  },
  {
    code: 'ENTRIES_OUT_OF_PLACE',
    isFull: true,
    message: 'ledger entries outside of their segment',
    count: `select count(*) from mirror.ledger_entries e join mirror.segments s using (segment_id)
      where e.party_id <> s.party_id or e.vega_time < s.from_time or e.vega_time >= s.to_time
        or e.asset_id <> s.asset_id`,
  },
  {
    code: 'SEGMENT_NOT_COVERED',
    message: 'current segments without coverage of the same range',
    count: `select count(*) from mirror.segments s where status = 'current' and not exists (
      select from mirror.coverage c where c.segment_id = s.segment_id and c.party_id = s.party_id
        and c.from_time <= s.from_time and c.to_time >= s.to_time)`,
  },
  {
    code: 'COVERAGE_WITHOUT_SEGMENT',
    message: 'covered ranges whose segment is not current',
    count: `select count(*) from mirror.coverage c join mirror.segments s using (segment_id)
      where s.status <> 'current'`,
  },
  {
    code: 'PLACE_OUTSIDE_GENERATION',
    message: 'rows of a list that have a place in no generation',
    count: `select count(*) from (
        select 'parties' as list, epoch, pos from mirror.parties where pos is not null
        union all select 'checkpoints', epoch, pos from mirror.checkpoints where pos is not null) placed
      where not exists (select from mirror.generations g
        where g.list = placed.list and g.epoch = placed.epoch and g.kind = 'current' and placed.pos <= g.last_pos)`,
  },
];

/** What is not there because nobody fetched it: told, not failed. */
export interface NeverFetched {
  readonly parties: number;
  readonly listsWithGaps: readonly string[];
  readonly openSegments: bigint;
  readonly exportsQuarantined: number;
  readonly segmentsNotLoaded: bigint;
}

export class VerifyStore {
  readonly #warehouse: Warehouse;

  constructor(warehouse: Warehouse) {
    this.#warehouse = warehouse;
  }

  /**
   * Current segments, in order: those published or loaded since their last proof, and of the others one in `parts`, the
   * oldest proofs first.
   */
  async segmentsToProve(parts: number): Promise<readonly bigint[]> {
    const rows = await this.#rows(sql<{ segment_id: bigint }>`
      with held as (
        select s.segment_id, p.proven_at, greatest(s.published_at, s.loaded_at) as changed_at
          from mirror.segments s left join mirror.segment_proofs p using (segment_id) where s.status = 'current'),
      turn as (
        select segment_id from held where proven_at >= changed_at order by proven_at, segment_id
        limit (select ceil(count(*) / ${parts}::numeric) from held where proven_at >= changed_at))
      select segment_id from held where proven_at is null or proven_at < changed_at
      union select segment_id from turn order by segment_id`);
    return rows.map((row) => row.segment_id);
  }

  /** Those of them that are still current, in the order of their ids. */
  async segmentsById(segmentIds: readonly bigint[]): Promise<readonly SegmentRecord[]> {
    const which = sql`status = 'current' and segment_id = any(${segmentIds}) order by segment_id`;
    return readSegments(this.#warehouse.db, ACTION, which);
  }

  /** Its object is lost, damaged or another: the next export of its party asks for its range again. */
  async distrust(segmentId: bigint, reason: Omit<Problem, 'subject'>): Promise<void> {
    await quarantineSegment(this.#warehouse.db, sql`segment_id = ${segmentId}`, reason);
  }

  /** Their objects and rows were read and agree; what was distrusted of them is believed again. */
  async noteProven(segmentIds: readonly bigint[]): Promise<void> {
    await this.#rows(sql`update mirror.segments set quarantine_reason = null
      where segment_id = any(${segmentIds}) and quarantine_reason is not null and loaded_at is not null`);
    await this.#rows(sql`insert into mirror.segment_proofs (segment_id)
      select segment_id from mirror.segments where segment_id = any(${segmentIds}) for share
      on conflict (segment_id) do update set proven_at = excluded.proven_at`);
  }

  /** When the oldest proof of a current segment was made, RFC 3339; null where one has never been proven. */
  async oldestProof(): Promise<string | null> {
    const [row] = await this.#rows(sql<{ oldest: string | null; unproven: bigint }>`
      select min(p.proven_at) as oldest, count(*) filter (where p.segment_id is null) as unproven
        from mirror.segments s left join mirror.segment_proofs p using (segment_id) where s.status = 'current'`);
    return row === undefined || row.unproven > 0n ? null : row.oldest;
  }

  async warehouseId(): Promise<string> {
    return (await readIdentity(this.#warehouse.db)).warehouseId;
  }

  knownObjects(objectKeys: readonly string[]): Promise<ReadonlySet<string>> {
    return readKnownObjects(this.#warehouse.db, objectKeys);
  }

  /** Rows in mirror.ledger_entries by segment; segments without rows are missing. */
  async countRows(segmentIds: readonly bigint[]): Promise<ReadonlyMap<bigint, bigint>> {
    const rows = await this.#rows(sql<{ segment_id: bigint; rows: bigint }>`
      select segment_id, count(*) as rows from mirror.ledger_entries
       where segment_id = any(${segmentIds}) group by segment_id`);
    return new Map(rows.map((row) => [row.segment_id, row.rows]));
  }

  async monthSums(segmentIds: readonly bigint[]): Promise<ReadonlyMap<bigint, LoadedSums['months']>> {
    const rows = await this.#rows(sql<LoadedSums['months'][number] & { readonly segmentId: bigint }>`
      select segment_id as "segmentId", to_char(month, 'YYYY-MM') as month, rows, values_digest as "valuesDigest"
        from mirror.segment_months where segment_id = any(${segmentIds}) order by month`);
    return Map.groupBy(rows, (row) => row.segmentId);
  }

  /** Loaded rows as COPY lines: segment id, extra (COPY-escaped JSON or \N), canonical values. */
  async *loadedLines(segmentIds: readonly bigint[], signal: AbortSignal): AsyncGenerator<Buffer> {
    const ids = segmentIds.join(',');
    const statement = `copy (select segment_id, extra, ${CANONICAL_SQL} from mirror.ledger_entries
      where segment_id = any('{${ids}}'::bigint[])) to stdout`;
    yield* copyOut(this.#warehouse.pool, statement, ACTION, signal);
  }

  /**
   * Statements about the tables that do not hold.
   * @param isFull also those that read every row
   */
  async inconsistencies(signal: AbortSignal, isFull: boolean): Promise<readonly Problem[]> {
    const found: Problem[] = [];
    for (const { code, message, count } of STATEMENTS.filter((one) => isFull || one.isFull !== true)) {
      signal.throwIfAborted();
      const [row] = await this.#rows(sql<{ count: bigint }>`${sql.raw(count)}`);
      if (row?.count !== 0n) found.push({ code, subject: 'mirror', message: `${message}: ${row?.count}` });
    }
    return found;
  }

  neverFetched(): Promise<NeverFetched> {
    return readRow(
      this.#warehouse.db,
      ACTION,
      sql<NeverFetched>`select
      (select count(*)::int from mirror.parties p where p.party_id <> 'network' and not exists (
        select from mirror.coverage c where c.party_id = p.party_id)) as parties,
      (select coalesce(array_agg(list order by list), '{}') from (
        select list from mirror.list_gaps
         where closed_at is null and epoch = (select max(epoch) from mirror.networks)
        union select list from mirror.generations
         where kind = 'current' and claimed_at is null and epoch = (select max(epoch) from mirror.networks)) gaps)
        as "listsWithGaps",
      (select count(*) from mirror.segments where status = 'current' and open) as "openSegments",
      (select count(*)::int from mirror.exports where quarantined_at is not null) as "exportsQuarantined",
      (select count(*) from mirror.segments where status = 'current' and loaded_at is null) as "segmentsNotLoaded"`,
    );
  }

  async #rows<Row>(statement: RawBuilder<Row>): Promise<readonly Row[]> {
    return readRows(this.#warehouse.db, ACTION, statement);
  }
}
