/**
 * Exports on demand, end to end: ordered over HTTP, worked by a real worker against a
 * sandbox, downloaded.
 */
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import { startSandbox } from '../support/sandbox.ts';
import { waitFor } from '../support/wait-for.ts';
import { startRealApp } from './real-app.ts';
import { addRun, removeRuns } from '../support/mirror-arrange.ts';

const sandbox = await startSandbox({
  parties: 8,
  entriesMean: 300,
  rateLimit: 'none',
  seed: 'orders',
});
const mirror = await startRealApp({
  SOURCE_URL: sandbox.url,
  EXPORT_COMPRESSION: 'zstd',
});
afterAll(async () => {
  await mirror[Symbol.asyncDispose]();
  await sandbox.stop();
});
beforeEach(() => sandbox.faults.clear());

const parties = [...sandbox.truth.parties()].map(({ id }) => id);
/** Long ago enough to be closed: what it holds stays. */
const TO =
  new Date(Number(sandbox.truth.head().time / 1000n) - 86_400_000)
    .toISOString()
    .slice(0, 11) + '00:00:00Z';

interface Status {
  readonly id: string;
  readonly state: string;
  readonly verdict: string | null;
  readonly evidence: Readonly<Record<string, unknown>>;
}

async function order(body: object): Promise<string> {
  const response = await fetch(`${mirror.url}/mirror/exports`, {
    method: 'POST',
    body: JSON.stringify(body),
    headers: { 'content-type': 'application/json' },
  });
  expect(response.status).toBe(202);
  return ((await response.json()) as { id: string }).id;
}

async function status(id: string): Promise<Status> {
  return (await (
    await fetch(`${mirror.url}/mirror/exports/${id}`)
  ).json()) as Status;
}

function settled(id: string): Promise<Status> {
  return waitFor(
    async () => {
      const now = await status(id);
      return now.state === 'done' || now.state === 'cancelled'
        ? now
        : undefined;
    },
    { what: 'the order has ended' },
  );
}

/** What the source itself says, its rows in an order that does not depend on ties. */
async function fromSource(
  partyId: string | undefined,
  to?: string,
): Promise<readonly string[]> {
  const end =
    to === undefined
      ? ''
      : `&dateRange.endTimestamp=${BigInt(Date.parse(to)) * 1_000_000n}`;
  const response = await fetch(
    `${sandbox.url}/api/v2/ledgerentry/export?partyId=${partyId}${end}`,
  );
  return sorted(await response.text());
}

function sorted(csv: string): readonly string[] {
  return csv
    .split('\n')
    .filter((line) => line !== '')
    .toSorted();
}

/**
 * Every value of a server-sent stream, read to its `end` event. @param onText is told
 * what has come so far
 */
async function eventsOf(
  id: string,
  onText: (text: string) => void,
): Promise<readonly Status[]> {
  const response = await fetch(`${mirror.url}/mirror/exports/${id}/events`);
  let text = '';
  for await (const chunk of response.body ?? []) {
    text += Buffer.from(chunk).toString();
    onText(text);
  }
  expect(text.trimEnd().endsWith('event: end\ndata: {}')).toBe(true);
  const data = [...text.matchAll(/^data: (\{"id".*\})$/gm)].map(
    ([, json]) => json ?? '',
  );
  return data.map((json) => JSON.parse(json) as Status);
}

/** The source answers no export until it is let. */
function heldExports(): () => void {
  const { promise, resolve } = Promise.withResolvers<void>();
  sandbox.faults.add(({ route }) =>
    route === 'export' ? { until: promise } : undefined,
  );
  return resolve;
}

