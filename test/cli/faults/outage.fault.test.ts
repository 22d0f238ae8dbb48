/**
 * A night outlives services that are away for seconds: it waits, goes on, and ends
 * exactly.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import type { Route } from '../../support/sandbox-faults.ts';
import { startSandbox } from '../../support/sandbox.ts';
import { openFreshDatabase } from '../../support/database.ts';
import { startOwnRedis } from '../../support/servers/redis.ts';
import { SilentProxy } from '../../support/servers/silent-proxy.ts';
import { waitFor } from '../../support/wait-for.ts';
import { expectLedgers, expectLists } from '../expect-truth.ts';
import { openHome } from '../mirror-home.ts';

const AWAY_MS = 5_000;

describe.concurrent.each([
  ['Postgres', 'the lists are read', 'parties', false],
  ['Postgres', 'ledgers are exported', 'export', false],
  ['Postgres', 'ledgers are exported, with queues in Redis', 'export', true],
  ['Redis', 'the lists are read', 'parties', true],
  ['Redis', 'ledgers are exported', 'export', true],
] as const)(
  'a %s that goes away for five seconds while %s',
  (service, _, route: Route, hasRedis) => {
    test('is waited for, and the nightly run ends complete with exit code 0', async () => {
      await using stack = new AsyncDisposableStack();
      const sandbox = stack.use(
        await startSandbox({ parties: 25, entriesMean: 20, rateLimit: 'none' }),
      );
      const database = stack.use(await openFreshDatabase());
      const redis = hasRedis ? stack.use(await startOwnRedis()) : undefined;
      const postgres = stack.use(await SilentProxy.before(database.url));
      const redisLine =
        redis === undefined
          ? undefined
          : stack.use(await SilentProxy.before(redis.url));
      const line = service === 'Postgres' ? postgres : redisLine;
      const home = stack.use(
        await openHome({
          SOURCE_URL: sandbox.url,
          DATABASE_URL: postgres.url,
          REDIS_URL: redisLine?.url,
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
      await waitFor(() => asked > 3, {
        what: `the source to be asked for ${route}`,
      });
      await line?.goAway();
      resolve();
      await sleep(AWAY_MS);
      await line?.comeBack();
      const { code } = await night.end(undefined, 240_000);
      const document = JSON.parse(night.stdout) as { verdict: string };
      expect([
        code,
        document.verdict,
        code === 0 ? '' : night.stderr.slice(-2_000),
      ]).toEqual([0, 'complete', '']);
      await expectLists(database.pool, sandbox.truth);
      await expectLedgers(database.pool, sandbox.truth, home.objectsDir);
    });
  },
);
