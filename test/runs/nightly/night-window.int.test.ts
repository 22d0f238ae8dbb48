/** How long a nightly run asks the source. */
import { expect, test } from 'vitest';
import { fixNightWindow } from '../../../src/runs/nightly/night-window.ts';
import type { Run } from '../../../src/runs/store/run-store.ts';
import { setScheduleSince } from '../../support/mirror-arrange.ts';
import type { JobWorld } from '../stages-double.ts';
import { nightlyWorlds } from './nightly-world.ts';

const { database, openWorld } = await nightlyWorlds();
const SIX_HOURLY = { pattern: '0 2,8,14,20 * * *', tz: 'UTC' };

test('the window of a nightly run goes by the schedule that the workers keep, whatever this process has', async () => {
  await using world = await openWorld({});

  await setScheduleSince(database.pool, 'nightly', world.deps.schedule);
  expect(await until(await openNight(world), world)).toBe(
    '2026-03-02T01:00:00.000Z',
  );
  await setScheduleSince(database.pool, 'nightly', SIX_HOURLY, '2026-01-01');
  expect(await until(await openNight(world), world)).toBe(
    '2026-03-01T07:00:00.000Z',
  );
});

test('the window of a nightly run stays what it was when the schedule changes during the night', async () => {
  await using world = await openWorld({});
  await setScheduleSince(database.pool, 'nightly', world.deps.schedule);
  const night = await openNight(world);
  await until(night, world);

  await setScheduleSince(database.pool, 'nightly', SIX_HOURLY, '2026-01-01');
  const known = await world.deps.runs.get(night.runId);
  expect(await until({ ...night, ...known, startedAt: BEGAN }, world)).toBe(
    '2026-03-02T01:00:00.000Z',
  );
});

test('the window of a resumed nightly run goes by NIGHTLY_WINDOW if that is set meanwhile', async () => {
  await using world = await openWorld({});
  await setScheduleSince(database.pool, 'nightly', world.deps.schedule);
  const night = await openNight(world);
  await until(night, world);

  await using limited = await openWorld({}, { nightlyWindow: 3_600_000 });
  const known = await world.deps.runs.get(night.runId);
  expect(await until({ ...night, ...known, startedAt: BEGAN }, limited)).toBe(
    '2026-03-01T03:00:00.000Z',
  );
});

const BEGAN = '2026-03-01T02:00:00.000Z';

async function openNight({ deps }: JobWorld): Promise<Run> {
  const run = await deps.runs.create({ kind: 'nightly', subject: 'now' });
  await deps.runs.finish(run.runId, 'complete', {});
  return { ...run, startedAt: BEGAN };
}

async function until(night: Run, { deps }: JobWorld): Promise<string> {
  const { untilMs } = await fixNightWindow(night, deps);
  return new Date(untilMs).toISOString();
}
