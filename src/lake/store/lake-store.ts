/**
 * What the database records of the lake, and the lock under which one process builds it. While the lock is held, the
 * warehouse is read as of one instant.
 */
import { sql } from 'kysely';
import type { Pool, PoolClient, QueryResultRow } from 'pg';
import { LINE_COLUMNS } from '../../ledger/canonical.ts';
import { takeLock } from '../../postgres/advisory-lock.ts';
import { copyOut } from '../../postgres/copy-out.ts';
import type { Database } from '../../postgres/database.ts';
import { mapDatabaseError } from '../../postgres/database-error.ts';
import { readRow } from '../../postgres/transaction.ts';
import type { LakeTable } from '../tables/columns.ts';

/** A table as the last build left it. */
export interface RecordedTable {
  readonly table: LakeTable;
  /** The id in the table's Delta metadata. */
  readonly tableId: string;
  readonly version: number;
  /** Number of the last build that committed to the table. */
  readonly build: number;
}

/** The newest commit of a table whose commits the database decides. */
export interface DecidedCommit {
  readonly table: LakeTable;
  readonly version: number;
  /** Null once the commit is known to lie in the store. */
  readonly content: Buffer | null;
}

/** The public methods of the store, for which tests have a double. */
export type LakeRepository = Pick<LakeStore, keyof LakeStore>;

export class LakeStore {
  readonly #pool: Pool;

  constructor(pool: Pool) {
    this.#pool = pool;
  }

  /**
   * Runs `work` while no other process builds the lake or removes anything from it. All reads of the warehouse see one
   * instant.
   */
  async withLakeLock<Result>(
    work: (reader: WarehouseReader) => Promise<Result>,
    signal: AbortSignal,
  ): Promise<Result> {
    const client = await mapDatabaseError(ACTION, () => this.#pool.connect());
    try {
      await takeLock(client, 'mirror.lake', 'session', signal);
      const result = await work(await openSnapshotReader(client));
      await mapDatabaseError(ACTION, () => client.query('commit'));
      return result;
    } finally {
      // The connection is closed, because its lock and its settings end with it, whatever happened.
      client.release(true);
    }
  }

  /** The loaded segments, in the order of months and segments. It does not wait for a build. */
  async segmentMonths(): Promise<readonly SegmentMonth[]> {
    return readSegmentMonths(this.#pool);
  }

  /** Draws the number of a new build, which is higher than all before. */
  async beginBuild(atLeast: number): Promise<number> {
    const [row] = await this.#query<{ build: number }>(
      `select setval('mirror.lake_builds', greatest(nextval('mirror.lake_builds'), $1))::int as build`,
      [atLeast],
    );
    return Number(row?.build);
  }

  async record(tables: readonly RecordedTable[]): Promise<void> {
    await this.#query(
      `insert into mirror.lake_tables (name, table_id, version, build)
        select "table", "tableId", version, build
          from jsonb_to_recordset($1) as t ("table" text, "tableId" uuid, version bigint, build bigint)
        on conflict (name) do update set table_id = excluded.table_id, version = excluded.version,
          build = excluded.build, built_at = clock_timestamp()`,
      [JSON.stringify(tables)],
    );
  }

  async recorded(): Promise<readonly RecordedTable[]> {
    return this.#query(
      'select name as "table", table_id as "tableId", version::int, build::int from mirror.lake_tables',
    );
  }

  /**
   * Chooses the files that a nightly run reads: those that were never proven, and one in `parts` of the others, oldest
   * proofs first.
   */
  async filesToProve(
    keys: readonly string[],
    parts: number,
  ): Promise<ReadonlySet<string>> {
    const rows = await this.#query<{ key: string }>(
      `with held as (
         select key, proven_at from unnest($1::text[]) as named (key) left join mirror.lake_proofs using (key)),
       turn as (
         select key from held where proven_at is not null order by proven_at, key
          limit (select ceil(count(proven_at) / $2::numeric) from held))
       select key from held where proven_at is null union select key from turn`,
      [keys, parts],
    );
    return new Set(rows.map(({ key }) => key));
  }

  /** Records that these files were read and are what their log says. Forgets files that are not in `live`. */
  async recordProofs(keys: readonly string[], live: readonly string[]): Promise<void> {
    await this.#query(
      `with gone as (delete from mirror.lake_proofs where not key = any ($2::text[]))
       insert into mirror.lake_proofs (key) select unnest($1::text[])
         on conflict (key) do update set proven_at = excluded.proven_at`,
      [keys, live],
    );
  }

  /** The newest commit of each table whose commits the database decides. */
  async decidedCommits(store: string): Promise<readonly DecidedCommit[]> {
    return this.#query(
      'select name as "table", version::int, content from mirror.lake_commits where store = $1',
      [store],
    );
  }

  /**
   * Decides the content of a table's next version, for a store that would let two writers put one.
   * @param after the version that was decided before; undefined if there was none
   * @returns false if another writer has decided a version since
   */
  async decideCommit(
    store: string,
    commit: DecidedCommit,
    after: number | undefined,
  ): Promise<boolean> {
    const { table, version, content } = commit;
    const decided = await this.#query(
      `insert into mirror.lake_commits as known (store, name, version, content) values ($1, $2, $3, $4)
        on conflict (store, name) do update set version = excluded.version, content = excluded.content
          where known.version = $5
        returning version`,
      [store, table, version, content, after],
    );
    return decided.length === 1;
  }

  /** Forgets the content of a commit that lies in the store now. */
  async forgetContent(store: string, { table, version }: DecidedCommit): Promise<void> {
    await this.#query(
      'update mirror.lake_commits set content = null where store = $1 and name = $2 and version = $3',
      [store, table, version],
    );
  }

  async #query<Row extends QueryResultRow>(
    statement: string,
    values: unknown[] = [],
  ): Promise<Row[]> {
    const action = 'record what the lake holds';
    return mapDatabaseError(
      action,
      async () => (await this.#pool.query<Row>(statement, values)).rows,
    );
  }
}

