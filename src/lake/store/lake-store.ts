/**
 * The database's records about the lake, and the lock that lets only one process build it
 * at a time. While a process holds the lock, it reads the warehouse as of one instant.
 */
import type { Pool } from 'pg';
import { LINE_COLUMNS } from '../../ledger/canonical.ts';
import { takeLock } from '../../postgres/advisory-lock.ts';
import { builder } from '../../postgres/builder.ts';
import { copyOut } from '../../postgres/copy.ts';
import type { Database } from '../../postgres/database.ts';
import {
  execute,
  readRow,
  readRows,
  type StatementRunner,
} from '../../postgres/run-statement.ts';
import {
  openSession,
  poolRunner,
  type Session,
} from '../../postgres/session.ts';
import { statement, typed } from '../../postgres/statement.ts';
import type { LakeTable } from '../tables/columns.ts';

/** A table's state after the last build. */
export interface RecordedTable {
  readonly table: LakeTable;
  /** The id in the table's Delta metadata. */
  readonly tableId: string;
  readonly version: number;
  /** Number of the last build that committed to the table. */
  readonly build: number;
}

/** The newest commit of a table whose commits are decided by the database. */
export interface DecidedCommit {
  readonly table: LakeTable;
  readonly version: number;
  /** The content of the commit; null once the commit is known to be in the store. */
  readonly content: Buffer | null;
}

/** The public methods of the store, which test doubles implement. */
export type LakeRepository = Pick<LakeStore, keyof LakeStore>;

export class LakeStore {
  readonly #pool: Pool;
  readonly #db: StatementRunner;

  constructor(pool: Pool) {
    this.#pool = pool;
    this.#db = poolRunner(pool);
  }

