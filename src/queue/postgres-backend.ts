/**
 * Queues in Postgres, used if no Redis is configured. All queues of a process share one
 * pool.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import {
  type BackendFactory,
  PostgresConnection,
  type PostgresConnectionOptions,
  PostgresQueueBackend,
  runMigrations,
  type Telemetry,
  withBackend,
} from 'bullmq';
import type { Pool } from 'pg';
import {
  errorCode,
  PermanentError,
  UnreachableError,
} from '../errors/errors.ts';
import { classifyDatabaseCode } from '../errors/faults.ts';
import { openPool } from '../network/postgres/pool.ts';
import {
  openPostgresAddress,
  type PostgresLogin,
} from '../network/postgres/postgres-client.ts';
import {
  PLAIN_SETTINGS,
  type SessionSettings,
} from '../network/postgres/plain-settings.ts';
import type { RotatingSecret } from '../network/rotating-secret.ts';
import {
  type JobData,
  QUEUE_CONNECTIONS,
  type QueueBackend,
  RETENTION,
} from './backend.ts';

/** The schema of BullMQ's own tables. */
const SCHEMA = 'ledger_mirror_queue';
/** How long to wait for the response to a statement before giving up. */
const SILENCE_MAX_MS = 20_000;
const CLOSE_MAX_MS = 2_000;
const IDLE_TIMEOUT_MS = 10_000;
/** BullMQ's statements do not name a schema, so its schema is put on the search path. */
const SETTINGS: SessionSettings = {
  ...PLAIN_SETTINGS,
  search_path: SCHEMA,
  // BullMQ's transactions never pause, so an idle transaction means that its process
  // hangs.
  idle_in_transaction_session_timeout: '60s',
};

interface PostgresOptions {
  readonly url: string;
  /** The login; by default the user and password of the URL, which never change. */
  readonly login?: RotatingSecret<PostgresLogin> | undefined;
  /** Receives the traces; if absent, no traces are recorded. */
  readonly telemetry?: Telemetry | undefined;
}

/**
 * Opens queues in Postgres, after migrating BullMQ's own tables.
 * @throws UnreachableError `DATABASE_UNREACHABLE`
 */
export async function openPostgresBackend({
  url,
  login,
  telemetry,
}: PostgresOptions): Promise<QueueBackend> {
  const address = openPostgresAddress(url, login);
  const pool = openPool({
    address,
    settings: SETTINGS,
    max: QUEUE_CONNECTIONS,
    idleTimeoutMillis: IDLE_TIMEOUT_MS,
    query_timeout: SILENCE_MAX_MS,
  });
  // Each queue reports its own errors; a broken idle connection is replaced silently.
  pool.on('error', () => undefined);
  try {
    await migrateQueues(pool);
  } catch (error) {
    await pool.end();
    throw error;
  }
  // Each queue and worker of BullMQ adds a listener to the pool.
  pool.setMaxListeners(0);
  const shared = {
    connection: pool as PostgresConnectionOptions,
    ...(telemetry && { telemetry }),
  };
  const postgres = withBackend(openBackend);
  return {
    queue: (name) =>
      new postgres.Queue<JobData, void>(name, { ...shared, ...RETENTION }),
    worker: (name, processor, workerOptions) =>
      new postgres.Worker<JobData, void>(name, processor, {
        ...workerOptions,
        ...shared,
      }),
    probe: async () => {
      await pool.query('select 1');
    },
    proveLogin: () => address.proveLogin(),
    advice: async () => [],
    [Symbol.asyncDispose]: () => endWithin(pool),
  };
}

/** BullMQ assumes that an external pool uses its default schema; this sets ours. */
class QueueConnection extends PostgresConnection {
  override readonly schema = SCHEMA;
}

/**
 * Replaces BullMQ's own factory, which would open a pool for each queue and send startup
 * parameters that a connection pooler rejects. A listening connection is named after its
 * worker, because BullMQ counts workers by these names.
 */
const openBackend: BackendFactory<
  PostgresQueueBackend,
  PostgresConnectionOptions
> = (name, options, { withBlockingConnection, blocking } = {}) => {
  const { name: worker } = options as { readonly name?: string };
  const ofWorker = worker === undefined ? name : `${name}:w:${worker}`;
  const ofEvents = blocking === true ? `${name}:qe` : undefined;
  return new PostgresQueueBackend(
    new QueueConnection(options.connection),
    name,
    options,
    true,
    withBlockingConnection === true ? ofWorker : ofEvents,
  );
};

/**
 * Ends the pool within a time limit, because a worker that was not closed in time keeps
 * its connection, and `end` would wait for it.
 */
async function endWithin(pool: Pool): Promise<void> {
  if (pool.ending) return;
  const limit = sleep(CLOSE_MAX_MS, undefined, { ref: false });
  await Promise.race([pool.end(), limit]);
}

async function migrateQueues(pool: Pool): Promise<void> {
  const action = 'Cannot open the queues in the database';
  try {
    const client = await pool.connect();
    try {
      await runMigrations(client, SCHEMA);
    } finally {
      client.release();
    }
  } catch (error) {
    if (isRefusal(error)) throw error;
    const state = error instanceof Error ? error.message : String(error);
    throw new UnreachableError(`${action}: ${state}; check DATABASE_URL`, {
      code: 'DATABASE_UNREACHABLE',
      cause: error,
    });
  }
}

/** Whether the server returned a permanent error, so that waiting would not help. */
function isRefusal(error: unknown): boolean {
  if (error instanceof PermanentError) return true;
  const isOfServer = error instanceof Error && 'severity' in error;
  return isOfServer && classifyDatabaseCode(errorCode(error)) === 'permanent';
}