/** Whether a build found that this store would let two writers put the same commit. */
export async function isLakeDecidedHere(db: Database, store: string): Promise<boolean> {
  const asked = sql<{ is: boolean }>`
    select exists (select from mirror.lake_commits where store = ${store}) as is`;
  return (await readRow(db, 'ask who decides the commits of the lake', asked)).is;
}

const ACTION = 'read the warehouse for the lake';

/** The rows of one loaded segment in one month. */
export interface SegmentMonth {
  readonly segmentId: bigint;
  /** `2023-05` */
  readonly month: string;
  readonly rows: bigint;
  /** Additive digest of the rows' canonical values; 64 hex digits. */
  readonly valuesDigest: string;
  /** Whether the segment is open, and will be replaced soon. */
  readonly isOpen: boolean;
}

/** A table that consists of one file, which is written again when its rows change. */
export type WholeTable = Extract<LakeTable, 'parties' | 'checkpoints' | 'coverage'>;

/** Reads the warehouse as of one instant. */
export interface WarehouseReader {
  readonly mirrorId: string;
  /** Number of the last build that began; 0 before the first. */
  readonly lastBuild: number;
  /** The loaded segments, in the order of months and segments. */
  segmentMonths(): Promise<readonly SegmentMonth[]>;
  /** The rows of these segments in one month: LINE_COLUMNS, as CSV like `whole`. */
  rows(
    month: string,
    segmentIds: readonly bigint[],
    signal: AbortSignal,
  ): AsyncIterable<Buffer>;
  /**
   * A whole table as CSV without header, in a stable order: quotes are doubled, NULL is empty. The chunks are cut
   * anywhere.
   */
  whole(table: WholeTable, signal: AbortSignal): AsyncIterable<Buffer>;
}

/** The transaction is idle while the lake's files are written and sent. It holds no lock but its snapshot. */
const IDLE_BETWEEN_READS_MS = 3_600_000;

const SEGMENT_MONTHS = `select segment_id as "segmentId", to_char(month, 'YYYY-MM') as month, m.rows,
    m.values_digest as "valuesDigest", s.open as "isOpen"
  from mirror.segment_months m join mirror.segments s using (segment_id)
 order by m.month, segment_id`;

const IDENTITY = `select warehouse_id as "mirrorId",
    (select case when is_called then last_value else 0 end from mirror.lake_builds)::int as "lastBuild"
  from mirror.identity`;

const utc = (column: string): string => `${column} at time zone 'UTC'`;

/** The statements of the whole tables. They name only columns that analysts may rely on. */
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

/** Begins a read-only transaction, which ends with the connection or a commit. */
async function openSnapshotReader(client: PoolClient): Promise<WarehouseReader> {
  const [identity] = await mapDatabaseError(ACTION, async () => {
    await client.query('begin isolation level repeatable read, read only');
    await client.query(
      `set local idle_in_transaction_session_timeout = ${IDLE_BETWEEN_READS_MS}`,
    );
    return (await client.query<{ mirrorId: string; lastBuild: number }>(IDENTITY)).rows;
  });
  const { mirrorId = '', lastBuild = 0 } = identity ?? {};
  return {
    mirrorId,
    lastBuild,
    segmentMonths: () => readSegmentMonths(client),
    rows: (month, segmentIds, signal) =>
      copyOut(client, rowsStatement(month, segmentIds), ACTION, signal),
    whole: (table, signal) => {
      const statement = `copy (${WHOLE[table]}) to stdout (format csv)`;
      return copyOut(client, statement, ACTION, signal);
    },
  };
}

async function readSegmentMonths(
  on: Pool | PoolClient,
): Promise<readonly SegmentMonth[]> {
  return mapDatabaseError(
    ACTION,
    async () => (await on.query<SegmentMonth>(SEGMENT_MONTHS)).rows,
  );
}

function rowsStatement(month: string, segmentIds: readonly bigint[]): string {
  const start = `timestamptz '${month}-01 00:00:00+00'`;
  const end = `(${start} at time zone 'UTC' + interval '1 month') at time zone 'UTC'`;
  const columns = LINE_COLUMNS.map((name) =>
    name === 'vega_time' ? utc(name) : name,
  ).join(', ');
  return `copy (select ${columns} from mirror.ledger_entries
    where vega_time >= ${start} and vega_time < ${end}
      and segment_id = any ('{${segmentIds.join(',')}}'::bigint[])) to stdout (format csv)`;
}
