/**
 * What every view says of the next, the missed, the running and the last nightly run: the
 * same, by the workers' schedule and the database's clock, whatever SCHEDULE the process
 * that is asked has.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeEach, expect, test } from 'vitest';
import { runChecks } from '../../src/app/doctor.ts';
import { status } from '../../src/cli/commands/status.ts';
import { createLog } from '../../src/logging/log.ts';
import { WorkerRegistry } from '../../src/observability/store/worker-registry.ts';
import type { MirrorStatus } from '../../src/status/status-summary.ts';
import {
  describeNextTimes,
  nextScheduledMs,
  type Schedules,
} from '../../src/time/scheduled-times.ts';
import { openCommandContext } from '../cli/command-context.ts';
import { startSandbox } from '../support/sandbox.ts';
import {
  addRun,
  daysAgo,
  emptyRuns,
  forgetWorkers,
  keepWorkersAlive,
  setMirrorCreatedAt,
  setScheduleSince,
} from '../support/mirror-arrange.ts';
import { startRealApp } from './real-app.ts';

const sandbox = await startSandbox({ parties: 2, entriesMean: 5 });
const mirror = await startRealApp(
  { SOURCE_URL: sandbox.url },
  { isWorking: false },
);
afterAll(async () => {
  await mirror[Symbol.asyncDispose]();
  await sandbox.stop();
});
const { pool, db } = mirror.app.warehouse;
const workers = new WorkerRegistry(db);

const SWISS: Schedules = {
  nightly: { pattern: '7 3 * * *', tz: 'Europe/Zurich' },
  audit: { pattern: '17 5 * * 3', tz: 'Europe/Zurich' },
};
const AUSTRALIAN: Schedules = {
  nightly: { pattern: '45 1 1,15 * *', tz: 'Australia/Lord_Howe' },
  audit: { pattern: '15 4 * * 0', tz: 'Australia/Lord_Howe' },
};

beforeEach(async () => {
  await forgetWorkers(pool);
  await emptyRuns(pool);
});

test('every view names no next nightly run while no worker is there to begin it', async () => {
  await expect.poll(sayNext).toEqual({ status: null, console: null });
});

test('every view names the next nightly run of the schedule that the workers keep', async () => {
  await beat(SWISS);
  await expect.poll(sayNext).toEqual(saidOf(SWISS));
  expect(await askDoctor()).toMatchObject({
    state: 'ok',
    detail: `nightly runs: ${describeNextTimes(SWISS.nightly, Date.now())}`,
  });
});

test('every view goes by the worker that started last if their schedules differ, and names the other', async () => {
  await beat(SWISS);
  await beat(AUSTRALIAN);
  await expect.poll(sayNext).toEqual(saidOf(AUSTRALIAN));

  const next = describeNextTimes(AUSTRALIAN.nightly, Date.now());
  expect(await askDoctor()).toMatchObject({
    state: 'warning',
    detail: expect.stringMatching(
      /^nightly runs: .*; these are of the worker that started last; 1 other schedule is set at other workers: give all of them the same SCHEDULE, SCHEDULE_TZ and AUDIT_SCHEDULE$/,
    ) as string,
  });
  expect((await askDoctor())?.detail).toContain(next);
  expect((await readStatus()).attention).toContainEqual(
    expect.objectContaining({
      what: 'workers have different schedules',
      why:
        'in force is 45 1 1,15 * * (Australia/Lord_Howe), audits 15 4 * * 0, of the ' +
        'worker that started last; others have 7 3 * * * (Europe/Zurich), audits 17 5 * * 3',
    }),
  );
});

test('every view reports a missed nightly run until another is running', async () => {
  const missed = new Date(new Date(Date.now() - 600_000).setUTCSeconds(0, 0));
  const missedAt = missed.toISOString();
  const pattern = `${missed.getUTCMinutes()} ${missed.getUTCHours()} * * *`;
  const nightly = { pattern, tz: 'UTC' };
  await setMirrorCreatedAt(pool, '2026-01-01');
  await setScheduleSince(pool, 'nightly', nightly, '2026-01-01');
  await beat({ ...SWISS, nightly });

  expect(await readStatus()).toMatchObject({
    nights: { missedAt },
    work: { missedSlot: missedAt },
  });
  await expect.poll(readConsole).toMatchObject({ nights: { missedAt } });
  await expect.poll(() => sample('nightly_missed')).toBe(1);
  expect(await askDoctor()).toMatchObject({
    state: 'warning',
    detail: expect.stringContaining(
      `the one of ${missedAt} was missed`,
    ) as string,
  });

  await addRun(pool, { kind: 'nightly', subject: 'now', state: 'running' });
  expect(await readStatus()).toMatchObject({ nights: { missedAt: null } });
  await expect.poll(() => sample('nightly_missed')).toBe(0);
  expect(await askDoctor()).toMatchObject({ state: 'ok' });
});

test('every view reports the last nightly run, and the running one that waits for the source', async () => {
  await beat(SWISS);
  const over = { kind: 'nightly', subject: 'scheduled', state: 'done' };
  const startedAt = new Date('2026-02-01T02:00:00Z');
  const finishedAt = new Date('2026-02-01T02:10:00Z');
  await addRun(pool, {
    ...over,
    verdict: 'complete',
    queued_at: daysAgo(2),
    started_at: startedAt,
    finished_at: finishedAt,
  });
  const last = await addRun(pool, {
    ...over,
    verdict: 'incomplete',
    queued_at: daysAgo(1),
    started_at: new Date('2026-02-02T02:00:00Z'),
    finished_at: new Date('2026-02-02T02:20:00Z'),
  });
  const since = '2026-02-03T02:00:10+00:00';
  const sourceAbsence = {
    since,
    code: 'SOURCE_BUSY',
    message: 'the source answers 502',
    route: 'everything',
  };
  const running = await addRun(pool, {
    kind: 'nightly',
    subject: 'scheduled',
    state: 'running',
    params: { sourceAbsence },
  });

  const nights = {
    last: { runId: last, verdict: 'incomplete' },
    running: {
      runId: running,
      awaitedSource: { since, reason: 'the source answers 502' },
    },
  };
  expect(await readStatus()).toMatchObject({
    nights,
    openNightlyRun: running,
    awaitedSource: nights.running.awaitedSource,
  });
  await expect.poll(readConsole).toMatchObject({ nights });
  await expect
    .poll(async () => ({
      seconds: await sample('run_last_duration_seconds{kind="nightly"}'),
      complete: await sample('last_success_timestamp_seconds{kind="nightly"}'),
      running: await sample('nightly_running'),
      waiting: await sample('nightly_waiting'),
    }))
    .toEqual({
      seconds: 1_200,
      complete: finishedAt.getTime() / 1_000,
      running: 1,
      waiting: 1,
    });
});

/** As a worker does that starts now. */
async function beat(schedules: Schedules): Promise<void> {
  await workers.beat(randomUUID(), {
    name: 'a worker',
    queues: [],
    sourceUrl: sandbox.url,
    schedules,
  });
  await keepWorkersAlive(pool);
}

