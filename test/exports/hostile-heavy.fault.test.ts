/**
 * What sends more than 50 MB: a message of 70, a row of 100, what never ends. By real
 * jobs on both queue backends.
 */
import { describe, expect, test } from 'vitest';
import { freshRedis } from '../support/servers/redis.ts';
import { exportCases } from './hostile-by-jobs.ts';
import { CASES } from './hostile/cases/cases.ts';

const redis = await freshRedis();

/** The limit for what hangs: failed requests have growing pauses between them. */
const LIMIT_MS = 1_200_000;

describe.concurrent.each([
  ['Postgres', {}],
  ['Redis', { REDIS_URL: redis.url }],
])('the heavy answers of the hostile source, queues in %s', (_, env) => {
  test(
    'each ledger has the outcome that is right',
    async () => {
      expect(
        await exportCases(
          CASES.filter(({ isHeavy }) => isHeavy),
          env,
          2,
        ),
      ).toEqual([]);
    },
    LIMIT_MS,
  );
});
