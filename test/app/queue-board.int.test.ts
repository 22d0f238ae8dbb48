/** The queue board, over both stores that queues can live in. */
import { afterAll, describe, expect, test } from 'vitest';
import { startSandbox } from '../support/sandbox.ts';
import { freshRedis } from '../support/servers/redis.ts';
import { type Env, startRealApp } from './real-app.ts';

const sandbox = await startSandbox({
  parties: 2,
  entriesMean: 5,
  rateLimit: 'none',
  seed: 'board',
});
const redis = await freshRedis();
afterAll(() => sandbox.stop());
const TOKEN = 'a-token-for-the-board';

async function json(
  url: string,
  headers: Record<string, string> = {},
): Promise<unknown> {
  const response = await fetch(url, { headers });
  expect(response.status).toBe(200);
  return response.json();
}

interface Board {
  readonly queues: readonly {
    readonly name: string;
    readonly displayName: string;
    readonly readOnlyMode: boolean;
    readonly jobs: readonly {
      readonly id: string;
      readonly data: object;
      readonly externalUrl: object;
    }[];
  }[];
}

describe.each<[string, Env]>([
  ['postgres', {}],
  ['redis', { REDIS_URL: redis.url }],
])('the board over %s', (_kind, env) => {
  test('shows the queues and their jobs by ids, from its own files, and changes nothing without a token', async () => {
    await using mirror = await startRealApp(
      { SOURCE_URL: sandbox.url, ...env },
      { isWorking: false },
    );
    const board = `${mirror.url}/queues`;
    const run = await mirror.app.jobs.runs.create({
      kind: 'export',
      subject: 'ab'.repeat(32),
    });
    const data = { runId: run.runId };
    await mirror.app.queues.add('export', [
      { name: 'export-party', data, jobId: 'shown', priority: 1 },
    ]);
    const page = await fetch(board);
    const html = await page.text();
    expect(page.status).toBe(200);
    expect(html).not.toContain('https://');
    expect(page.headers.get('content-security-policy')).toContain(
      "script-src 'self'; style-src 'self'",
    );
    const files = [...html.matchAll(/(?:src|href)="(static\/[^"]+)"/g)].map(
      ([, file]) => file,
    );
    expect(files.length).toBeGreaterThan(3);
    for (const file of files)
      expect((await fetch(`${board}/${file}`)).status).toBe(200);
    const name =
      (mirror.app.queues.forBoard()[1]?.[1] as { name?: string } | undefined)
        ?.name ?? '';
    const shown = (await json(
      `${board}/api/queues?activeQueue=${name}&status=prioritized&page=1`,
    )) as Board;
    expect(shown.queues.map(({ displayName }) => displayName)).toEqual([
      'sync',
      'export',
      'load',
      'nightly',
    ]);
    expect(shown.queues.every(({ readOnlyMode }) => readOnlyMode)).toBe(true);
    expect(shown.queues[1]?.jobs).toMatchObject([
      { id: 'shown', data, externalUrl: { href: `/mirror/runs/${run.runId}` } },
    ]);
    const clean = await fetch(`${board}/api/queues/${name}/shown/clean`, {
      method: 'PUT',
    });
    expect(clean.status).toBeGreaterThanOrEqual(400);
    const foreign = await fetch(`${board}/api/queues`, {
      headers: { origin: 'https://elsewhere.example' },
    });
    expect(foreign.status).toBe(403);
    expect((await mirror.app.queues.counts('export'))['prioritized']).toBe(1);
  });

  test('asks for the token, and lets its bearer act', async () => {
    await using mirror = await startRealApp(
      { SOURCE_URL: sandbox.url, API_TOKEN: TOKEN, ...env },
      { isWorking: false },
    );
    const board = `${mirror.url}/queues`;
    for (const path of ['', '/', '/api/queues', '/static/js/none.js']) {
      expect((await fetch(`${board}${path}`)).status).toBe(401);
    }
    const page = await fetch(board, {
      headers: { accept: 'text/html' },
      redirect: 'manual',
    });
    expect([page.status, page.headers.get('location')]).toEqual([
      303,
      '/login?next=%2Fqueues',
    ]);
    const headers = { authorization: `Bearer ${TOKEN}` };
    await mirror.app.queues.add('load', [
      { name: 'load-segments', data: {}, jobId: 'unwanted', priority: 1 },
    ]);
    const shown = (await json(`${board}/api/queues`, headers)) as Board;
    expect(shown.queues.every(({ readOnlyMode }) => !readOnlyMode)).toBe(true);
    const name = shown.queues[2]?.name ?? '';
    const clean = await fetch(`${board}/api/queues/${name}/unwanted/clean`, {
      method: 'PUT',
      headers,
    });
    expect(clean.status).toBe(204);
    expect((await mirror.app.queues.counts('load'))['prioritized']).toBe(0);
    // A broken escape is the asker's mistake, not ours.
    expect(
      (await fetch(`${board}/api/queues?activeQueue=%`, { headers })).status,
    ).toBe(400);
  });

  test('lets a read token look, and change nothing', async () => {
    const tokens = {
      API_TOKEN: TOKEN,
      API_READ_TOKEN: 'a-token-that-only-reads',
    };
    await using mirror = await startRealApp(
      { SOURCE_URL: sandbox.url, ...tokens, ...env },
      { isWorking: false },
    );
    const board = `${mirror.url}/queues`;
    const headers = { authorization: 'Bearer a-token-that-only-reads' };
    const shown = (await json(`${board}/api/queues`, headers)) as Board;
    const name = shown.queues[0]?.name ?? '';
    for (const path of [
      'pause',
      'resume',
      `${name}/pause`,
      `${name}/empty`,
      `${name}/obliterate`,
    ]) {
      const put = await fetch(`${board}/api/queues/${path}`, {
        method: 'PUT',
        headers,
      });
      expect([path, put.status]).toEqual([path, 403]);
    }
  });
});