describe('an ordered export', () => {
  test.each(['../../etc/passwd', `${'ab'.repeat(32)}'`])(
    'is refused for the party %s, which is not listed',
    async (partyId) => {
      const response = await fetch(`${mirror.url}/mirror/exports`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ partyId }),
      });
      expect([response.status, await response.json()]).toMatchObject([
        400,
        { code: 3 },
      ]);
    },
  );

  test('is worked, followed live, and downloaded', async () => {
    const letGo = heldExports();
    const id = await order({ partyId: parties[0], to: TO });
    const events = await eventsOf(id, (text) => {
      if (text.includes('"running"')) letGo();
    });
    expect(events.at(-1)).toMatchObject({
      id,
      state: 'done',
      verdict: 'complete',
    });
    expect(events.map(({ state }) => state)).toContain('running');
    const whole = await fetch(`${mirror.url}/mirror/exports/${id}/download`);
    const text = await whole.text();
    expect(sorted(text)).toEqual(await fromSource(parties[0], TO));
    expect(text.split('\n').length).toBeGreaterThan(10);
    const runs = (await (
      await fetch(`${mirror.url}/mirror/runs?kind=export`)
    ).json()) as {
      runs: { runId: string; subject: string; verdict: string }[];
    };
    expect(runs.runs[0]).toMatchObject({
      runId: id,
      subject: parties[0],
      verdict: 'complete',
    });
  });

  test('is ordered once, however many ask at the same moment; and again once it has ended', async () => {
    const letGo = heldExports();
    const before = sandbox.requests.of('export');
    const ids = await Promise.all(
      Array.from({ length: 8 }, () => order({ partyId: parties[1], to: TO })),
    );
    expect(new Set(ids).size).toBe(1);
    letGo();
    await settled(ids[0] ?? '');
    const asked = sandbox.requests.of('export') - before;
    expect(await order({ partyId: parties[1], to: TO })).not.toBe(ids[0]);
    expect(asked).toBeGreaterThan(0);
    expect(asked).toBeLessThan(8);
  });

  test('is another one where its range is another', async () => {
    const letGo = heldExports();
    const whole = await order({ partyId: parties[2] });
    const part = await order({ partyId: parties[2], to: TO });
    expect(whole).not.toBe(part);
    letGo();
    expect((await settled(whole)).verdict).toBe('complete');
    expect((await settled(part)).verdict).toBe('complete');
  });

  test('stops when it is cancelled, and so does the source’s answer', async () => {
    // The source begins to answer and then hangs: only a client that leaves ends this.
    let isAsked = false;
    const answerAgain = sandbox.faults.add(({ route }) => {
      isAsked ||= route === 'export';
      return route === 'export' ? { stallAfterBytes: 200 } : undefined;
    });
    const before = sandbox.requests.of('export');
    const id = await order({ partyId: parties[3], to: TO });
    await waitFor(() => isAsked, { what: 'the source to be asked' });
    const answer = await fetch(`${mirror.url}/mirror/exports/${id}`, {
      method: 'DELETE',
    });
    expect(answer.status).toBe(204);
    expect(await settled(id)).toMatchObject({
      state: 'cancelled',
      verdict: null,
    });
    await waitFor(() => sandbox.requests.of('export') > before, {
      what: 'the source’s answer has ended',
    });
    answerAgain();
    expect(
      (await fetch(`${mirror.url}/mirror/exports/${id}/download`)).status,
    ).toBe(404);
    const again = await order({ partyId: parties[3], to: TO });
    expect(await settled(again)).toMatchObject({
      state: 'done',
      verdict: 'complete',
    });
    expect(
      sorted(
        await (
          await fetch(`${mirror.url}/mirror/exports/${again}/download`)
        ).text(),
      ),
    ).toEqual(await fromSource(parties[3], TO));
  });

  test('is refused while as many as may be open are open, and taken when one of them has ended', async () => {
    const { pool } = mirror.app.warehouse;
    const openOrder = {
      kind: 'export',
      state: 'queued',
      params: { isOrdered: true },
    };
    const ids = await Promise.all(
      Array.from({ length: 200 }, (_, index) =>
        addRun(pool, { ...openOrder, subject: `party ${index}` }),
      ),
    );
    const body = JSON.stringify({ partyId: parties[6], to: TO });
    const headers = { 'content-type': 'application/json' };
    const send = async (): Promise<Response> =>
      fetch(`${mirror.url}/mirror/exports`, { method: 'POST', body, headers });
    try {
      const refused = await send();
      expect(refused.status).toBe(429);
      expect(await refused.text()).toContain('200 orders are open already');
      await removeRuns(pool, ids.splice(-1));
      const taken = await send();
      expect(taken.status).toBe(202);
      await settled(((await taken.json()) as { id: string }).id);
    } finally {
      await removeRuns(pool, ids);
    }
  });

  test('stays in the history, newest first, page by page', async () => {
    interface Line {
      readonly id: string;
      readonly partyId: string;
    }
    const list = async (query: string): Promise<readonly Line[]> => {
      const answer = await fetch(`${mirror.url}/mirror/exports?${query}`);
      return ((await answer.json()) as { exports: readonly Line[] }).exports;
    };
    const ids: string[] = [];
    for (const party of [parties[4], parties[5], parties[4]]) {
      ids.unshift(await order({ partyId: party, to: TO }));
      await settled(ids[0] ?? '');
    }
    const [first] = await list('limit=1');
    expect(first).toMatchObject({
      id: ids[0],
      partyId: parties[4],
      to: TO.replace('Z', '.000000Z'),
      from: null,
      verdict: 'complete',
    });
    expect(
      (await list(`limit=2&before=${ids[0]}`)).map(({ id }) => id),
    ).toEqual(ids.slice(1));
    expect((await list(`partyId=${parties[4]}`)).map(({ id }) => id)).toEqual([
      ids[0],
      ids[2],
    ]);
  });
});
