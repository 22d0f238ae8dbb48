/**
 * What a party of which nothing is new costs the database, in a night of many of them.
 */
import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, describe, expect, test } from 'vitest';
import { enqueueRun } from '../../src/runs/enqueue.ts';
import type { Run } from '../../src/runs/store/run-store.ts';
import { startSandbox } from '../support/sandbox.ts';
import { countStatements } from '../support/measure/count-statements.ts';
import { serviceUrl } from '../support/servers/services.ts';
import { type Env, type RealApp, startRealApp } from './real-app.ts';

const SMALL = 200;
const LARGE = 600;
const STATEMENTS_MAX = 4;
const TRANSACTIONS_MAX = 1;
/**
 * Asked again and again while something is waited for: they follow the clock and the
 * machine's load, not the parties.
 */
const POLLS = [
  { text: /from mirror\.runs where run_id = \$1/, statements: 1 },
  { text: /count\(\*\) from mirror\.nightly_units/, statements: 1 },
  // With begin, two updates and commit.
  { text: /lock_key\('export limit'\)/, statements: 5 },
] as const;
const NIGHT_MS = 120_000;
const LOOK_MS = 500;

const sandbox = await startSandbox({ parties: 3, rateLimit: 'none' });
afterAll(() => sandbox.stop());

function parties(count: number): string {
  return Array.from({ length: count }, (_, index) =>
    createHash('sha256').update(`idle ${index}`).digest('hex'),
  ).join(',');
}

async function night({ app }: RealApp): Promise<Run> {
  const run = await app.jobs.runs.create({ kind: 'nightly', subject: 'now' });
  await enqueueRun(run, app.jobs);
  for (;;) {
    const now = await app.jobs.runs.get(run.runId);
    if (now?.state === 'done') return now;
    await sleep(LOOK_MS);
  }
}

function timesOf(pattern: RegExp, texts: ReadonlyMap<string, number>): number {
  return [...texts].reduce(
    (sum, [text, times]) => (pattern.test(text) ? sum + times : sum),
    0,
  );
}

/** The cost of a first night, and of a second one. */
async function cost(
  env: Env,
  count: number,
): Promise<{ statements: number; transactions: number }[]> {
  await using real = await startRealApp({
    ...env,
    SOURCE_URL: sandbox.url,
    NIGHTLY_PARTIES: parties(count),
  });
  const costs = [];
  for (const _ of ['first', 'second']) {
    using counted = countStatements();
    const run = await night(real);
    // The source lists none of these parties, and has no entries of them.
    expect(run.evidence['mirror']).toMatchObject({
      reasons: expect.arrayContaining(['PARTIES_NOT_LISTED']),
    });
    expect(run.evidence['exports']).toMatchObject({
      verdict: 'complete',
      parties: count,
      failed: 0,
    });
    const { texts } = counted;
    const polls = POLLS.map((poll) => ({
      ...poll,
      times: timesOf(poll.text, texts),
    }));
    const statements = polls.reduce(
      (left, poll) => left - poll.times * poll.statements,
      counted.statements,
    );
    const transactions = polls.reduce(
      (left, poll) => left - poll.times,
      counted.transactions,
    );
    costs.push({ statements, transactions });
    if (process.env['SHOW'] !== undefined)
      process.stdout.write(
        `${count}: ${statements} ${transactions}\n${[...texts]
          .toSorted(([, one], [, other]) => other - one)
          .slice(0, 25)
          .map(([text, times]) => `  ${times} ${text}\n`)
          .join('')}`,
      );
  }
  return costs;
}

describe('a party without new entries', () => {
  test.each(['Postgres', 'Redis'])(
    'costs at most four statements and one transaction, with queues in %s',
    async (queues) => {
      const env: Env =
        queues === 'Redis' ? { REDIS_URL: await serviceUrl('redis') } : {};
      const small = await cost(env, SMALL);
      const large = await cost(env, LARGE);
      for (const [index, { statements, transactions }] of large.entries()) {
        const before = small[index];
        const each = (now: number, then = 0): number =>
          (now - then) / (LARGE - SMALL);
        expect(each(statements, before?.statements)).toBeLessThanOrEqual(
          STATEMENTS_MAX,
        );
        expect(each(transactions, before?.transactions)).toBeLessThanOrEqual(
          TRANSACTIONS_MAX,
        );
      }
    },
    4 * NIGHT_MS,
  );
});
