/** Queues in Redis. */
import { Queue, type Telemetry, Worker } from 'bullmq';
import { withTimeout } from '../concurrency/timeouts.ts';
import { PermanentError, UnreachableError } from '../errors/errors.ts';
import { openRedis, proveRedisLogin } from '../network/redis-client.ts';
import type { RedisLogin } from '../network/redis-login.ts';
import type { RotatingSecret } from '../network/rotating-secret.ts';
import { type JobData, type QueueBackend, RETENTION } from './backend.ts';
import { reconnectOnError } from '../errors/redis-replies.ts';
import { redisError, requireSingle, requireWrites } from './redis-refusals.ts';

const CONNECT_TIMEOUT_MS = 10_000;
const KEEP_ALIVE_MS = 10_000;
const RECONNECT_MAX_MS = 2_000;
/**
 * How long a connection may be silent before it counts as dead. A worker waits for a job
 * for only 10 s at a time.
 */
const SILENCE_MAX_MS = 20_000;

interface RedisOptions {
  readonly url: string;
  /** The login; by default the user and password of the URL, which never change. */
  readonly login?: RotatingSecret<RedisLogin> | undefined;
  /** Receives the traces; without it, no traces are recorded. */
  readonly telemetry?: Telemetry | undefined;
  /** Unique to each mirror, so that mirrors can share a Redis. */
  readonly prefix: string;
  readonly onError: (error: Error) => void;
}

/**
 * Opens queues in Redis.
 * @throws UnreachableError `REDIS_UNREACHABLE` or `REDIS_TAKES_NO_WRITES`; a later
 *   attempt may succeed
 * @throws PermanentError `REDIS_REFUSED`, `REDIS_TLS` or `REDIS_MODE`
 */
export async function openRedisBackend(
  options: RedisOptions,
): Promise<QueueBackend> {
  const { url, login, prefix, onError, telemetry } = options;
  const connection = openRedis(url, login, {
    lazyConnect: true,
    connectTimeout: CONNECT_TIMEOUT_MS,
    keepAlive: KEEP_ALIVE_MS,
    socketTimeout: SILENCE_MAX_MS,
    // BullMQ's commands wait while Redis is unreachable; callers limit how long.
    maxRetriesPerRequest: null,
    reconnectOnError,
    retryStrategy: (times) => Math.min(times * 100, RECONNECT_MAX_MS),
  });
  // The reason arrives as an event; the failed call says only that the connection is
  // closed.
  let reason: Error | undefined;
  connection.on('error', (error) => {
    reason = error;
    onError(error);
  });
  try {
    await connection.connect();
    requireSingle(url, await connection.info().catch(() => ''));
    await withTimeout(
      CONNECT_TIMEOUT_MS,
      () => requireWrites(connection, url, prefix, login),
      () => redisError(url, reason ?? new Error('READONLY for 10 s'), login),
    );
  } catch (error) {
    connection.disconnect();
    throw redisError(url, isOwn(error) ? error : (reason ?? error), login);
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
    probe: () => requireWrites(connection, url, prefix, login),
    proveLogin: async () => {
      try {
        await proveRedisLogin(connection, login);
      } catch (error) {
        throw redisError(url, error, login);
      }
    },
    advice: async () => redisAdvice(await connection.info()),
    [Symbol.asyncDispose]: async () => connection.disconnect(),
  };
}

function isOwn(error: unknown): boolean {
  return error instanceof PermanentError || error instanceof UnreachableError;
}

/**
 * Returns warnings if Redis may evict keys or would lose them in a restart. BullMQ itself
 * warns about old versions.
 * @param info the output of INFO; Valkey and Dragonfly use the same format
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
