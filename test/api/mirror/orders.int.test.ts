/** Exports on demand: what may be ordered, how an order is followed, and the file at its end. */
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { listen } from '../../../src/api/http/listen.ts';
import type { Download } from '../../../src/api/mirror/downloads.ts';
import type {
  ExportOrder,
  ExportStatus,
  OrderRecord,
  OrdersQuestion,
} from '../../../src/api/mirror/export-orders.ts';
import type { ExportJobs } from '../../../src/api/mirror/export-routes.ts';
import { StatusError } from '../../../src/api/http/status-error.ts';
import { waitFor } from '../../support/wait-for.ts';
import type { ProgressLine } from '../../../src/runs/progress/progress-line.ts';
import type { RunDocument } from '../../../src/runs/run-schema.ts';
import { apiWithoutDatabase, EMPTY_STATUS } from '../mirror.ts';

const PARTY = 'ab'.repeat(32);
const ID = '0199a000-0000-7000-8000-000000000001';
const OTHER_ID = '0199a000-0000-7000-8000-000000000002';
const CONTENT = Buffer.from('a,b\n1,2\n3,4\n');

const RUN: RunDocument = {
  runId: ID,
  parentRunId: null,
  kind: 'export',
  subject: PARTY,
  state: 'queued',
  verdict: null,
  evidence: {},
  queuedAt: '2023-05-01T00:00:00Z',
  startedAt: null,
  finishedAt: null,
  attempts: 1,
};

/** One order, worked by the test itself. */
class OneOrder implements ExportJobs {
  submitted: ExportOrder[] = [];
  status: ExportStatus = { id: ID, state: 'queued', verdict: null, evidence: {} };
  download: Download | undefined;
  readings = 0;
  isBusy = false;
  questions: OrdersQuestion[] = [];
  records: readonly OrderRecord[] = [];
  /** Told one after another; the order ends with the last. */
  steps: ProgressLine[][] = [];

  async submit(order: ExportOrder): Promise<{ id: string }> {
    this.submitted.push(order);
    return { id: ID };
  }
  async list(question: OrdersQuestion): Promise<readonly OrderRecord[]> {
    this.questions.push(question);
    return this.records;
  }
  async run(id: string): Promise<RunDocument | undefined> {
    this.readings += 1;
    return id === ID ? { ...RUN, ...this.status } : undefined;
  }
  async cancel(): Promise<void> {
    this.status = { ...this.status, state: 'cancelled' };
  }
  async progress(): Promise<readonly ProgressLine[]> {
    const step = this.steps.shift() ?? [];
    if (this.steps.length === 1) this.status = { ...this.status, state: 'done', verdict: 'complete' };
    return step;
  }
  async openDownload(id: string): Promise<Download | undefined> {
    if (this.isBusy) throw new StatusError('resourceExhausted', 'try again');
    return id === ID ? this.download : undefined;
  }
}

