/** The pool, with exact types: no numeric, bigint or time becomes a JavaScript number. */
import { Kysely, PostgresDialect } from 'kysely';
import { Pool, TypeOverrides } from 'pg';
import { formatInstant, parseInstant } from '../time/time.ts';
import type { Schema } from './schema.generated.ts';
import { statement } from './statement.ts';

/** One of the connections shows that this process is alive (`LivenessLock`). */
const POOL_MAX = 11;
const CONNECT_TIMEOUT_MS = 10_000;
const IDLE_TIMEOUT_MS = 30_000;
const OID = { int8: 20, timestamptz: 1184 } as const;
/**
 * A transaction is idle while this process computes. If the process stands still, or its
 * machine is gone, other processes need its locks. This is shorter than LOCK_TIMEOUT_MS,
 * so that a waiter gets the lock.
 */
const IDLE_IN_TRANSACTION_MS = 10_000;
/** Allows a transaction to wait for the object store between two statements. */
export const WAITS_FOR_THE_STORE = statement()`
  set local idle_in_transaction_session_timeout = '5min'`;
/**
 * None of our transactions holds a lock this long. A statement that waits longer ends,
 * and is retried.
 */
const LOCK_TIMEOUT_MS = 20_000;
const SETTINGS =
  `-c TimeZone=UTC -c DateStyle=ISO -c jit=off -c lock_timeout=${LOCK_TIMEOUT_MS} ` +
  `-c idle_in_transaction_session_timeout=${IDLE_IN_TRANSACTION_MS}`;

/** The pool or a transaction, typed by the tables as the migrations make them. */
export type Database = Kysely<Schema>;

/** The database, opened by `openWarehouse`. */
export interface Warehouse extends AsyncDisposable {
  readonly pool: Pool;
  readonly db: Database;
}

/**
 * Reads int8 as bigint, timestamptz as RFC 3339 text with microseconds, and numeric as
 * text (pg's default).
 */
const EXACT_TYPES = new TypeOverrides();
EXACT_TYPES.setTypeParser(OID.int8, (text) => BigInt(text));
EXACT_TYPES.setTypeParser(OID.timestamptz, (text) => {
  const instant = parseInstant(text);
  // Infinity and years after 9999 stay as Postgres writes them.
  return instant === undefined ? text : formatInstant(instant);
});

export interface WarehouseOptions {
  readonly url: string;
  readonly poolMax?: number;
  /** Called when an idle connection breaks. The pool replaces it by itself. */
  readonly onIdleError: (error: Error) => void;
}

/** Opens the pool. The first statement opens a connection. */
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
  // The pool does not listen to a connection that is in use. Its statements report the
  // failure.
  pool.on('connect', (client) => client.on('error', () => undefined));
  const db: Database = new Kysely({ dialect: new PostgresDialect({ pool }) });
  return {
    pool,
    db,
    [Symbol.asyncDispose]: () => {
      // Sockets close after the pool, and a server that stops reports the end of each as
      // an error.
      pool.off('error', options.onIdleError).on('error', () => undefined);
      return db.destroy();
    },
  };
}
