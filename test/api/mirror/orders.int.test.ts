/**
 * Exports on demand: what may be ordered, how an order is followed, and the file at its
 * end.
 */
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import { listen } from '../../../src/api/server/server.ts';
import { waitFor } from '../../support/wait-for.ts';
import type { ProgressLine } from '../../../src/runs/progress.ts';
import type { Run } from '../../../src/runs/store/run-store.ts';
import { apiWithoutDatabase, EMPTY_STATUS, jobsOf } from '../mirror.ts';
import { readingOf } from '../../support/ledger-reading.ts';

const PARTY = 'ab'.repeat(32);
const ID = '0199a000-0000-7000-8000-000000000001';
const OTHER_ID = '0199a000-0000-7000-8000-000000000002';
const CONTENT = Buffer.from('a,b\n1,2\n3,4\n');

const RUN: Run = {
  runId: ID,
  parentRunId: null,
  kind: 'export',
  subject: PARTY,
  sourceUrl: null,
  state: 'queued',
  verdict: null,
  evidence: {},
  params: {},
  scheduleKey: null,
  jobId: null,
  cancelRequested: false,
  queuedAt: '2023-05-01T00:00:00Z',
  startedAt: null,
  finishedAt: null,
  heartbeatAt: null,
  attempts: 1,
};

/** One order, worked by the test itself. */
class OneOrder {
  /** What a run was made for: its subject, and its parameters. */
  submitted: unknown[] = [];
  status: Pick<Run, 'state' | 'verdict' | 'evidence'> = {
    state: 'queued',
    verdict: null,
    evidence: {},
  };
  failure:
    | {
        readonly after: number;
        readonly error: Error;
        readonly isSudden?: boolean;
      }
    | undefined;
  held: Promise<void> = Promise.resolve();
  downloads = 0;
  readings = 0;
  questions: unknown[] = [];
  records: readonly Run[] = [];
  /** Told one after another; the order ends with the last. */
  steps: ProgressLine[][] = [];

  order({
    subject,
    params,
  }: {
    readonly subject: string;
    readonly params?: object | undefined;
  }): Run {
    this.submitted.push({ partyId: subject, ...params });
    return RUN;
  }
  list(question: unknown): readonly Run[] {
    this.questions.push(question);
    return this.records;
  }
  run(id: string): Run | undefined {
    this.readings += 1;
    return id === ID ? { ...RUN, ...this.status } : undefined;
  }
  cancel(): undefined {
    this.status = { ...this.status, state: 'cancelled' };
  }
  progress(): readonly ProgressLine[] {
    const step = this.steps.shift() ?? [];
    if (this.steps.length === 1)
      this.status = { ...this.status, state: 'done', verdict: 'complete' };
    return step;
  }
  /** What fails behind its first bytes is not all there. */
  size(): bigint {
    return BigInt(CONTENT.length + (this.failure?.after ?? 0));
  }
  async *read(): AsyncGenerator<Buffer> {
    this.downloads += 1;
    await this.held;
    if (this.failure?.after === 0) throw this.failure.error;
    yield CONTENT;
    if (this.failure === undefined) return;
    if (!this.failure.isSudden) await sleep(200);
    throw this.failure.error;
  }
}

let jobs = new OneOrder();
const server = await apiWithoutDatabase({
  jobs: jobsOf({
    runs: {
      openOrders: async () => 0,
      order: async (fresh) => ({ run: jobs.order(fresh), found: 'open' }),
      list: async (question) => jobs.list(question),
      get: async (id) => jobs.run(id),
      requestCancel: async () => jobs.cancel(),
    },
    progress: { read: async () => jobs.progress() },
    stages: {
      openLedger: async () =>
        readingOf(() => jobs.read(), {
          measure: async () => jobs.size(),
        }),
    },
  }),
  status: {
    ...EMPTY_STATUS,
    run: async (id) => jobs.run(id),
  },
});
const api = await listen(server, {
  host: '127.0.0.1',
  port: 0,
  token: undefined,
});
afterAll(() => api[Symbol.asyncDispose]());
beforeEach(() => {
  jobs = new OneOrder();
});

function order(body: unknown): Promise<Response> {
  const init = {
    method: 'POST',
    body: JSON.stringify(body),
    headers: { 'content-type': 'application/json' },
  };
  return fetch(`${api.url}/mirror/exports`, init);
}