function saidOf({ nightly, audit }: Schedules): object {
  const nextMs = nextScheduledMs(nightly, Date.now());
  const next = new Date(nextMs).toISOString();
  const audited = new Date(nextScheduledMs(audit, Date.now())).toISOString();
  return {
    status: next,
    slot: next,
    console: next,
    audit: audited,
    metrics: nextMs / 1_000,
  };
}

/** What is null, or has no sample, is left out. */
async function sayNext(): Promise<object> {
  const { nights, work } = await readStatus();
  const { nextNightlyRun, nextAudit } = await readConsole();
  const metrics = await sample(
    'next_scheduled_timestamp_seconds{kind="nightly"}',
  );
  const found = {
    slot: work.nextSlot,
    audit: nextAudit,
    metrics,
  };
  return {
    status: nights.nextAt,
    console: nextNightlyRun,
    ...Object.fromEntries(
      Object.entries(found).filter(([, value]) => value != null),
    ),
  };
}

async function readStatus(): Promise<MirrorStatus> {
  const context = openCommandContext(mirror.app.config);
  const { document } = await status({ check: false }, context);
  return document as unknown as MirrorStatus;
}

interface Snapshot {
  readonly nextNightlyRun: string | null;
  readonly nextAudit: string | null;
  readonly nights: MirrorStatus['nights'];
}

/** The first snapshot that a page of the console gets. */
async function readConsole(): Promise<Snapshot> {
  const { body } = await fetch(`${mirror.url}/console/events`);
  const decoder = new TextDecoder();
  let text = '';
  // Leaving the loop closes the connection.
  for await (const chunk of body ?? []) {
    text += decoder.decode(chunk, { stream: true });
    const data = /^data: (.*)\n\n/m.exec(text)?.[1];
    if (data === undefined) continue;
    const {
      nextNightlyRun,
      upkeep,
      status: shown,
    } = JSON.parse(data) as {
      nextNightlyRun: string | null;
      upkeep: { nextAudit: string | null };
      status: MirrorStatus;
    };
    return {
      nextNightlyRun,
      nextAudit: upkeep.nextAudit,
      nights: shown.nights,
    };
  }
  throw new Error('the console sent no snapshot');
}

async function sample(name: string): Promise<number | undefined> {
  const text = await (await fetch(`${mirror.url}/metrics`)).text();
  const line = text
    .split('\n')
    .find((one) => one.startsWith(`ledger_mirror_${name} `));
  return line === undefined ? undefined : Number(line.split(' ').at(-1));
}

async function askDoctor(): Promise<
  { readonly state: string; readonly detail: string } | undefined
> {
  const found = await runChecks({
    config: mirror.app.config,
    log: createLog('silent'),
    signal: new AbortController().signal,
  });
  return found.find(({ what }) => what === 'schedule');
}
