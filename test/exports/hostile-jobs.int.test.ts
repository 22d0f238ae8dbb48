/**
 * Every answer of the hostile source, exported by real jobs on both queue backends, and
 * loaded.
 */
import { describe, expect, test } from 'vitest';
import { freshRedis } from '../support/servers/redis.ts';
import { exportCases, groupCases } from './hostile-by-jobs.ts';
import { CASES } from './hostile/cases/cases.ts';

const redis = await freshRedis();
const GROUPS = groupCases(CASES.filter(({ isHeavy }) => !isHeavy)).map(
  (cases) =>
    [
      cases.length === 1 ? (cases[0]?.name ?? '') : `${cases.length} cases`,
      cases,
    ] as const,
);

/** The limit for what hangs: there are 243 ledgers, some of them tried four times. */
const LIMIT_MS = 1_200_000;

describe.concurrent.each([
  ['Postgres', {}],
  ['Redis', { REDIS_URL: redis.url }],
])('the hostile source, queues in %s', (_, env) => {
  test.each(GROUPS)(
    'each ledger has the outcome that is right, run after run: %s',
    async (_name, cases) => {
      expect(await exportCases(cases, env)).toEqual([]);
    },
    LIMIT_MS,
  );
});
