/** The warehouse as a build of the lake reads it: everything of one moment. */
import type { Pool, PoolClient } from 'pg';
import { LINE_COLUMNS } from '../../ledger/canonical.ts';
import { copyOut } from '../../postgres/copy-out.ts';
import { mapDatabaseError } from '../../postgres/transaction.ts';
import type { LakeTable } from '../tables/columns.ts';

export const ACTION = 'read the warehouse for the lake';

/** Rows of one loaded segment in one month. */
export interface SegmentMonth {
  readonly segmentId: bigint;
  /** `2023-05` */
  readonly month: string;
  readonly rows: bigint;
  /** The sum of their values. */
  readonly valuesDigest: string;
  /** Whether the segment is open: it will be replaced soon. */
  readonly isOpen: boolean;
}

/** A table that is written whole when it has changed. */
export type WholeTable = Extract<LakeTable, 'parties' | 'checkpoints' | 'coverage'>;

export type WarehouseReader = ReturnType<typeof readerOn>;

/** Between two reads the lake's files are written and sent; the transaction holds nothing but its moment. */
const IDLE_BETWEEN_READS_MS = 3_600_000;

const SEGMENT_MONTHS = `select segment_id as "segmentId", to_char(month, 'YYYY-MM') as month, m.rows,
    m.values_digest as "valuesDigest", s.open as "isOpen"
  from mirror.segment_months m join mirror.segments s using (segment_id)
 order by m.month, segment_id`;

const IDENTITY = `select warehouse_id as "mirrorId",
    (select case when is_called then last_value else 0 end from mirror.lake_builds)::int as "lastBuild"
  from mirror.identity`;

const utc = (column: string): string => `${column} at time zone 'UTC'`;

/** All that the lake asks of the lists: the columns that analysts may rely on. */
const WHOLE: Readonly<Record<WholeTable, string>> = {
  parties: `select party_id, ${utc('first_seen_at')}, extra from mirror.parties order by party_id`,
  checkpoints: `select epoch, at_block, hash, block_hash, ${utc('first_seen_at')}, extra
    from mirror.checkpoints order by epoch, at_block, hash, block_hash`,
  coverage: `select party_id, asset_id, ${utc('lower(range)')}, ${utc('upper(range)')}, both_sides from (
      select party_id, asset_id, both_sides, unnest(range_agg(tstzrange(from_time, to_time))) as range
        from (select *, 'effect' = any (columns) as both_sides from mirror.segments where loaded_at is not null) loaded
       group by party_id, asset_id, both_sides) covered
    order by party_id, asset_id, range`,
};

/** Begins a transaction that only reads, and ends with the connection or a commit. */
export async function readAtOnce(client: PoolClient): Promise<WarehouseReader> {
  const [identity] = await mapDatabaseError(ACTION, async () => {
    await client.query('begin isolation level repeatable read, read only');
    await client.query(`set local idle_in_transaction_session_timeout = ${IDLE_BETWEEN_READS_MS}`);
    return (await client.query<Identity>(IDENTITY)).rows;
  });
  return readerOn(client, identity ?? { mirrorId: '', lastBuild: 0 });
}

interface Identity {
  readonly mirrorId: string;
  /** The number of the last build that was begun; 0 before the first. */
  readonly lastBuild: number;
}

function readerOn(client: PoolClient, identity: Identity) {
  return {
    ...identity,
    /** In the order of months and segments. */
    segmentMonths: () => readSegmentMonths(client),
    /** Rows of a month that came with these segments: LINE_COLUMNS, as CSV like `whole`. */
    rows: (month: string, segmentIds: readonly bigint[], signal: AbortSignal): AsyncIterable<Buffer> =>
      copyOut(client, rowsStatement(month, segmentIds), ACTION, signal),
    /** A whole table as CSV without header (quotes doubled, NULL is empty), in a stable order, in chunks cut anywhere. */
    whole: (table: WholeTable, signal: AbortSignal): AsyncIterable<Buffer> =>
      copyOut(client, `copy (${WHOLE[table]}) to stdout (format csv)`, ACTION, signal),
  };
}

export async function readSegmentMonths(on: Pool | PoolClient): Promise<readonly SegmentMonth[]> {
  return mapDatabaseError(ACTION, async () => (await on.query<SegmentMonth>(SEGMENT_MONTHS)).rows);
}

function rowsStatement(month: string, segmentIds: readonly bigint[]): string {
  const start = `timestamptz '${month}-01 00:00:00+00'`;
  const end = `(${start} at time zone 'UTC' + interval '1 month') at time zone 'UTC'`;
  const columns = LINE_COLUMNS.map((name) => (name === 'vega_time' ? utc(name) : name)).join(', ');
  return `copy (select ${columns} from mirror.ledger_entries
    where vega_time >= ${start} and vega_time < ${end}
      and segment_id = any ('{${segmentIds.join(',')}}'::bigint[])) to stdout (format csv)`;
}
