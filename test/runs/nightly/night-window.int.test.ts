/** How long a nightly run asks the source. */
import { expect, test } from 'vitest';
import { readNightWindow } from '../../../src/runs/nightly/night-window.ts';
import { setScheduleSince } from '../../support/mirror-arrange.ts';
import { nightlyWorlds } from './nightly-world.ts';

const { database, openWorld } = await nightlyWorlds();
const RUN = {
  startedAt: '2026-03-01T02:00:00.000Z',
  queuedAt: '2026-03-01T02:00:00.000Z',
};

test('the window of a nightly run goes by the schedule that the workers keep, whatever this process has', async () => {
  await using world = await openWorld({});
  const until = async (): Promise<string> => {
    const { untilMs } = await readNightWindow(RUN, world.deps);
    return new Date(untilMs).toISOString();
  };

  await setScheduleSince(database.pool, 'nightly', world.deps.schedule);
  expect(await until()).toBe('2026-03-02T01:00:00.000Z');
  const sixHourly = { pattern: '0 2,8,14,20 * * *', tz: 'UTC' };
  await setScheduleSince(database.pool, 'nightly', sixHourly, '2026-01-01');
  expect(await until()).toBe('2026-03-01T07:00:00.000Z');
});
