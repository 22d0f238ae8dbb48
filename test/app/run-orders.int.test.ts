/** Runs over HTTP: started once for each key, waited for, watched, cancelled. */
import { afterAll, describe, expect, test } from 'vitest';
import { startSandbox } from '../support/sandbox.ts';
import { startRealApp } from './real-app.ts';

const sandbox = await startSandbox({
  parties: 6,
  entriesMean: 40,
  rateLimit: 'none',
  seed: 'run orders',
});
const mirror = await startRealApp({ SOURCE_URL: sandbox.url });
const idle = await startRealApp(
  { SOURCE_URL: sandbox.url },
  { isWorking: false },
);
afterAll(async () => {
  await mirror[Symbol.asyncDispose]();
  await idle[Symbol.asyncDispose]();
  await sandbox.stop();
});

interface Answer {
  readonly status: number;
  readonly location: string | null;
  readonly run: Readonly<Record<string, unknown>>;
}

async function post(
  body: object,
  key?: string,
  url = mirror.url,
): Promise<Answer> {
  const headers = {
    'content-type': 'application/json',
    ...(key === undefined ? {} : { 'idempotency-key': key }),
  };
  const response = await fetch(`${url}/mirror/runs`, {
    method: 'POST',
    headers,
    body: JSON.stringify(body),
  });
  const run = (await response.json()) as Answer['run'];
  return {
    status: response.status,
    location: response.headers.get('location'),
    run,
  };
}

async function ended(id: unknown): Promise<Answer['run']> {
  for (;;) {
    const response = await fetch(
      `${mirror.url}/mirror/runs/${String(id)}?wait=60`,
    );
    expect(response.status).toBe(200);
    const run = (await response.json()) as Answer['run'];
    if (run['state'] === 'done' || run['state'] === 'cancelled') return run;
  }
}

describe('POST /mirror/runs', () => {
  test.each([
    [{ kind: 'sync' }, 'sync'],
    [{ kind: 'audit', list: 'checkpoints' }, 'sync'],
    [{ kind: 'nightly' }, 'nightly'],
    [{ kind: 'load' }, 'load'],
    [{ kind: 'verify', deep: true }, 'verify'],
  ])('%j is queued, worked and ends complete', async (body, kind) => {
    const { status, location, run } = await post(body);
    expect([status, location, run['kind']]).toEqual([
      202,
      `/mirror/runs/${String(run['id'])}`,
      kind,
    ]);
    expect(await ended(run['id'])).toMatchObject({
      state: 'done',
      status: 'succeeded',
      verdict: 'complete',
      retryable: false,
      error: null,
    });
  });

  test('twenty at once with one key are one run, also after it has ended', async () => {
    const key = crypto.randomUUID();
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => post({ kind: 'load' }, key)),
    );
    expect(new Set(answers.map(({ run }) => run['id'])).size).toBe(1);
    expect(answers.filter(({ status }) => status === 202)).toHaveLength(1);
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(19);
    const [first] = answers;
    await ended(first?.run['id']);
    const again = await post({ kind: 'load' }, key);
    expect([again.status, again.run['id'], again.run['status']]).toEqual([
      200,
      first?.run['id'],
      'succeeded',
    ]);
  });

  test('a key that was used for another order is a 422', async () => {
    const key = crypto.randomUUID();
    const { run } = await post({ kind: 'verify' }, key);
    expect((await post({ kind: 'verify', deep: true }, key)).status).toBe(422);
    await ended(run['id']);
  });

  test('the same work that is open is taken, or a 409 where that was asked for', async () => {
    const open = await mirror.app.jobs.runs.create({
      kind: 'load',
      subject: 'warehouse and lake',
      params: { rebuild: false },
    });
    const attached = await post({ kind: 'load' });
    expect([attached.status, attached.run['id']]).toEqual([200, open.runId]);
    await ended(open.runId);
    const second = await mirror.app.jobs.runs.create({
      kind: 'load',
      subject: 'warehouse and lake',
      params: { rebuild: false },
    });
    expect((await post({ kind: 'load', onConflict: 'fail' })).status).toBe(409);
    await mirror.app.jobs.runs.requestCancel(second.runId);
  });

  test.each([
    [{}, 400],
    [{ kind: 'obliterate' }, 400],
    [{ kind: 'load', more: 1 }, 400],
    [{ kind: 'sync', list: '../parties' }, 400],
  ])('%j is refused with %i', async (body, status) => {
    expect((await post(body)).status).toBe(status);
    expect((await post({ kind: 'load' }, 'with blank')).status).toBe(400);
  });

  test('is a 503 where no worker is running, and leaves no run behind', async () => {
    for (const kind of ['nightly', 'sync', 'load', 'verify']) {
      expect((await post({ kind }, undefined, idle.url)).status).toBe(503);
    }
    expect(await idle.app.jobs.runs.list({ limit: 10 })).toEqual([]);
  });
});

describe('a run that was ordered', () => {
  test('is watched as server-sent events until its end', async () => {
    const { run } = await post({ kind: 'sync', list: 'parties' });
    const response = await fetch(
      `${mirror.url}/mirror/runs/${String(run['id'])}/events`,
    );
    expect(response.headers.get('content-type')).toBe('text/event-stream');
    const text = await response.text();
    expect(text).toContain('"status":"succeeded"');
    expect(text).toContain('event: end');
  });

  test('is cancelled: 202 or 200 by whether it had begun, and 200 once it has ended', async () => {
    const queued = await idle.app.jobs.runs.create({
      kind: 'load',
      subject: 'warehouse and lake',
    });
    const cancel = (id: string): Promise<Response> =>
      fetch(`${idle.url}/mirror/runs/${id}`, { method: 'DELETE' });
    const first = await cancel(queued.runId);
    expect([
      first.status,
      ((await first.json()) as Answer['run'])['status'],
    ]).toEqual([200, 'cancelled']);
    const running = await idle.app.jobs.runs.create({
      kind: 'load',
      subject: 'warehouse and lake',
    });
    await idle.app.jobs.runs.start(running.runId);
    expect((await cancel(running.runId)).status).toBe(202);
    await idle.app.jobs.runs.markCancelled(running.runId);
    expect((await cancel(running.runId)).status).toBe(200);
    expect((await cancel(crypto.randomUUID())).status).toBe(404);
  });

  test('is waited for no longer than was asked', async () => {
    const open = await idle.app.jobs.runs.create({
      kind: 'verify',
      subject: 'sums',
    });
    const response = await fetch(
      `${idle.url}/mirror/runs/${open.runId}?wait=1`,
    );
    expect(((await response.json()) as Answer['run'])['status']).toBe('queued');
    expect(
      (await fetch(`${idle.url}/mirror/runs/${open.runId}?wait=61`)).status,
    ).toBe(400);
    await idle.app.jobs.runs.requestCancel(open.runId);
  });
});
