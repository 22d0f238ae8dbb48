/**
 * Lets a test file request a server from the server keeper (global-setup.ts). Each test
 * run has one keeper.
 */
import { inject } from 'vitest';
import type { RedisCommand } from './redis-binary.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** The address of the keeper. */
    servicesUrl: string;
  }
}

export type ServiceName = 'postgres' | 'redis';

/**
 * The keeper's path that returns the redis-server that a test file may start for itself.
 */
export const REDIS_COMMAND = 'redis-command';

/**
 * How long a server may take to start: the first start of Redis may include a download.
 */
const START_TIMEOUT_MS = 120_000;

/**
 * Returns the server's URL. The first request starts the server; the end of the run stops
 * it.
 */
export function serviceUrl(name: ServiceName): Promise<string> {
  return askKeeper(name);
}

export async function redisCommand(): Promise<RedisCommand> {
  return JSON.parse(await askKeeper(REDIS_COMMAND)) as RedisCommand;
}

async function askKeeper(what: string): Promise<string> {
  const response = await fetch(new URL(what, inject('servicesUrl')), {
    signal: AbortSignal.timeout(START_TIMEOUT_MS),
  });
  const text = await response.text();
  if (!response.ok)
    throw new Error(`Cannot start ${what} for the tests: ${text}`);
  return text;
}
