/** The run's Redis under a prefix of one's own, or a whole server of one's own. */
import { randomBytes } from 'node:crypto';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { Redis } from 'ioredis';
import { afterAll } from 'vitest';
import { RedisProcess } from './redis-process.ts';
import { redisCommand, serviceUrl } from './services.ts';

export interface FreshRedis {
  readonly url: string;
  /** Every key of the test begins with it; they are deleted after the file. */
  readonly prefix: string;
}

const SCAN_COUNT = 500;

/** Call it at the top level of a test file. The server is shared: never flush it. */
export async function freshRedis(): Promise<FreshRedis> {
  const url = await serviceUrl('redis');
  const prefix = `test-${randomBytes(8).toString('hex')}`;
  afterAll(() => deleteKeys(url, prefix));
  return { url, prefix };
}

/**
 * A private server that the test may stop, kill, flush and start again: `await using
 * redis = …`.
 */
export async function startOwnRedis(): Promise<RedisProcess> {
  return RedisProcess.start(await redisCommand());
}

/**
 * Remembers what a server of one's own holds.
 * @returns puts it back, whatever was written since: what a failover to an older copy
 *   does
 */
export async function olderCopy(
  server: RedisProcess,
): Promise<() => Promise<void>> {
  return server.isReal ? olderDump(server) : olderKeys(server);
}

async function olderDump(server: RedisProcess): Promise<() => Promise<void>> {
  await server.stop();
  // None is written while nothing was.
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
 * The stand-in keeps no dump: its texts, which is what resume state is, are put back one
 * by one.
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
