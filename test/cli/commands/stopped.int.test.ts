/**
 * SIGTERM at any moment: the long-lived processes end in 0, and what they had in hand is
 * free at once.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startSandbox, type Sandbox } from '../../support/sandbox.ts';
import { freshDatabase } from '../../support/database.ts';
import { waitFor } from '../../support/wait-for.ts';
import { openHome, type MirrorHome } from '../mirror-home.ts';
import { recordedRuns } from '../../support/mirror-state.ts';

const database = await freshDatabase();
const NEVER = new Promise<never>(() => undefined);
let sandbox: Sandbox;
let home: MirrorHome;

beforeAll(async () => {
  sandbox = await startSandbox({
    parties: 12,
    entriesMean: 60,
    rateLimit: 'none',
  });
  home = await openHome({
    SOURCE_URL: sandbox.url,
    DATABASE_URL: database.url,
    API_PORT: '0',
  });
});

afterAll(async () => {
  await home[Symbol.asyncDispose]();
  await sandbox.stop();
});

describe('a command that is told to stop', () => {
  test.each(['up', 'worker', 'serve'])(
    'ends in 0 while it waits for its database: %s',
    async (command) => {
      const child = home.start([command], {
        DATABASE_URL: 'postgres://someone@127.0.0.1:1/mirror',
      });
      await waitFor(() => child.stderr.includes('"Not reachable yet"'), {
        what: 'the first try',
      });
      expect(await child.end('SIGTERM')).toEqual({ code: 0, signal: null });
    },
  );

  test('gives its run back instead of ending it where it is a worker amid a sync', async () => {
    const worker = home.start(['worker']);
    await waitFor(() => worker.stderr.includes('"Working"'), {
      what: 'the worker',
    });
    let isAsked = false;
    sandbox.faults.add(({ route }) => {
      isAsked ||= route === 'parties';
      return isAsked ? { until: NEVER } : undefined;
    });
    const command = home.start(['sync', 'parties', '--json']);
    await waitFor(() => isAsked, { what: 'a question' });
    await command.end('SIGKILL');
    expect(await worker.end('SIGTERM')).toEqual({ code: 0, signal: null });
    expect(await recordedRuns(database.pool)).toMatchObject([
      { state: 'running', heartbeatAt: null, evidence: {} },
    ]);
    expect(worker.stderr).not.toMatch(/"level":"(?:warn|error)"/);
    sandbox.faults.clear();
    expect((await home.json(['sync', 'parties'])).document.verdict).toBe(
      'complete',
    );
  });
});
