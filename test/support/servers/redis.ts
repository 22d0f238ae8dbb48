/** The test run's Redis with a separate prefix, or a private server. */
import { randomBytes } from 'node:crypto';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { Redis } from 'ioredis';
import { afterAll } from 'vitest';
import { RedisProcess } from './redis-process.ts';
import { redisCommand, serviceUrl } from './services.ts';

export interface FreshRedis {
  readonly url: string;
  /** All keys of the test begin with this prefix; they are deleted after the file. */
  readonly prefix: string;
}

const SCAN_COUNT = 500;

/**
 * Reserves a prefix on the shared server; call it at the top level of a test file. Never
 * flush the server.
 */
export async function freshRedis(): Promise<FreshRedis> {
  const url = await serviceUrl('redis');
  const prefix = `test-${randomBytes(8).toString('hex')}`;
  afterAll(() => deleteKeys(url, prefix));
  return { url, prefix };
}

/**
 * Starts a private server that the test may stop, kill, flush and restart: `await using
 * redis = …`.
 */
export async function startOwnRedis(): Promise<RedisProcess> {
  return RedisProcess.start(await redisCommand());
}

/**
 * Remembers the contents of a private server.
 * @returns a function that restores the contents and discards everything written since,
 *   like a failover to an older copy
 */
export async function olderCopy(
  server: RedisProcess,
): Promise<() => Promise<void>> {
  return server.isReal ? olderDump(server) : olderKeys(server);
}

async function olderDump(server: RedisProcess): Promise<() => Promise<void>> {
  await server.stop();
  // There is no dump if nothing was written.
  const dump = await readFile(server.dumpFile).catch(() => undefined);
  await server.start();
  return async () => {
    await server.stop();
    await (dump === undefined
      ? rm(server.dumpFile, { force: true })
      : writeFile(server.dumpFile, dump));
    await server.start();
  };
}

/**
 * Remembers the keys of the stand-in, which keeps no dump, and restores them one by one.
 * All of them are strings, as in the resume state.
 */
async function olderKeys(server: RedisProcess): Promise<() => Promise<void>> {
  const texts = await withClient(server.url, async (redis) => {
    const keys = await redis.keys('*');
    return Promise.all(
      keys.map(async (key) => [key, (await redis.get(key)) ?? ''] as const),
    );
  });
  return () =>
    withClient(server.url, async (redis) => {
      await redis.flushall();
      for (const [key, text] of texts) await redis.set(key, text);
    });
}

async function withClient<Result>(
  url: string,
  work: (redis: Redis) => Promise<Result>,
): Promise<Result> {
  const redis = new Redis(url);
  try {
    return await work(redis);
  } finally {
    redis.disconnect();
  }
}

async function deleteKeys(url: string, prefix: string): Promise<void> {
  const redis = new Redis(url);
  try {
    for await (const keys of redis.scanStream({
      match: `${prefix}*`,
      count: SCAN_COUNT,
    })) {
      if (keys.length > 0) await redis.unlink(...keys);
    }
  } finally {
    redis.disconnect();
  }
}
