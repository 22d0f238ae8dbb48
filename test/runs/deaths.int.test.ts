/** Jobs that end their process: three in a row at the same place are enough. */
import { beforeEach, describe, expect, test } from 'vitest';
import type { ProgressLine } from '../../src/runs/progress.ts';
import type { Run, RunStore } from '../../src/runs/store/run-store.ts';
import { countDeaths, DEATHS_MAX, workRun } from '../../src/runs/work-run.ts';
import { freshDatabase } from '../support/database.ts';
import { openJobWorld } from './stages-double.ts';

const database = await freshDatabase({ isMigrated: true });
const world = await openJobWorld(database.url, 'deaths', {});
const runs: RunStore = world.deps.runs;
const LINE: ProgressLine = { label: 'parties', done: '1000', unit: 'rows' };
let place: readonly ProgressLine[] = [];
const progress = {
  read: async () => place,
  settle: async () => undefined,
  report: () => undefined,
};

beforeEach(() => {
  place = [LINE];
});

async function fresh(): Promise<string> {
  return (
    await runs.create({
      kind: 'sync',
      subject: 'parties',
      params: { test: crypto.randomUUID() },
    })
  ).runId;
}

/** What a killed process leaves: begun, renewed for a while, silent since. */
async function die(runId: string, livedSeconds: number): Promise<void> {
  await database.pool.query(
    `update mirror.runs set state = 'running', attempts = attempts + 1,
       started_at = clock_timestamp() - make_interval(secs => 600 + $2),
       heartbeat_at = clock_timestamp() - interval '600 seconds',
       params = params || jsonb_build_object('deliveredAt',
         to_char((clock_timestamp() - make_interval(secs => 600 + $2)) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
     where run_id = $1`,
    [runId, livedSeconds],
  );
}

async function known(runId: string): Promise<Run> {
  const run = await runs.get(runId);
  if (run === undefined) throw new Error('no run');
  return run;
}

describe('a run whose job ended its process', () => {
  test('is given up after three processes in a row died at the same progress, without being worked again', async () => {
    const runId = await fresh();
    const deps = { ...world.deps, progress };
    let worked = 0;
    const deliver = (): Promise<void> =>
      workRun(
        runId,
        deps,
        { signal: new AbortController().signal, attempt: 1, dueMs: 0 },
        async () => {
          worked += 1;
          throw new Error('the process ended here');
        },
      ).catch(() => undefined);
    for (let death = 1; death < DEATHS_MAX; death += 1) {
      await die(runId, 30);
      expect(await countDeaths(await known(runId), { runs, progress })).toBe(
        death,
      );
    }
    await die(runId, 30);
    await deliver();
    expect(worked).toBe(0);
    expect(await known(runId)).toMatchObject({
      state: 'done',
      verdict: 'failed',
      evidence: { error: { code: 'DELIVERED_TOO_OFTEN' } },
    });
  });

  test('counts from one again as soon as it got further', async () => {
    const runId = await fresh();
    for (let death = 1; death <= 10; death += 1) {
      place = [{ ...LINE, done: String(death) }];
      await die(runId, 30);
      expect(await countDeaths(await known(runId), { runs, progress })).toBe(1);
    }
  });

  test('does not count a process that was killed as soon as it began', async () => {
    const runId = await fresh();
    for (let death = 1; death <= 10; death += 1) {
      await die(runId, 1);
      expect(await countDeaths(await known(runId), { runs, progress })).toBe(0);
    }
  });

  test('does not count a process that gave the run back', async () => {
    const runId = await fresh();
    await die(runId, 30);
    await runs.giveBack(runId);
    expect(await countDeaths(await known(runId), { runs, progress })).toBe(0);
  });
});
