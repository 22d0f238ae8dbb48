/** What the warehouse says of itself when it is verified. */
import { type RawBuilder, sql } from 'kysely';
import { quarantineSegment } from '../../catalog/segment-rows.ts';
import { canonicalText, ENTRY_COLUMNS, extraFromJson } from '../../ledger/canonical.ts';
import { addDigests, hashText, RowDigest } from '../../ledger/digest.ts';
import type { ObjectStore } from '../../storage/object-store.ts';
import type { Problem } from '../ports.ts';
import { copyLines } from '../../postgres/copy-out.ts';
import type { Warehouse } from '../../postgres/database.ts';
import { readRow, readRows } from '../../postgres/transaction.ts';
import { readSegments, type SegmentRecord } from '../../catalog/segment-records.ts';
import { checkStore } from './rebuild.ts';

const ACTION = 'verify the warehouse';
/** The canonical values of a ledger entry. */
const CANONICAL_SQL = ENTRY_COLUMNS.map((column) =>
  column === 'vega_time'
    ? `to_char(vega_time at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`
    : `${column}::text`,
).join(', ');

/** Each must count nothing. They are asked one by one: each sees its own moment, whole transactions only. */
const STATEMENTS = [
  {
    code: 'ROWS_WITHOUT_SEGMENT',
    /** It reads every row. */
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
    isFull: false,
    message: 'current segments without coverage of the same range',
    count: `select count(*) from mirror.segments s where status = 'current' and not exists (
      select from mirror.coverage c where c.segment_id = s.segment_id and c.party_id = s.party_id
        and c.from_time <= s.from_time and c.to_time >= s.to_time)`,
  },
  {
    code: 'COVERAGE_WITHOUT_SEGMENT',
    isFull: false,
    message: 'covered ranges whose segment is not current',
    count: `select count(*) from mirror.coverage c join mirror.segments s using (segment_id)
      where s.status <> 'current'`,
  },
  {
    code: 'PLACE_OUTSIDE_GENERATION',
    isFull: false,
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

  /** What lies in the store without being recorded here. */
  async checkStore(
    objects: ObjectStore,
    signal: AbortSignal,
  ): ReturnType<typeof checkStore> {
    return checkStore({ objects, db: this.#warehouse.db }, signal);
  }

  /** How many rows of loaded segments there are, and what differs from the record. @param isDeep sums their values too */
  async checkRows(
    segments: readonly SegmentRecord[],
    isDeep: boolean,
    signal: AbortSignal,
  ): Promise<
    readonly {
      segment: SegmentRecord;
      rows: bigint;
      difference?: Omit<Problem, 'subject'>;
    }[]
  > {
    const ids = segments.map(({ segmentId }) => segmentId);
    const found = await this.#rows(sql<{
      id: bigint;
      rows: bigint;
      monthRows: bigint;
      digests: string[];
    }>`
      select id, coalesce(e.rows, 0) as rows, coalesce(m.rows, 0) as "monthRows", coalesce(m.digests, '{}') as digests
        from unnest(${ids}::bigint[]) as of (id)
        left join (select segment_id as id, count(*) as rows from mirror.ledger_entries
          where segment_id = any(${ids}) group by segment_id) e using (id)
        left join (select segment_id as id, sum(rows)::bigint as rows, array_agg(values_digest) as digests
          from mirror.segment_months where segment_id = any(${ids}) group by segment_id) m using (id)`);
    const counted = new Map(found.map((row) => [row.id, row]));
    const summed = isDeep ? await this.#sumRows(ids, signal) : undefined;
    return segments.map((segment) => {
      const { segmentId, valuesDigest } = segment;
      const { rows = 0n, monthRows, digests = [] } = counted.get(segmentId) ?? {};
      const values = summed && (summed.get(String(segmentId)) ?? new RowDigest()).hex();
      const differ = (code: string, message: string) => ({
        segment,
        rows,
        difference: { code, message },
      });
      const counts = `mirror.ledger_entries has ${rows} rows of it, its manifest ${segment.rows}`;
      if (rows !== segment.rows) return differ('ROWS_DIFFER', counts);
      const sums = `the rows in mirror.ledger_entries sum up to ${values}, loaded were ${valuesDigest}`;
      if (values !== undefined && values !== valuesDigest)
        return differ('VALUES_DIFFER', sums);
      // The additive digest makes the sum of all months the segment's.
      if (monthRows !== rows || addDigests(digests) !== valuesDigest)
        return differ('MONTHS_DIFFER', 'its sums by month do not add up to its own');
      return { segment, rows };
    });
  }

  /** Sums of loaded rows by segment id, recomputed outside of the database. */
  async #sumRows(segmentIds: readonly bigint[], signal: AbortSignal) {
    const sums = new Map<string, RowDigest>();
    const statement = `copy (select json_build_array(segment_id::text, extra::text, array[${CANONICAL_SQL}])
      from mirror.ledger_entries where segment_id = any('{${segmentIds.join(',')}}'::bigint[])) to stdout`;
    for await (const lines of copyLines(this.#warehouse.pool, statement, ACTION, signal))
      for (const line of lines) {
        // Of all that stands in JSON, COPY escapes only the backslash.
        const row: unknown = JSON.parse(line.replaceAll('\\\\', '\\'));
        const [segmentId, extra, values] = row as [
          string,
          string | null,
          (string | null)[],
        ];
        const sum = sums.get(segmentId) ?? new RowDigest();
        sums.set(segmentId, sum);
        const known = extra === null ? [] : extraFromJson(extra);
        const texts = values.map((value) => value ?? '');
        sum.add(hashText(canonicalText(texts, known)));
      }
    return sums;
  }

  /**
   * Statements about the tables that do not hold.
   * @param isFull also those that read every row
   */
  async inconsistencies(
    signal: AbortSignal,
    isFull: boolean,
  ): Promise<readonly Problem[]> {
    const found: Problem[] = [];
    for (const { code, message, count } of STATEMENTS.filter(
      (one) => isFull || !one.isFull,
    )) {
      signal.throwIfAborted();
      const [row] = await this.#rows(sql<{ count: bigint }>`${sql.raw(count)}`);
      if (row?.count !== 0n)
        found.push({ code, subject: 'mirror', message: `${message}: ${row?.count}` });
    }
    return found;
  }

  neverFetched(): Promise<NeverFetched> {
    const told = sql<NeverFetched>`select
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
      (select count(*) from mirror.segments where status = 'current' and loaded_at is null) as "segmentsNotLoaded"`;
    return readRow(this.#warehouse.db, ACTION, told);
  }

  async #rows<Row>(statement: RawBuilder<Row>): Promise<readonly Row[]> {
    return readRows(this.#warehouse.db, ACTION, statement);
  }
}