describe('an order of an export', () => {
  test('is accepted with 202 and its id', async () => {
    const response = await order({
      partyId: PARTY.toUpperCase(),
      assetId: 'C0'.repeat(32),
      from: '2023-05-01',
      to: '2023-05-02T00:00:00+02:00',
    });
    expect(response.status).toBe(202);
    expect(response.headers.get('location')).toBe(`/mirror/exports/${ID}`);
    expect(await response.json()).toEqual({ id: ID });
    expect(jobs.submitted).toEqual([
      {
        partyId: PARTY,
        assetId: 'c0'.repeat(32),
        from: '2023-05-01T00:00:00.000000Z',
        to: '2023-05-01T22:00:00.000000Z',
        isOrdered: true,
      },
    ]);
  });

  test('passes on that it distrusts what is covered', async () => {
    expect((await order({ partyId: PARTY, again: true })).status).toBe(202);
    expect(jobs.submitted).toEqual([
      { partyId: PARTY, again: true, isOrdered: true },
    ]);
  });

  test.each([
    {},
    { partyId: PARTY, again: 'yes' },
    { partyId: 'network' },
    { partyId: '' },
    { partyId: 'two\nlines' },
    { partyId: PARTY, assetId: 'gold' },
    { partyId: PARTY, from: 'yesterday' },
    { partyId: PARTY, from: '2023-05-01T00:00:00.5Z' },
    { partyId: PARTY, to: '2023-02-30' },
    { partyId: PARTY, from: '2023-05-02', to: '2023-05-01' },
    { partyId: PARTY, fron: '2023-05-02' },
    { partyId: [PARTY] },
    [],
    'text',
  ])('is refused with the body %j', async (body) => {
    const response = await order(body);
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ code: 3 });
    expect(jobs.submitted).toEqual([]);
  });

  test('is refused where its body is not JSON', async () => {
    const response = await fetch(`${api.url}/mirror/exports`, {
      method: 'POST',
      body: 'text',
    });
    expect(response.status).toBe(415);
  });

  test('can be looked up and cancelled', async () => {
    expect(
      await (await fetch(`${api.url}/mirror/exports/${ID}`)).json(),
    ).toEqual({
      id: ID,
      state: 'queued',
      verdict: null,
      evidence: {},
    });
    jobs.status = {
      ...jobs.status,
      state: 'done',
      verdict: 'complete',
      evidence: { rows: '7', ranges: [{ from: 'a' }] },
    };
    expect(
      await (await fetch(`${api.url}/mirror/exports/${ID}`)).json(),
    ).toEqual({
      id: ID,
      ...jobs.status,
    });
    expect(
      (await fetch(`${api.url}/mirror/exports/${ID}`, { method: 'DELETE' }))
        .status,
    ).toBe(204);
    expect(jobs.status.state).toBe('cancelled');
  });

  test.each(['', '/events', '/download'])(
    'is a 404 for an unknown id and a 400 for a malformed one%s',
    async (path) => {
      expect(
        (await fetch(`${api.url}/mirror/exports/${OTHER_ID}${path}`)).status,
      ).toBe(404);
      expect((await fetch(`${api.url}/mirror/exports/1${path}`)).status).toBe(
        400,
      );
    },
  );
});

describe('the history of orders', () => {
  test('tells what was ordered and how it ended', async () => {
    const to = '2023-05-01T00:00:00Z';
    const queuedAt = '2023-05-01T00:00:00.5Z';
    jobs.records = [
      {
        ...RUN,
        queuedAt,
        evidence: { rows: '7' },
        params: { to, isOrdered: true },
      },
    ];
    const answer = await fetch(
      `${api.url}/mirror/exports?partyId=${PARTY.toUpperCase()}&before=${ID}&limit=7`,
    );
    const told = {
      id: ID,
      state: 'queued',
      verdict: null,
      evidence: { rows: '7' },
      partyId: PARTY.toLowerCase(),
    };
    const asked = { assetId: null, from: null, to, queuedAt, finishedAt: null };
    expect(await answer.json()).toEqual({ exports: [{ ...told, ...asked }] });
    expect(jobs.questions).toEqual([
      { kind: 'export', subject: PARTY.toLowerCase(), before: ID, limit: 7 },
    ]);
    await fetch(`${api.url}/mirror/exports`);
    expect(jobs.questions.at(-1)).toEqual({ kind: 'export', limit: 50 });
  });

  test.each(['limit=0', 'limit=501', 'before=1', 'partyId=network', 'party=x'])(
    'refuses ?%s',
    async (query) => {
      expect((await fetch(`${api.url}/mirror/exports?${query}`)).status).toBe(
        400,
      );
      expect(jobs.questions).toEqual([]);
    },
  );
});

