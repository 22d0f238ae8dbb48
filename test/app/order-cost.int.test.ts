/**
 * What an order of a party of which nothing is new costs the stores, among few parties
 * and among many.
 */
import { createHash } from 'node:crypto';
import { afterAll, expect, test } from 'vitest';
import { exportOnDemand } from '../../src/runs/export-on-demand.ts';
import { startSandbox } from '../support/sandbox.ts';
import { countStatements } from '../support/measure/count-statements.ts';
import { CREDENTIALS, S3Double } from '../support/stores/s3-double.ts';
import { type RealApp, startRealApp } from './real-app.ts';
import { addIdleLedgers } from '../support/mirror-arrange.ts';

const ORDERS = 9;
const { signal } = new AbortController();

const sandbox = await startSandbox({ parties: 1, rateLimit: 'none' });
afterAll(() => sandbox.stop());

function idle(index: number): string {
  return createHash('sha256').update(`idle ${index}`).digest('hex');
}

async function order(
  { app: { jobs } }: RealApp,
  partyId: string,
): Promise<string> {
  const run = await jobs.runs.create({ kind: 'export', subject: partyId });
  const { verdict } = await exportOnDemand(run, jobs, signal);
  return verdict;
}

async function costOf(
  parties: number,
): Promise<{ statements: number; lists: number }> {
  await using store = await S3Double.start();
  const url = `s3://bucket/mirror?region=us-east-1&endpoint=${store.endpoint}`;
  const env = {
    SOURCE_URL: sandbox.url,
    OBJECT_STORE_URL: url,
    AWS_ACCESS_KEY_ID: CREDENTIALS.accessKeyId,
    AWS_SECRET_ACCESS_KEY: CREDENTIALS.secretAccessKey,
  };
  await using real = await startRealApp(env, { isWorking: false });
  const ids = Array.from({ length: parties }, (_, index) => idle(index));
  await addIdleLedgers(real.app.warehouse.pool, ids);
  // As a nightly run begins: from then on the store is not ahead of the database.
  await real.app.jobs.stages.catchUpWithStore(signal);
  expect(await order(real, idle(0))).toBe('complete');
  store.calls.length = 0;
  using counted = countStatements();
  for (let at = 0; at < ORDERS; at += 1)
    expect(await order(real, idle(at + 1))).toBe('complete');
  const lists = store.calls.filter((call) => call.includes('list-type')).length;
  return { statements: counted.statements, lists };
}

test('an order needs as many statements among 1,000 parties as among 10, and never lists the store', async () => {
  const few = await costOf(10);
  const many = await costOf(1_000);
  expect([few.lists, many.lists]).toEqual([0, 0]);
  // What the rate limit and the clock share among orders depends on how close together
  // they come.
  expect(Math.abs(many.statements - few.statements)).toBeLessThan(ORDERS);
});

test('an order holds what was there when it was ordered, however shortly after another', async () => {
  await using real = await startRealApp(
    { SOURCE_URL: sandbox.url },
    { isWorking: false },
  );
  const closedTo = async (): Promise<number> => {
    const run = await real.app.jobs.runs.create({
      kind: 'export',
      subject: idle(0),
    });
    await exportOnDemand(run, real.app.jobs, signal);
    const kept = await real.app.jobs.runs.get(run.runId);
    const clock = kept?.params['clock'] as { closedTo: string } | undefined;
    return Date.parse(clock?.closedTo ?? '');
  };
  const before = await closedTo();
  sandbox.advance(3_600_000);
  expect((await closedTo()) - before).toBeGreaterThanOrEqual(3_600_000);
});