  /**
   * Runs `work` while no other process can build the lake or remove anything from it. All
   * reads of the warehouse see the same instant.
   */
  async withLakeLock<Result>(
    work: (reader: WarehouseReader) => Promise<Result>,
    signal: AbortSignal,
  ): Promise<Result> {
    const session = await openSession(this.#pool, ACTION);
    try {
      await takeLock(session, 'mirror.lake', 'session', signal);
      const result = await work(await openSnapshotReader(session));
      await execute(session, ACTION, statement()`commit`);
      return result;
    } finally {
      // The connection is closed and not reused. That releases the lock and drops the
      // connection's settings, whatever has happened.
      session.release(true);
    }
  }

  /**
   * Returns the loaded segments, sorted by month and segment. Does not wait for a running
   * build.
   */
  async segmentMonths(): Promise<readonly SegmentMonth[]> {
    return readRows(this.#db, ACTION, SEGMENT_MONTHS);
  }

  /** Allocates the number of a new build, which is higher than all earlier ones. */
  async beginBuild(atLeast: number): Promise<number> {
    const draw = statement({ build: 'int' })`
      select setval('mirror.lake_builds',
        greatest(nextval('mirror.lake_builds'), ${atLeast}))::int as build`;
    const { build } = await readRow(this.#db, RECORD, draw);
    return build;
  }

  async record(tables: readonly RecordedTable[]): Promise<void> {
    const insert = statement()`
      insert into mirror.lake_tables (name, table_id, version, build)
      select "table", "tableId", version, build
      from jsonb_to_recordset(${JSON.stringify(tables)}::jsonb)
        as t ("table" text, "tableId" uuid, version bigint, build bigint)
      on conflict (name) do update set table_id = excluded.table_id, version = excluded.version,
        build = excluded.build, built_at = clock_timestamp()`;
    await execute(this.#db, RECORD, insert);
  }

  async recorded(): Promise<readonly RecordedTable[]> {
    const tables = statement({
      table: typed<LakeTable>('text'),
      tableId: 'uuid',
      version: 'int',
      build: 'int',
    })`
      select name as "table", table_id as "tableId", version::int, build::int
      from mirror.lake_tables`;
    return readRows(this.#db, RECORD, tables);
  }

  /**
   * Chooses the files that a nightly run reads: all that were never proven, and one in
   * `parts` of the others, namely those that were proven longest ago.
   */
  async filesToProve(
    keys: readonly string[],
    parts: number,
  ): Promise<ReadonlySet<string>> {
    const due = statement({ key: 'text' })`
      with live as (
        select key, proven_at from unnest(${keys}::text[]) as named (key)
        left join mirror.lake_proofs using (key)),
      turn as (
        select key from live where proven_at is not null order by proven_at, key
        limit (select ceil(count(proven_at) / ${parts}::numeric) from live))
      select key from live where proven_at is null union select key from turn`;
    const rows = await readRows(this.#db, RECORD, due);
    return new Set(rows.map(({ key }) => key));
  }

  /**
   * Records that these files were read and match the log. Deletes the records of files
   * that are not in `live`.
   */
  async recordProofs(
    keys: readonly string[],
    live: readonly string[],
  ): Promise<void> {
    const record = statement()`
      with gone as (delete from mirror.lake_proofs where not key = any (${live}::text[]))
      insert into mirror.lake_proofs (key) select unnest(${keys}::text[])
      on conflict (key) do update set proven_at = excluded.proven_at`;
    await execute(this.#db, RECORD, record);
  }

  /**
   * Returns the newest commit of each table whose commits are decided by the database.
   */
  async decidedCommits(store: string): Promise<readonly DecidedCommit[]> {
    const commits = statement({
      table: typed<LakeTable>('text'),
      version: 'int',
      content: 'bytes?',
    })`
      select name as "table", version::int, content from mirror.lake_commits
      where store = ${store}`;
    return readRows(this.#db, RECORD, commits);
  }

  /**
   * Decides the content of a table's next version, for a store that cannot stop two
   * writers from writing the same version.
   * @param after the last decided version; undefined if none has been decided yet
   * @returns false if another writer has decided a version in the meantime
   */
  async decideCommit(
    store: string,
    commit: DecidedCommit,
    after: number | undefined,
  ): Promise<boolean> {
    const { table, version, content } = commit;
    const decide = statement()`
      insert into mirror.lake_commits as known (store, name, version, content)
      values (${store}, ${table}, ${version}, ${content})
      on conflict (store, name) do update
        set version = excluded.version, content = excluded.content
        where known.version = ${after ?? null}`;
    return (await execute(this.#db, RECORD, decide)) === 1n;
  }

  /** Clears the content of a commit that is now in the store. */
  async forgetContent(
    store: string,
    { table, version }: DecidedCommit,
  ): Promise<void> {
    const update = builder
      .updateTable('mirror.lake_commits')
      .set({ content: null })
      .where('store', '=', store)
      .where('name', '=', table)
      .where('version', '=', BigInt(version));
    await execute(this.#db, RECORD, update);
  }
}

/**
 * Whether a build has found that this store cannot stop two writers from writing the same
 * commit.
 */
export async function isLakeDecidedHere(
  db: Database,
  store: string,
): Promise<boolean> {
  const decided = statement({ isDecided: 'boolean' })`
    select exists (select from mirror.lake_commits where store = ${store}) as "isDecided"`;
  const action = 'ask who decides the commits of the lake';
  return (await readRow(db, action, decided)).isDecided;
}

const RECORD = 'record what the lake holds';
const ACTION = 'read the warehouse for the lake';

/** The part of a loaded segment that falls in one month. */
export interface SegmentMonth {
  readonly segmentId: bigint;
  /** The month, as `2023-05`. */
  readonly month: string;
  readonly rows: bigint;
  /** Additive digest of the rows' canonical values, as 64 hex digits. */
  readonly valuesDigest: string;
  /** Whether the segment is open and will therefore soon be replaced. */
  readonly isOpen: boolean;
}

/** A single-file table, which is rewritten when its rows change. */
export type WholeTable = Extract<
  LakeTable,
  'parties' | 'checkpoints' | 'coverage'
>;

/** Reads the warehouse as of one instant. */
export interface WarehouseReader {
  readonly mirrorId: string;
  /** Number of the last build that began; 0 if there was none. */
  readonly lastBuild: number;
  /** Returns the loaded segments, sorted by month and segment. */
  segmentMonths(): Promise<readonly SegmentMonth[]>;
  /**
   * Streams the rows of these segments in one month, with the columns LINE_COLUMNS and in
   * the same CSV format as `whole`.
   */
  rows(
    month: string,
    segmentIds: readonly bigint[],
    signal: AbortSignal,
  ): AsyncIterable<Buffer>;
  /**
   * Streams a whole table as CSV without a header, in a stable order. Quotes are doubled
   * and NULL is empty. A chunk may end in the middle of a row.
   */
  whole(table: WholeTable, signal: AbortSignal): AsyncIterable<Buffer>;
  /** Returns the state of a list in the warehouse. */
  listState(table: ListTable): Promise<ListState>;
}

/** The tables that mirror a list of the source. */
export type ListTable = Exclude<WholeTable, 'coverage'>;

export interface ListState {
  readonly rows: bigint;
  /** Whether a sync has ever found the list complete. */
  readonly isProven: boolean;
}

/**
 * How long the transaction may be idle. It is idle while the lake's files are written and
 * sent to the store; during that time it holds only its snapshot.
 */
const IDLE_BETWEEN_READS_MS = 3_600_000;

const SEGMENT_MONTHS = statement({
  segmentId: 'bigint',
  month: 'text',
  rows: 'bigint',
  valuesDigest: 'text',
  isOpen: 'boolean',
})`select segment_id as "segmentId", to_char(month, 'YYYY-MM') as month, m.rows,
    m.values_digest as "valuesDigest", s.open as "isOpen"
  from mirror.segment_months m join mirror.segments s using (segment_id)
 order by m.month, segment_id`;

const IDENTITY = statement({
  mirrorId: 'uuid',
  lastBuild: 'int',
})`select warehouse_id as "mirrorId",
    (select case when is_called then last_value else 0 end from mirror.lake_builds)::int as "lastBuild"
  from mirror.identity`;

const LIST_STATES = {
  parties: statement({ rows: 'bigint', isProven: 'boolean' })`
    select (select count(*) from mirror.parties) as rows,
      exists (select from mirror.generations
        where list = 'parties' and claimed_at is not null) as "isProven"`,
  checkpoints: statement({ rows: 'bigint', isProven: 'boolean' })`
    select (select count(*) from mirror.checkpoints) as rows,
      exists (select from mirror.generations
        where list = 'checkpoints' and claimed_at is not null) as "isProven"`,
} as const;

const utc = (column: string): string => `${column} at time zone 'UTC'`;

/**
 * The queries for the single-file tables. They select only columns that analysts may rely
 * on.
 */
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

/**
 * Begins a read-only transaction, which lasts until a commit or the end of the
 * connection.
 */
async function openSnapshotReader(session: Session): Promise<WarehouseReader> {
  const begin = statement()`begin isolation level repeatable read, read only`;
  await execute(session, ACTION, begin);
  const limit = statement({ limit: 'text' })`
    select set_config('idle_in_transaction_session_timeout',
      ${String(IDLE_BETWEEN_READS_MS)}, true) as "limit"`;
  await execute(session, ACTION, limit);
  const { mirrorId, lastBuild } = await readRow(session, ACTION, IDENTITY);
  return {
    mirrorId,
    lastBuild,
    segmentMonths: () => readRows(session, ACTION, SEGMENT_MONTHS),
    rows: (month, segmentIds, signal) =>
      copyOut(session, {
        statement: rowsStatement(month, segmentIds),
        action: ACTION,
        signal,
      }),
    listState: (table) => readRow(session, ACTION, LIST_STATES[table]),
    whole: (table, signal) => {
      const text = `copy (${WHOLE[table]}) to stdout (format csv)`;
      return copyOut(session, { statement: text, action: ACTION, signal });
    },
  };
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
