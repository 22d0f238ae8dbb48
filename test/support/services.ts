/** How a test file asks the run's one keeper of servers (global-setup.ts) for the one it needs. */
import { inject } from 'vitest';

declare module 'vitest' {
  interface ProvidedContext {
    /** Where the keeper listens. */
    servicesUrl: string;
  }
}

export type ServiceName = 'postgres' | 'redis';

/** The first start of a Redis may download one. */
const START_TIMEOUT_MS = 120_000;

/** The server's URL; started by the first who asks, stopped at the end of the run. */
export async function serviceUrl(name: ServiceName): Promise<string> {
  const response = await fetch(new URL(name, inject('servicesUrl')), {
    signal: AbortSignal.timeout(START_TIMEOUT_MS),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`Cannot start ${name} for the tests: ${text}`);
  return text;
}