let jobs = new OneOrder();
const server = await apiWithoutDatabase({
  jobs: {
    submit: (order) => jobs.submit(order),
    list: (question) => jobs.list(question),
    openDownload: (id) => jobs.openDownload(id),
  },
  status: { ...EMPTY_STATUS, run: (id) => jobs.run(id) },
  runs: {
    start: () => Promise.reject(new Error('nothing is started here')),
    cancel: () => jobs.cancel(),
    progress: () => jobs.progress(),
  },
});
const api = await listen(server, { host: '127.0.0.1', port: 0, token: undefined });
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
  it('is accepted with 202 and its id', async () => {
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
      },
    ]);
  });

  it('passes on that it distrusts what is covered', async () => {
    expect((await order({ partyId: PARTY, again: true })).status).toBe(202);
    expect(jobs.submitted).toEqual([{ partyId: PARTY, again: true }]);
  });

  it.each([
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

  it('is refused where its body is not JSON', async () => {
    const response = await fetch(`${api.url}/mirror/exports`, { method: 'POST', body: 'text' });
    expect(response.status).toBe(415);
  });

  it('can be looked up and cancelled', async () => {
    expect(await (await fetch(`${api.url}/mirror/exports/${ID}`)).json()).toEqual({
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
    expect(await (await fetch(`${api.url}/mirror/exports/${ID}`)).json()).toEqual(jobs.status);
    expect((await fetch(`${api.url}/mirror/exports/${ID}`, { method: 'DELETE' })).status).toBe(204);
    expect(jobs.status.state).toBe('cancelled');
  });

  it.each(['', '/events', '/download'])(
    'is a 404 for an unknown id and a 400 for a malformed one%s',
    async (path) => {
      expect((await fetch(`${api.url}/mirror/exports/${OTHER_ID}${path}`)).status).toBe(404);
      expect((await fetch(`${api.url}/mirror/exports/1${path}`)).status).toBe(400);
    },
  );
});

describe('the history of orders', () => {
  it('tells what was ordered and how it ended', async () => {
    jobs.records = [
      {
        ...jobs.status,
        evidence: { rows: '7' },
        partyId: PARTY.toLowerCase(),
        assetId: null,
        from: null,
        to: '2023-05-01T00:00:00Z',
        queuedAt: '2023-05-01T00:00:00.5Z',
        finishedAt: null,
      },
    ];
    const answer = await fetch(
      `${api.url}/mirror/exports?partyId=${PARTY.toUpperCase()}&before=${ID}&limit=7`,
    );
    expect(await answer.json()).toEqual({ exports: jobs.records });
    expect(jobs.questions).toEqual([{ partyId: PARTY.toLowerCase(), before: ID, limit: 7 }]);
    await fetch(`${api.url}/mirror/exports`);
    expect(jobs.questions.at(-1)).toEqual({ limit: 50 });
  });

  it.each(['limit=0', 'limit=501', 'before=1', 'partyId=network', 'party=x'])(
    'refuses ?%s',
    async (query) => {
      expect((await fetch(`${api.url}/mirror/exports?${query}`)).status).toBe(400);
      expect(jobs.questions).toEqual([]);
    },
  );
});

describe('the events of an order', () => {
  const line = (done: number): ProgressLine => ({ label: 'export', done: `${done}`, unit: 'rows' });

  async function eventsOf(response: Response): Promise<unknown[]> {
    const events = (await response.text()).split('\n\n').filter((event) => event.startsWith('data:'));
    return events.map((event) => JSON.parse(event.slice(5)) as unknown);
  }

  it('tell every step and the end', async () => {
    jobs.status = { ...jobs.status, state: 'running' };
    jobs.steps = [[line(1)], [line(2)]];
    const response = await fetch(`${api.url}/mirror/exports/${ID}/events`);
    expect(response.headers.get('content-type')).toBe('text/event-stream');
    expect(await eventsOf(response)).toEqual([
      { id: ID, state: 'running', verdict: null, evidence: {}, progress: [line(1)] },
      { id: ID, state: 'done', verdict: 'complete', evidence: {}, progress: [line(2)] },
    ]);
  });

  it('end when nobody listens', async () => {
    jobs.status = { ...jobs.status, state: 'running' };
    const gone = new AbortController();
    const response = await fetch(`${api.url}/mirror/exports/${ID}/events`, { signal: gone.signal });
    await response.body?.getReader().read();
    await waitFor(() => jobs.readings > 3, { what: 'the order to be followed' });
    gone.abort();
    const isLetGo = async (): Promise<boolean> => {
      const before = jobs.readings;
      await sleep(1_000);
      return jobs.readings === before;
    };
    await expect(waitFor(isLetGo, { what: 'the order to be let go of' })).resolves.toBe(true);
  });

  it('are refused beyond 64 streams, of whichever kind', async () => {
    jobs.status = { ...jobs.status, state: 'running' };
    const gone = new AbortController();
    const paths = ['exports', 'runs'].map((kind) => `${api.url}/mirror/${kind}/${ID}/events`);
    const open = Array.from({ length: 64 }, (_, index) =>
      fetch(paths[index % 2] ?? '', { signal: gone.signal }),
    );
    expect(new Set((await Promise.all(open)).map(({ status }) => status))).toEqual(new Set([200]));
    expect((await fetch(paths[0] ?? '')).status).toBe(429);
    gone.abort();
  });
});

describe('the download of an order', () => {
  beforeEach(() => {
    jobs.download = {
      fileName: 'ledger.csv',
      bytes: CONTENT.length,
      tag: 'abc',
      read: ({ start, end }) => Readable.from(CONTENT.subarray(start, end), { objectMode: false }),
    };
  });

  async function download(headers: Record<string, string>): Promise<[number, string | null, string]> {
    const response = await fetch(`${api.url}/mirror/exports/${ID}/download`, { headers });
    return [response.status, response.headers.get('content-range'), await response.text()];
  }

  const ALL = CONTENT.toString();

  it('is the file, named, with its length', async () => {
    const response = await fetch(`${api.url}/mirror/exports/${ID}/download`);
    expect(Object.fromEntries(response.headers)).toMatchObject({
      'content-type': 'text/csv',
      'content-length': `${CONTENT.length}`,
      'content-disposition': 'attachment; filename="ledger.csv"',
      'accept-ranges': 'bytes',
      etag: '"abc"',
    });
    expect(await response.text()).toBe(ALL);
  });

  it.each([
    ['bytes=0-3', 206, 'bytes 0-3/12', 'a,b\n'],
    ['bytes=4-', 206, 'bytes 4-11/12', '1,2\n3,4\n'],
    ['bytes=-4', 206, 'bytes 8-11/12', '3,4\n'],
    ['bytes=-400', 206, 'bytes 0-11/12', ALL],
    ['bytes=8-99', 206, 'bytes 8-11/12', '3,4\n'],
    ['bytes=12-', 416, 'bytes */12', ''],
    ['bytes=-0', 416, 'bytes */12', ''],
    ['bytes=3-1', 200, null, ALL],
    ['bytes=0-1,3-4', 200, null, ALL],
    ['lines=1-2', 200, null, ALL],
    ['bytes=-', 200, null, ALL],
  ])('with the range %s', async (range, status, contentRange, text) => {
    expect(await download({ range })).toEqual([status, contentRange, text]);
  });

  it('is a 429 with the time to retry where no more downloads can be made now', async () => {
    jobs.isBusy = true;
    const response = await fetch(`${api.url}/mirror/exports/${ID}/download`);
    expect([response.status, response.headers.get('retry-after')]).toEqual([429, '5']);
    expect(await response.json()).toEqual({ code: 8, message: 'try again', details: [] });
  });

  it('continues only where the file is still the same', async () => {
    expect(await download({ range: 'bytes=4-', 'if-range': '"abc"' })).toEqual([
      206,
      'bytes 4-11/12',
      '1,2\n3,4\n',
    ]);
    expect(await download({ range: 'bytes=4-', 'if-range': '"old"' })).toEqual([200, null, ALL]);
  });
});
