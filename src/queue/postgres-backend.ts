/** Queues in Postgres, if no Redis is configured. All queues of a process share one pool. */
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
} from '../network/postgres/session-settings.ts';
import type { RotatingSecret } from '../network/rotating-secret.ts';
import {
  type JobData,
  QUEUE_CONNECTIONS,
  type QueueBackend,
  RETENTION,
} from './backend.ts';

/** The schema of BullMQ's own tables. */
const SCHEMA = 'ledger_mirror_queue';
/** A statement without an answer for this long is given up. */
const SILENCE_MAX_MS = 20_000;
const CLOSE_MAX_MS = 2_000;
const IDLE_TIMEOUT_MS = 10_000;
/** BullMQ's statements name no schema. */
const SETTINGS: SessionSettings = {
  ...PLAIN_SETTINGS,
  search_path: SCHEMA,
  // BullMQ's transactions never pause. An idle one belongs to a process that hangs.
  idle_in_transaction_session_timeout: '60s',
};

interface PostgresOptions {
  readonly url: string;
  /** Default: user and password of the URL, for good. */
  readonly login?: RotatingSecret<PostgresLogin> | undefined;
  /** Without it there are no traces. */
  readonly telemetry?: Telemetry | undefined;
}

/**
 * Opens queues in Postgres, after it has migrated BullMQ's own tables.
 * @throws UnreachableError `DATABASE_UNREACHABLE`
 */
export async function openPostgresBackend({
  url,
  login,
  telemetry,
}: PostgresOptions): Promise<QueueBackend> {
  const pool = openPool({
    address: openPostgresAddress(url, login),
    settings: SETTINGS,
    max: QUEUE_CONNECTIONS,
    idleTimeoutMillis: IDLE_TIMEOUT_MS,
    query_timeout: SILENCE_MAX_MS,
  });
  // Each queue reports what breaks; an idle connection is replaced without a word.
  pool.on('error', () => undefined);
  try {
    await migrateQueues(pool);
  } catch (error) {
    await pool.end();
    throw error;
  }
  // BullMQ's listeners on the pool are one for each queue and worker.
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
    advice: async () => [],
    [Symbol.asyncDispose]: () => endWithin(pool),
  };
}

/** BullMQ takes a pool of others for one of its default schema. */
class QueueConnection extends PostgresConnection {
  override readonly schema = SCHEMA;
}

/**
 * As BullMQ's own factory, which would give each queue a pool and startup parameters that a pooler
 * refuses. A worker's name is that of its listening connection, by which BullMQ counts workers.
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

/** A worker that was not closed in time keeps its connection, for which `end` would wait. */
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

/** The server is there, and refuses: waiting for it would not help. */
function isRefusal(error: unknown): boolean {
  if (error instanceof PermanentError) return true;
  const isOfServer = error instanceof Error && 'severity' in error;
  return isOfServer && classifyDatabaseCode(errorCode(error)) === 'permanent';
}
