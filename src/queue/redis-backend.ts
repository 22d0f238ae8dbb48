/** Queues in Redis: the reference. */
import { Queue, type Telemetry, Worker } from 'bullmq';
import { Redis } from 'ioredis';
import { errorCode, UnreachableError } from '../core/errors.ts';
import { type JobData, type QueueBackend, RETENTION } from './backend.ts';
import { redisAdvice } from './redis-advice.ts';

const CONNECT_TIMEOUT_MS = 10_000;
const KEEP_ALIVE_MS = 10_000;
const RECONNECT_MAX_MS = 2_000;
/** A connection without an answer for this long is dead. Longer than a worker's wait for a job (10 s). */
const SILENCE_MAX_MS = 20_000;

interface RedisBackendOptions {
  readonly url: string;
  /** Two mirrors can share a Redis: each has a prefix of its own. */
  readonly prefix: string;
  readonly onError: (error: Error) => void;
  /** Absent: no traces. */
  readonly telemetry?: Telemetry | undefined;
}

/** @throws UnreachableError `REDIS_UNREACHABLE` where no connection comes about */
export async function openRedisBackend(options: RedisBackendOptions): Promise<QueueBackend> {
  const connection = new Redis(options.url, {
    lazyConnect: true,
    connectTimeout: CONNECT_TIMEOUT_MS,
    keepAlive: KEEP_ALIVE_MS,
    socketTimeout: SILENCE_MAX_MS,
    // BullMQ's commands wait for an unreachable Redis; callers bound their own waits.
    maxRetriesPerRequest: null,
    retryStrategy: (times) => Math.min(times * 100, RECONNECT_MAX_MS),
  });
  // The reason arrives as an event; the failed call only says that the connection is closed.
  let reason: Error | undefined;
  connection.on('error', (error) => {
    reason = error;
    options.onError(error);
  });
  try {
    await connection.connect();
  } catch (error) {
    connection.disconnect();
    const { host } = new URL(options.url);
    const cause = reason ?? error;
    throw new UnreachableError(`Cannot reach Redis at ${host}: ${errorCode(cause)}; check REDIS_URL`, {
      code: 'REDIS_UNREACHABLE',
      meta: { host },
      cause,
    });
  }
  const { prefix, telemetry } = options;
  const shared = { connection, prefix, ...(telemetry === undefined ? {} : { telemetry }) };
  return {
    kind: 'redis',
    queue: (name) => new Queue<JobData, void>(name, { ...shared, ...RETENTION }),
    worker: (name, processor, workerOptions) =>
      new Worker<JobData, void>(name, processor, { ...workerOptions, ...shared }),
    advice: async () => redisAdvice(await connection.info()),
    [Symbol.asyncDispose]: async () => {
      connection.disconnect();
    },
  };
}
