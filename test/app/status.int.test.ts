/** The status at a glance: what is under way, who works, and a night that was missed. */
import { afterAll, describe, expect, test } from 'vitest';
import { status } from '../../src/cli/commands/status.ts';
import { openStatusSource } from '../../src/app/base.ts';
import { openCommandContext } from '../cli/command-context.ts';
import { startSandbox } from '../support/sandbox.ts';
import { farMonth } from '../support/far-schedule.ts';
import { waitFor } from '../support/wait-for.ts';
import { startRealApp } from './real-app.ts';
import {
  addRun,
  emptyRuns,
  forgetWorkers,
  setMirrorCreatedAt,
  silenceRuns,
} from '../support/mirror-arrange.ts';

const sandbox = await startSandbox({
  parties: 2,
  entriesMean: 5,
  rateLimit: 'none',
  seed: 'status',
});
const mirror = await startRealApp(
  { SOURCE_URL: sandbox.url },
  { isWorking: false },
);
/** The last scheduled time, half a year ago: in this year, or in the one before. */
const now = new Date();
const isThisYear = farMonth(now.getTime()) <= now.getUTCMonth() + 1;
const SCHEDULED_AT = new Date(
  Date.UTC(
    now.getUTCFullYear() - (isThisYear ? 0 : 1),
    farMonth(now.getTime()) - 1,
  ),
).toISOString();
afterAll(async () => {
  await mirror[Symbol.asyncDispose]();
  await sandbox.stop();
});
const { pool } = mirror.app.warehouse;

const context = () => openCommandContext(mirror.app.config);

async function text(): Promise<string> {
  return (await status({ check: false }, context())).text ?? '';
}

async function mirrorStatus(): Promise<Readonly<Record<string, unknown>>> {
  return (await status({ check: false }, context())).document as Readonly<
    Record<string, unknown>
  >;
}

describe('the status', () => {
  test('reports a missed nightly run until another has begun', async () => {
    expect(await mirrorStatus()).toMatchObject({
      attention: [],
      work: { workers: 0, missedSlot: null },
    });
    await setMirrorCreatedAt(pool, '2020-01-01');
    const over = {
      subject: 'scheduled',
      state: 'done',
      verdict: 'complete',
      slot: 'an old one',
    };
    await addRun(pool, {
      kind: 'nightly',
      ...over,
      queued_at: '2021-01-01',
      finished_at: '2021-01-01',
    });
    expect(await mirrorStatus()).toMatchObject({
      whole: false,
      work: { workers: 0, missedSlot: SCHEDULED_AT },
      attention: [
        {
          what: `the nightly run of ${SCHEDULED_AT.slice(0, 10)} 00:00 UTC was missed`,
          why: 'no worker is running',
        },
      ],
    });
    await addRun(pool, { kind: 'nightly', subject: 'now', state: 'running' });
    expect(await mirrorStatus()).toMatchObject({
      attention: [],
      work: { missedSlot: null },
    });
  });

  test('is shown with the runs under way', async () => {
    const run = await mirror.app.jobs.runs.create({
      kind: 'sync',
      subject: 'parties',
    });
    await mirror.app.jobs.runs.start(run.runId);
    mirror.app.jobs.progress.report(run.runId, [
      { label: 'from the oldest', done: '1234', unit: 'rows' },
    ]);
    await waitFor(
      async () => (await text()).includes('from the oldest: 1,234 rows'),
      {
        what: 'the progress',
      },
    );
    expect(await text()).toContain('sync parties, begun');
    await mirror.app.jobWorker.startAndRegister();
    expect(await text()).toMatch(/Workers: 1; next nightly run in \d+ d/);
  });

  test('tells when the workers start the next nightly run, whatever SCHEDULE the asking process has', async () => {
    await using working = await startRealApp({
      SOURCE_URL: sandbox.url,
      SCHEDULE: '7 3 * * *',
    });
    const { warehouse, config } = working.app;
    const { work } = await openStatusSource(warehouse, {
      ...config,
      schedule: '0 12 * * *',
    }).facts();
    expect(work).toMatchObject({
      workers: 1,
      nextSlot: expect.stringContaining('T03:07:00') as string,
    });
  });

  test('tells a run whose process is gone from one that is under way', async () => {
    // The worker of the test before renews itself until it ends.
    await mirror.app.jobWorker[Symbol.asyncDispose]();
    await emptyRuns(pool);
    await forgetWorkers(pool);
    const at = new Date(Date.now() - 60_000);
    const times = { heartbeat_at: at, queued_at: at, started_at: at };
    await addRun(pool, {
      kind: 'nightly',
      subject: 'now',
      state: 'running',
      ...times,
    });
    const interrupted = await text();
    expect(interrupted).toContain(
      'Interrupted: nightly now; the next nightly run continues from what it committed',
    );
    expect(interrupted).not.toContain('Runs under way');
    await silenceRuns(pool, 0);
    expect((await status({ check: false }, context())).text).toContain(
      'Runs under way: 1',
    );
  });

  test('ends with 2 where the mirror is not complete, if it is asked to check that', async () => {
    expect((await status({ check: false }, context())).exitCode).toBe(0);
    expect((await status({ check: true }, context())).exitCode).toBe(2);
  });
});
