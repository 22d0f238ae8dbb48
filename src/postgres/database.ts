/**
 * The connection pool, with exact types: no numeric, bigint or timestamp is converted to
 * a JavaScript number.
 */
import { Kysely, PostgresDialect } from 'kysely';
import { type Pool, TypeOverrides } from 'pg';
import { openPool } from '../network/postgres/pool.ts';
import {
  openPostgresAddress,
  type PostgresLogin,
} from '../network/postgres/postgres-client.ts';
import type { RotatingSecret } from '../network/rotating-secret.ts';
import { formatInstant, parseInstant } from '../time/time.ts';
import type { Schema } from './schema.generated.ts';
import { SESSION_SETTINGS } from './session-settings.ts';
import { statement } from './statement.ts';

/**
 * Maximum number of connections in the pool. One of them is reserved for the lock that
 * shows that this process is alive (`LivenessLock`).
 */
const POOL_MAX = 11;
const IDLE_TIMEOUT_MS = 30_000;
const OID = { int8: 20, timestamptz: 1184 } as const;
/** Settings that let a transaction wait for the object store between two statements. */
export const WAITS_FOR_THE_STORE = statement()`
  set local idle_in_transaction_session_timeout = '5min'`;
/** The pool or a transaction, typed by the tables that the migrations create. */
export type Database = Kysely<Schema>;

/** The database, as opened by `openWarehouse`. */
export interface Warehouse extends AsyncDisposable {
  readonly pool: Pool;
  readonly db: Database;
  /** Opens and closes an extra connection, to check that the login is still accepted. */
  proveLogin(): Promise<void>;
}

/**
 * Reads int8 as bigint, timestamptz as an RFC 3339 string with microseconds, and numeric
 * as a string (pg's default).
 */
const EXACT_TYPES = new TypeOverrides();
EXACT_TYPES.setTypeParser(OID.int8, (text) => BigInt(text));
EXACT_TYPES.setTypeParser(OID.timestamptz, (text) => {
  const instant = parseInstant(text);
  // Infinity, and years after 9999, stay as Postgres writes them.
  return instant === undefined ? text : formatInstant(instant);
});

export interface WarehouseOptions {
  readonly url: string;
  /** The login; by default the user and password of the URL, which never change. */
  readonly login?: RotatingSecret<PostgresLogin> | undefined;
  readonly poolMax?: number;
  /**
   * Called when an idle connection breaks. The pool replaces the connection
   * automatically.
   */
  readonly onIdleError: (error: Error) => void;
}

/** Opens the pool. The first statement opens a connection. */
export function openWarehouse(options: WarehouseOptions): Warehouse {
  const address = openPostgresAddress(options.url, options.login);
  const pool = openPool({
    address,
    settings: SESSION_SETTINGS,
    max: options.poolMax ?? POOL_MAX,
    idleTimeoutMillis: IDLE_TIMEOUT_MS,
    types: EXACT_TYPES,
  });
  pool.on('error', options.onIdleError);
  const db: Database = new Kysely({ dialect: new PostgresDialect({ pool }) });
  return {
    pool,
    db,
    proveLogin: () => address.proveLogin(),
    [Symbol.asyncDispose]: async () => {
      // Sockets close after the pool does, and a server that is shutting down reports the
      // end of each as an error.
      pool.off('error', options.onIdleError).on('error', () => undefined);
      await db.destroy();
      // Kysely ends a pool only if it has run a statement on it.
      if (!pool.ending) await pool.end();
    },
  };
}
