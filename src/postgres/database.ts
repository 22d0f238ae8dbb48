/** The pool and the query builder, with exact types: no numeric, bigint or time becomes a JavaScript number. */
import { Kysely, PostgresDialect } from 'kysely';
import { Pool, TypeOverrides } from 'pg';
import { formatInstant, parseInstant } from '../time/time.ts';
import type { Schema } from './schema.generated.ts';
import { statement } from './statement.ts';

/** One of them says that this process is there. */
const POOL_MAX = 11;
const CONNECT_TIMEOUT_MS = 10_000;
const IDLE_TIMEOUT_MS = 30_000;
const OID = { int8: 20, timestamptz: 1184 } as const;
/**
 * A transaction is idle while this process computes. Where it stands still, or its machine is gone without a word,
 * others need its locks: shorter than LOCK_TIMEOUT_MS, so that a waiter gets the lock.
 */
const IDLE_IN_TRANSACTION_MS = 10_000;
/** For a transaction that waits for the object store between two statements. */
export const WAITS_FOR_THE_STORE = statement()`
  set local idle_in_transaction_session_timeout = '5min'`;
/** None of our transactions holds a lock this long: the statement ends, and is retried. */
const LOCK_TIMEOUT_MS = 20_000;
const SETTINGS = `-c TimeZone=UTC -c DateStyle=ISO -c jit=off -c lock_timeout=${LOCK_TIMEOUT_MS} -c idle_in_transaction_session_timeout=${IDLE_IN_TRANSACTION_MS}`;

/** The pool or a transaction, typed by the tables as the migrations make them. */
export type Database = Kysely<Schema>;

export interface Warehouse extends AsyncDisposable {
  readonly pool: Pool;
  readonly db: Database;
}

/** int8 as bigint, timestamptz as RFC 3339 text with microseconds, numeric as text (pg's default). */
const EXACT_TYPES = new TypeOverrides();
EXACT_TYPES.setTypeParser(OID.int8, (text) => BigInt(text));
EXACT_TYPES.setTypeParser(OID.timestamptz, (text) => {
  const instant = parseInstant(text);
  // ±infinity and years beyond 9999 stay as Postgres writes them.
  return instant === undefined ? text : formatInstant(instant);
});

export interface WarehouseOptions {
  readonly url: string;
  readonly poolMax?: number;
  /** A connection that breaks while idle is replaced by the pool; this only tells of it. */
  readonly onIdleError: (error: Error) => void;
}

/** Opens no connection; the first query does. */
export function openWarehouse(options: WarehouseOptions): Warehouse {
  const pool = new Pool({
    connectionString: options.url,
    max: options.poolMax ?? POOL_MAX,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    idleTimeoutMillis: IDLE_TIMEOUT_MS,
    keepAlive: true,
    application_name: 'ledger-mirror',
    options: SETTINGS,
    types: EXACT_TYPES,
  });
  pool.on('error', options.onIdleError);
  // The pool does not listen to a connection in use; its statements report the failure.
  pool.on('connect', (client) => client.on('error', () => undefined));
  const db: Database = new Kysely({ dialect: new PostgresDialect({ pool }) });
  return {
    pool,
    db,
    [Symbol.asyncDispose]: () => {
      // Sockets outlive the pool for a moment; a stopping server's farewell is no error.
      pool.off('error', options.onIdleError).on('error', () => undefined);
      return db.destroy();
    },
  };
}
