/**
 * How a test file asks the run's one keeper of servers (global-setup.ts) for the one it
 * needs.
 */
import { inject } from 'vitest';
import type { RedisCommand } from './redis-binary.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** Where the keeper listens. */
    servicesUrl: string;
  }
}

export type ServiceName = 'postgres' | 'redis';

/** Where the keeper tells which redis-server a test file may start for itself. */
export const REDIS_COMMAND = 'redis-command';

/** The first start of a Redis may download one. */
const START_TIMEOUT_MS = 120_000;

/** The server's URL; started by the first who asks, stopped at the end of the run. */
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
