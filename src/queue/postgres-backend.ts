/** Queues in Postgres, where there is no Redis. */
import { createPostgresBackend, runMigrations, type Telemetry, withBackend } from 'bullmq';
import { Client } from 'pg';
import { errorCode, UnreachableError } from '../core/errors.ts';
import { type JobData, type QueueBackend, RETENTION } from './backend.ts';

/** Connections of one queue or worker, beside the one that listens. */
const POOL_MAX = 2;
const CONNECT_TIMEOUT_MS = 10_000;
/** A connection without an answer for this long is dead. */
const SILENCE_MAX_MS = 20_000;
/** BullMQ's transactions never wait in between: an idle one belongs to a process that hangs. */
const SETTINGS = '-c idle_in_transaction_session_timeout=60000';
/** The schema of BullMQ's own tables. */
const SCHEMA = 'ledger_mirror_queue';

interface PostgresBackendOptions {
  readonly url: string;
  /** Absent: no traces. */
  readonly telemetry?: Telemetry | undefined;
}

/** Brings BullMQ's own tables forward first. @throws UnreachableError `DATABASE_UNREACHABLE` */
export async function openPostgresBackend(options: PostgresBackendOptions): Promise<QueueBackend> {
  await migrateQueues(options.url);
  const connection = {
    connectionString: options.url,
    max: POOL_MAX,
    schema: SCHEMA,
    keepAlive: true,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    query_timeout: SILENCE_MAX_MS,
    options: SETTINGS,
  };
  const { telemetry } = options;
  const shared = { connection, ...(telemetry === undefined ? {} : { telemetry }) };
  const { Queue, Worker } = withBackend(createPostgresBackend);
  return {
    kind: 'postgres',
    queue: (name) => new Queue<JobData, void>(name, { ...shared, ...RETENTION }),
    worker: (name, processor, workerOptions) =>
      new Worker<JobData, void>(name, processor, { ...workerOptions, ...shared }),
    advice: () => Promise.resolve([]),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

async function migrateQueues(url: string): Promise<void> {
  const client = new Client({ connectionString: url, connectionTimeoutMillis: CONNECT_TIMEOUT_MS });
  // Without a listener a connection that breaks would end the process.
  client.on('error', () => {});
  try {
    await client.connect();
  } catch (error) {
    throw new UnreachableError(
      `Cannot reach the database for the queues: ${errorCode(error)}; check DATABASE_URL`,
      {
        code: 'DATABASE_UNREACHABLE',
        cause: error,
      },
    );
  }
  try {
    await runMigrations(client, SCHEMA);
  } finally {
    await client.end();
  }
}
