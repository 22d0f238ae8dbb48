/**
 * What a long-lived process does at its first start: it looks whether it can work, and
 * begins at once.
 */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startSandbox, type Sandbox } from '../../support/sandbox.ts';
import { freshDatabase } from '../../support/database.ts';
import { waitFor } from '../../support/wait-for.ts';
import { openHome, type MirrorHome } from '../mirror-home.ts';
import { recordedRuns } from '../../support/mirror-state.ts';

const STARTED = 'its first nightly run starts now';
const database = await freshDatabase();
let sandbox: Sandbox;
let home: MirrorHome;

beforeAll(async () => {
  sandbox = await startSandbox({
    parties: 3,
    entriesMean: 5,
    rateLimit: 'none',
  });
  home = await openHome({
    SOURCE_URL: sandbox.url,
    DATABASE_URL: database.url,
    FIRST_RUN: 'now',
  });
});

afterAll(async () => {
  await home[Symbol.asyncDispose]();
  await sandbox.stop();
});

async function nights(): Promise<
  { subject: string; verdict: string | null }[]
> {
  return (await recordedRuns(database.pool, 'nightly')).map(
    ({ subject, verdict }) => ({
      subject,
      verdict,
    }),
  );
}

describe('a worker of a mirror that holds nothing', () => {
  test('waits for the schedule where FIRST_RUN says so', async () => {
    const worker = home.start(['worker'], { FIRST_RUN: 'scheduled' });
    await waitFor(() => worker.stderr.includes('"Working"'), {
      what: 'the worker',
    });
    await worker.end('SIGTERM');
    expect(await nights()).toEqual([]);
  });

  test('starts the first nightly run at once, and two that start together share it', async () => {
    const workers = [home.start(['worker']), home.start(['worker'])];
    await waitFor(async () => (await nights())[0]?.verdict !== undefined, {
      what: 'the first run',
    });
    await waitFor(async () => (await nights())[0]?.verdict !== null, {
      what: 'its end',
    });
    expect(await nights()).toEqual([{ subject: 'first', verdict: 'complete' }]);
    for (const worker of workers)
      expect((await worker.end('SIGTERM')).code).toBe(0);
  });

  test('starts no other at its next start', async () => {
    const worker = home.start(['worker']);
    await waitFor(() => worker.stderr.includes('"Working"'), {
      what: 'the worker',
    });
    await worker.end('SIGTERM');
    expect(worker.stderr).not.toContain(STARTED);
    expect(await nights()).toHaveLength(1);
  });
});

describe('a process that could not do its work', () => {
  test('does not start where nothing can be written in DATA_DIR', async () => {
    const file = join(home.dir, 'file');
    await writeFile(file, '');
    const { code, stderr } = await home.run(['worker'], {
      DATA_DIR: join(file, 'data'),
    });
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /ledger-mirror: DATA_DIR: cannot write to .* \(ENOTDIR\)/,
    );
  });

  test('refuses to listen for others without a token before it starts a database', async () => {
    const settings = {
      API_HOST: '0.0.0.0',
      DATABASE_URL: '',
      DATA_DIR: join(home.dir, 'untouched'),
    };
    const { code, stderr } = await home.run(['up'], settings);
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /API_HOST: "0\.0\.0\.0" can be reached from other machines/,
    );
    expect(stderr).not.toContain('Postgres');
  });
});
