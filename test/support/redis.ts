/** The run's Redis under a prefix of one's own, or a whole server of one's own. */
import { randomBytes } from 'node:crypto';
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

/** A private server that the test may stop, kill, flush and start again: `await using redis = …`. */
export async function startOwnRedis(): Promise<RedisProcess> {
  return RedisProcess.start(await redisCommand());
}

async function deleteKeys(url: string, prefix: string): Promise<void> {
  const redis = new Redis(url);
  try {
    for await (const keys of redis.scanStream({ match: `${prefix}*`, count: SCAN_COUNT })) {
      if (keys.length > 0) await redis.unlink(...keys);
    }
  } finally {
    redis.disconnect();
  }
}
