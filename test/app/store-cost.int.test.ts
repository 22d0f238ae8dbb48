/** What an idle night asks of the object store, among few parties and among many. */
import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, expect, test } from 'vitest';
import { enqueueRun } from '../../src/runs/enqueue.ts';
import { startSandbox } from '../support/sandbox.ts';
import { CREDENTIALS, S3Double } from '../support/stores/s3-double.ts';
import { type RealApp, startRealApp } from './real-app.ts';

const LOOK_MS = 20;
const FEW = 10;
const MANY = Number(process.env['PARTIES'] ?? 200);

const sandbox = await startSandbox({ parties: 3, rateLimit: 'none' });
afterAll(() => sandbox.stop());

function parties(count: number): string {
  return Array.from({ length: count }, (_, index) =>
    createHash('sha256').update(`idle ${index}`).digest('hex'),
  ).join(',');
}

async function night({ app }: RealApp): Promise<void> {
  const run = await app.jobs.runs.create({ kind: 'nightly', subject: 'now' });
  await enqueueRun(run, app.jobs);
  for (;;) {
    const now = await app.jobs.runs.get(run.runId);
    if (now?.state === 'done') return;
    await sleep(LOOK_MS);
  }
}

interface StoreCost {
  /** Without the looks at the owner's object. */
  readonly requests: number;
  /**
   * Looks at `mirror.json`, which are repeated after 2 and 30 seconds: their number grows
   * with the time that a night takes, and not with the parties.
   */
  readonly ownerLooks: number;
  /** How often the keys of all segments were listed. */
  readonly listings: number;
}

/** The cost of a second night. */
async function costOf(count: number): Promise<StoreCost> {
  await using store = await S3Double.start();
  await using real = await startRealApp({
    SOURCE_URL: sandbox.url,
    NIGHTLY_PARTIES: parties(count),
    OBJECT_STORE_URL: `s3://bucket/mirror?region=us-east-1&endpoint=${store.endpoint}`,
    AWS_ACCESS_KEY_ID: CREDENTIALS.accessKeyId,
    AWS_SECRET_ACCESS_KEY: CREDENTIALS.secretAccessKey,
  });
  await night(real);
  let ownerLooks = 0;
  store.fault = ({ key }, moment) => {
    if (moment === 'before' && key.endsWith('/mirror.json')) ownerLooks += 1;
    return undefined;
  };
  store.calls.length = 0;
  store.listed.length = 0;
  await night(real);
  const listings = store.listed.filter((prefix) =>
    prefix.endsWith('/ledger/'),
  ).length;
  return { requests: store.calls.length - ownerLooks, ownerLooks, listings };
}

test('an idle night asks the store as often among many parties as among few, and lists segments once', async () => {
  const few = await costOf(FEW);
  const many = await costOf(MANY);
  if (process.env['SHOW'] !== undefined)
    process.stdout.write(`${JSON.stringify({ few, many })}\n`);
  expect([few.listings, many.listings]).toEqual([1, 1]);
  expect(many.requests).toBe(few.requests);
  expect(many.ownerLooks).toBeLessThanOrEqual(few.ownerLooks + 4);
});
