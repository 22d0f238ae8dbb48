/** The two stores of queues: Redis, and Postgres if no Redis is configured. */
import {
  createPostgresBackend,
  Queue,
  runMigrations,
  type Telemetry,
  withBackend,
  Worker,
} from 'bullmq';
import { Redis } from 'ioredis';
import { Client } from 'pg';
import { errorCode, UnreachableError } from '../errors/errors.ts';
import { type JobData, type QueueBackend, RETENTION } from './backend.ts';

const CONNECT_TIMEOUT_MS = 10_000;
const KEEP_ALIVE_MS = 10_000;
const RECONNECT_MAX_MS = 2_000;
/**
 * A connection without an answer for this long is dead. A worker waits for a job for 10
 * s.
 */
const SILENCE_MAX_MS = 20_000;
/**
 * Connections to Postgres of one queue or worker, in addition to the one that listens.
 */
const POOL_MAX = 2;
/** BullMQ's transactions never pause. An idle one belongs to a process that hangs. */
const SETTINGS = '-c idle_in_transaction_session_timeout=60000';
/** The schema of BullMQ's own tables. */
const SCHEMA = 'ledger_mirror_queue';

interface BackendOptions {
  readonly url: string;
  /** Without it there are no traces. */
  readonly telemetry?: Telemetry | undefined;
}

interface RedisOptions extends BackendOptions {
  /** Mirrors can share a Redis, because each has a prefix of its own. */
  readonly prefix: string;
  readonly onError: (error: Error) => void;
}

/** @throws UnreachableError `REDIS_UNREACHABLE` where no connection comes about */
export async function openRedisBackend(
  options: RedisOptions,
): Promise<QueueBackend> {
  const { url, prefix, onError, telemetry } = options;
  const connection = new Redis(url, {
    lazyConnect: true,
    connectTimeout: CONNECT_TIMEOUT_MS,
    keepAlive: KEEP_ALIVE_MS,
    socketTimeout: SILENCE_MAX_MS,
    // BullMQ's commands wait while Redis is unreachable; callers limit their own waits.
    maxRetriesPerRequest: null,
    // The old connection stays with the former master; a new one leads to the present
    // one. 2: the command, which was refused as a whole, is sent again.
    reconnectOnError: ({ message }) =>
      /^(?:READONLY|MASTERDOWN)\b/.test(message) ? 2 : false,
    retryStrategy: (times) => Math.min(times * 100, RECONNECT_MAX_MS),
  });
  // The reason arrives as an event. The failed call only reports that the connection is
  // closed.
  let reason: Error | undefined;
  connection.on('error', (error) => {
    reason = error;
    onError(error);
  });
  try {
    await connection.connect();
  } catch (error) {
    connection.disconnect();
    const { host } = new URL(url);
    const cause = reason ?? error;
    const message = `Cannot reach Redis at ${host}: ${errorCode(cause)}; check REDIS_URL`;
    throw new UnreachableError(message, {
      code: 'REDIS_UNREACHABLE',
      meta: { host },
      cause,
    });
  }
  const shared = { connection, prefix, ...(telemetry && { telemetry }) };
  return {
    queue: (name) =>
      new Queue<JobData, void>(name, { ...shared, ...RETENTION }),
    worker: (name, processor, workerOptions) =>
      new Worker<JobData, void>(name, processor, {
        ...workerOptions,
        ...shared,
      }),
    advice: async () => redisAdvice(await connection.info()),
    [Symbol.asyncDispose]: async () => connection.disconnect(),
  };
}

/**
 * Returns warnings about a Redis that evicts keys, or forgets them at a restart. BullMQ
 * itself warns about an old version.
 * @param info the text of INFO, which Valkey and Dragonfly answer as Redis does
 */
export function redisAdvice(info: string): readonly string[] {
  const policy = /^maxmemory_policy:(\S+)/m.exec(info)?.[1] ?? 'noeviction';
  const evicting =
    `maxmemory-policy is ${policy}: keys of jobs may be evicted; set it to ` +
    'noeviction';
  const forgetting =
    'appendonly is off: a restart forgets queued jobs until they are taken up ' +
    'again; set appendonly yes';
  return [
    ...(policy === 'noeviction' ? [] : [evicting]),
    ...(/^aof_enabled:0/m.test(info) ? [forgetting] : []),
  ];
}

/**
 * Opens queues in Postgres, after it has migrated BullMQ's own tables.
 * @throws UnreachableError `DATABASE_UNREACHABLE`
 */
export async function openPostgresBackend({
  url,
  telemetry,
}: BackendOptions): Promise<QueueBackend> {
  await migrateQueues(url);
  const connection = {
    connectionString: url,
    max: POOL_MAX,
    schema: SCHEMA,
    keepAlive: true,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    query_timeout: SILENCE_MAX_MS,
    options: SETTINGS,
  };
  const shared = { connection, ...(telemetry && { telemetry }) };
  const postgres = withBackend(createPostgresBackend);
  return {
    queue: (name) =>
      new postgres.Queue<JobData, void>(name, { ...shared, ...RETENTION }),
    worker: (name, processor, workerOptions) =>
      new postgres.Worker<JobData, void>(name, processor, {
        ...workerOptions,
        ...shared,
      }),
    advice: async () => [],
    [Symbol.asyncDispose]: async () => undefined,
  };
}

async function migrateQueues(url: string): Promise<void> {
  const client = new Client({
    connectionString: url,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
  });
  // Without a listener a connection that breaks would end the process.
  client.on('error', () => {});
  try {
    await client.connect();
  } catch (error) {
    const message = `Cannot reach the database for the queues: ${errorCode(error)}; check DATABASE_URL`;
    throw new UnreachableError(message, {
      code: 'DATABASE_UNREACHABLE',
      cause: error,
    });
  }
  try {
    await runMigrations(client, SCHEMA);
  } finally {
    await client.end();
  }
}
