/** A night outlives services that are away for seconds: it waits, goes on, and ends exactly. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { describe, expect, test } from 'vitest';
import type { Route } from '../../src/sandbox/faults.ts';
import { startSandbox } from '../../src/sandbox/server.ts';
import { openFreshDatabase } from '../support/database.ts';
import { startOwnRedis } from '../support/redis.ts';
import { serviceUrl } from '../support/services.ts';
import { waitFor } from '../support/wait-for.ts';
import { expectLedgers, expectLists } from './as-the-books.ts';
import { openHome } from './mirror-home.ts';

const AWAY_MS = 5_000;

/** No connection of the database lives, and none is taken, until the returned function is called. */
async function takeAway(url: string): Promise<() => Promise<void>> {
  const administrator = new Client({ connectionString: await serviceUrl('postgres') });
  await administrator.connect();
  const name = new URL(url).pathname.slice(1);
  await administrator.query(`alter database ${name} with allow_connections false`);
  await administrator.query(
    `select pg_terminate_backend(pid) from pg_stat_activity where datname = '${name}'`,
  );
  return async () => {
    await administrator.query(`alter database ${name} with allow_connections true`);
    await administrator.end();
  };
}

describe.concurrent.each([
  ['Postgres', 'the lists are read', 'parties', false],
  ['Postgres', 'ledgers are exported', 'export', false],
  ['Postgres', 'ledgers are exported, with queues in Redis', 'export', true],
  ['Redis', 'the lists are read', 'parties', true],
  ['Redis', 'ledgers are exported', 'export', true],
] as const)('a %s that goes away for five seconds while %s', (service, _, route: Route, hasRedis) => {
  test('is waited for: the night ends complete, with exit code 0', async () => {
    await using stack = new AsyncDisposableStack();
    const sandbox = stack.use(await startSandbox({ parties: 25, entriesMean: 20, rateLimit: 'none' }));
    const database = stack.use(await openFreshDatabase());
    const redis = hasRedis ? stack.use(await startOwnRedis()) : undefined;
    const home = stack.use(
      await openHome({
        SOURCE_URL: sandbox.url,
        DATABASE_URL: database.url,
        REDIS_URL: redis?.url,
        SOURCE_PAGE_SIZE: '5',
      }),
    );
    const { promise, resolve } = Promise.withResolvers<void>();
    let asked = 0;
    sandbox.faults.add((request) => {
      if (request.route !== route) return undefined;
      asked += 1;
      return asked > 3 ? { until: promise } : undefined;
    });
    const night = home.start(['nightly', '--json']);
    await waitFor(() => asked > 3, { what: `the source to be asked for ${route}` });
    const bringBack =
      service === 'Postgres'
        ? await takeAway(database.url)
        : await redis?.kill().then(() => () => redis.start());
    resolve();
    await sleep(AWAY_MS);
    await bringBack?.();
    const { code } = await night.end(undefined, 240_000);
    const document = JSON.parse(night.stdout) as { verdict: string };
    expect([code, document.verdict]).toEqual([0, 'complete']);
    await expectLists(database.pool, sandbox.books);
    await expectLedgers(database.pool, sandbox.books, home.objectsDir);
  });
});
