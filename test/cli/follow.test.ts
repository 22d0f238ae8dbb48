/** What a waiting command tells, with a terminal and an app of the test's own. */
import { PassThrough } from 'node:stream';
import { text as readText } from 'node:stream/consumers';
import { stripVTControlCharacters } from 'node:util';
import { expect, test } from 'vitest';
import type { App } from '../../src/app/app.ts';
import type { CommandContext } from '../../src/cli/context.ts';
import { followRun, startNight } from '../../src/cli/follow.ts';
import { openTerminal } from '../../src/cli/output/progress.ts';
import type { Run } from '../../src/runs/store/run-store.ts';

const RUN = {
  runId: 'r1',
  kind: 'verify',
  subject: 'deep',
  state: 'cancelled',
  verdict: null,
} as Run;

/** @returns everything that `work` had written to a terminal */
async function shown(
  work: (context: CommandContext) => Promise<unknown>,
): Promise<string> {
  const terminal = Object.assign(new PassThrough(), { isTTY: true });
  const opened = openTerminal(terminal, 'silent');
  const signal = AbortSignal.timeout(10_000);
  await work({
    ...opened,
    signal,
  } as Partial<CommandContext> as CommandContext);
  opened.progress[Symbol.dispose]();
  terminal.end();
  return stripVTControlCharacters(await readText(terminal));
}

test('a run that was cancelled ends without a mark of success', async () => {
  const jobs = {
    runs: { get: async () => RUN, stale: async () => [] },
    progress: {
      read: async () => [{ label: 'verify', done: '3', unit: 'files' }],
    },
  };
  const app = {
    jobs,
    workers: { anyAlive: async () => true },
  } as unknown as App;
  const said = await shown((context) => followRun(app, RUN, context));
  expect(said).toMatch(/^! verify {2}3 files so far, in \d+ ms {2}cancelled$/m);
});

test('a nightly run that waits for another says so on a terminal, whatever the log level is', async () => {
  const going = [{ ...RUN, kind: 'nightly', runId: 'first' }];
  const runs = {
    findNightly: async () => going.shift(),
    order: async () => ({ run: RUN, found: 'none' }),
  };
  const app = {
    jobs: { runs },
    workers: { anyAlive: async () => true },
  } as unknown as App;
  const said = await shown((context) => startNight(app, 'now', context));
  expect(said).toMatch(/Waiting for another nightly run {2}runId=first/);
});