describe('the events of an order', () => {
  const line = (done: number): ProgressLine => ({
    label: 'export',
    done: `${done}`,
    unit: 'rows',
  });

  async function eventsOf(response: Response): Promise<unknown[]> {
    const events = (await response.text())
      .split('\n\n')
      .filter((event) => event.startsWith('data:'));
    return events.map((event) => JSON.parse(event.slice(5)) as unknown);
  }

  test('tell every step and the end', async () => {
    jobs.status = { ...jobs.status, state: 'running' };
    jobs.steps = [[line(1)], [line(2)]];
    const response = await fetch(`${api.url}/mirror/exports/${ID}/events`);
    expect(response.headers.get('content-type')).toBe('text/event-stream');
    expect(await eventsOf(response)).toEqual([
      {
        id: ID,
        state: 'running',
        verdict: null,
        evidence: {},
        progress: [line(1)],
      },
      {
        id: ID,
        state: 'done',
        verdict: 'complete',
        evidence: {},
        progress: [line(2)],
      },
    ]);
  });

  test('end when nobody listens', async () => {
    jobs.status = { ...jobs.status, state: 'running' };
    const gone = new AbortController();
    const response = await fetch(`${api.url}/mirror/exports/${ID}/events`, {
      signal: gone.signal,
    });
    await response.body?.getReader().read();
    await waitFor(() => jobs.readings > 3, {
      what: 'the order to be followed',
    });
    gone.abort();
    const isLetGo = async (): Promise<boolean> => {
      const before = jobs.readings;
      await sleep(1_000);
      return jobs.readings === before;
    };
    await expect(
      waitFor(isLetGo, { what: 'the order to be let go of' }),
    ).resolves.toBe(true);
  });

  test('are refused beyond 64 streams, of whichever kind', async () => {
    jobs.status = { ...jobs.status, state: 'running' };
    const gone = new AbortController();
    const paths = ['exports', 'runs'].map(
      (kind) => `${api.url}/mirror/${kind}/${ID}/events`,
    );
    const open = Array.from({ length: 64 }, (_, index) =>
      fetch(paths[index % 2] ?? '', { signal: gone.signal }),
    );
    expect(
      new Set((await Promise.all(open)).map(({ status }) => status)),
    ).toEqual(new Set([200]));
    expect((await fetch(paths[0] ?? '')).status).toBe(429);
    gone.abort();
  });
});

describe('the download of an order', () => {
  const download = (): Promise<Response> =>
    fetch(`${api.url}/mirror/exports/${ID}/download`);
  beforeEach(() => {
    jobs.status = { ...jobs.status, state: 'done', verdict: 'complete' };
  });

  test('is the CSV, named', async () => {
    const response = await download();
    expect(Object.fromEntries(response.headers)).toMatchObject({
      'content-type': 'text/csv',
      'content-disposition': `attachment;filename=ledger_entries_${PARTY}.csv`,
    });
    expect(await response.text()).toBe(CONTENT.toString());
  });

  test('is a 404 while the order has brought nothing', async () => {
    for (const [state, verdict] of [
      ['running', null],
      ['done', 'failed'],
    ] as const) {
      jobs.status = { ...jobs.status, state, verdict };
      expect((await download()).status).toBe(404);
    }
  });

  test('is the status of what fails before its first bytes, and cut off by what fails behind them', async () => {
    const lost = new Error('the store is gone');
    jobs.failure = { after: 0, error: lost };
    expect((await download()).status).toBe(500);
    jobs.failure = { after: 1, error: lost };
    const response = await download();
    expect(response.status).toBe(200);
    await expect(response.text()).rejects.toThrow('terminated');
  });

  test('has no header of the file on the error that it fails with before its first bytes', async () => {
    jobs.failure = { after: 0, error: new Error('the store is gone') };
    const response = await download();
    expect(response.status).toBe(500);
    for (const name of ['content-disposition', 'etag', 'accept-ranges'])
      expect(response.headers.get(name)).toBeNull();
    expect(await response.json()).toMatchObject({ message: 'Internal error' });
  });

  test('is cut off by what fails at once behind its first bytes, too', async () => {
    jobs.failure = {
      after: 1,
      error: new Error('the store is gone'),
      isSudden: true,
    };
    await expect(
      download().then((response) => response.text()),
    ).rejects.toThrow(/terminated|fetch failed/);
  });

  test('is cut off visibly for a client of HTTP/1.0 too, to whom the end of the connection is the end', async () => {
    jobs.failure = { after: 1, error: new Error('the store is gone') };
    const socket = connect(Number(new URL(api.url).port), '127.0.0.1');
    socket.write(
      `GET /mirror/exports/${ID}/download HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n`,
    );
    await expect(text(socket)).rejects.toThrow('ECONNRESET');
  });

  test('is a 429 with the time to retry where as many ledgers are sent as may be', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    jobs.held = promise;
    const open = Array.from({ length: 32 }, download);
    await waitFor(() => jobs.downloads === 32, {
      what: 'all of them are open',
    });
    const refused = await download();
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([
      429,
      '5',
    ]);
    resolve();
    for (const response of await Promise.all(open))
      expect(await response.text()).toBe(CONTENT.toString());
  });
});
