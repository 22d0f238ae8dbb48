import { describe, expect, test } from 'vitest';
import { openRateLimiter } from '../../src/sandbox/http/rate-limit.ts';
import { startSandbox, type Sandbox } from '../support/sandbox.ts';
import { ask, exportOf, page, rowsOf, readList } from './client.ts';

const SMALL = {
  parties: 30,
  historyMs: 3_600_000,
  entriesMean: 30,
  rateLimit: 'none',
} as const;

/** All that can be asked, in one value. */
async function everything(sandbox: Sandbox): Promise<unknown> {
  const parties = await readList(sandbox, 'parties', 10, true);
  const checkpoints = await readList(sandbox, 'checkpoints', 1000, false);
  const rows: string[][] = [];
  for (const id of parties.slice(1))
    rows.push(rowsOf((await ask(sandbox, exportOf(id))).body).toSorted());
  return { parties, checkpoints, rows };
}

describe('the network', () => {
  test('the network is the same for the same seed and head, and another for another seed', async () => {
    await using first = await startSandbox(SMALL);
    await using again = await startSandbox(SMALL);
    await using other = await startSandbox({ ...SMALL, seed: 'other' });
    expect(await everything(first)).toEqual(await everything(again));
    expect(await readList(other, 'parties', 10, true)).not.toEqual(
      await readList(first, 'parties', 10, true),
    );
  });

  test('the network is the same whether it was served until a head or started there', async () => {
    await using grown = await startSandbox(SMALL);
    grown.advance(3_000_000);
    const head = grown.truth.head();
    await using restarted = await startSandbox({
      ...SMALL,
      clock: () => head.time,
    });
    expect(restarted.truth.head()).toEqual(head);
    expect(await everything(restarted)).toEqual(await everything(grown));
  });

  test('the network only ever grows at its newest end', async () => {
    await using sandbox = await startSandbox(SMALL);
    const before = {
      parties: [...sandbox.truth.parties()],
      checkpoints: [...sandbox.truth.checkpoints()],
      rows: new Map(
        [...sandbox.truth.parties()].map(({ id }) => [
          id,
          [...sandbox.truth.rows(id)],
        ]),
      ),
      height: sandbox.truth.head().height,
    };
    sandbox.advance(1_800_000);
    const parties = [...sandbox.truth.parties()];
    expect(parties.length).toBeGreaterThan(before.parties.length);
    expect(parties.slice(0, before.parties.length)).toEqual(before.parties);
    const checkpoints = [...sandbox.truth.checkpoints()];
    expect(checkpoints.length).toBeGreaterThan(before.checkpoints.length);
    expect(checkpoints.slice(0, before.checkpoints.length)).toEqual(
      before.checkpoints,
    );
    let grown = 0;
    for (const [id, rows] of before.rows) {
      const now = [...sandbox.truth.rows(id)];
      expect(now.slice(0, rows.length)).toEqual(rows);
      if (now.length > rows.length) grown += 1;
    }
    expect(grown).toBeGreaterThan(0);
    expect(sandbox.truth.head().height).toBe(before.height + 1800n);
  });

  test('the network shows the newest block in the headers of lists, and moves with its clock', async () => {
    const furthest = 1_682_900_060_000_000n;
    let now = furthest - 60_000_000n;
    await using sandbox = await startSandbox({ ...SMALL, clock: () => now });
    const height = async (): Promise<bigint> => {
      const headers = new Map(
        (await ask(sandbox, '/api/v2/checkpoints')).headers,
      );
      expect(
        BigInt(headers.get('X-Block-Timestamp')!) / 1000n,
      ).toBeLessThanOrEqual(furthest);
      return BigInt(headers.get('X-Block-Height')!);
    };
    const first = await height();
    now += 60_000_000n;
    expect(await height()).toBe(first + 60n);
    now -= 30_000_000n;
    expect(await height()).toBe(first + 60n);
  });

  test('the network gives a page that began before new parties came the same rows', async () => {
    await using sandbox = await startSandbox(SMALL);
    const first = await page(sandbox, 'parties', { 'pagination.first': '6' });
    const second = await page(sandbox, 'parties', {
      'pagination.first': '6',
      'pagination.after': first.end,
    });
    sandbox.advance(3_600_000);
    expect(
      await page(sandbox, 'parties', {
        'pagination.first': '6',
        'pagination.after': first.end,
      }),
    ).toEqual(second);
    expect(
      (await page(sandbox, 'parties', { 'pagination.first': '6' })).ids,
    ).not.toEqual(first.ids);
  });

  test('the network is busy as a market is: most have little, a few have most', async () => {
    await using sandbox = await startSandbox({
      parties: 2000,
      historyMs: 86_400_000,
      entriesMean: 20,
    });
    const counts = [...sandbox.truth.parties()].map(
      ({ id }) => [...sandbox.truth.rows(id)].length,
    );
    const sorted = counts.toSorted((a, b) => b - a);
    const total = sorted.reduce((sum, count) => sum + count, 0);
    expect(total / counts.length).toBeGreaterThan(8);
    expect(total / counts.length).toBeLessThan(50);
    expect(sorted[1000]!).toBeLessThan(10);
    expect(
      sorted.slice(0, 100).reduce((sum, count) => sum + count, 0),
    ).toBeGreaterThan(total / 2);
  });

  test('the network begins with no block, and no more parties than it may have', async () => {
    await using unborn = await startSandbox({ ...SMALL, clock: () => 0n });
    expect((await page(unborn, 'parties')).ids).toEqual(['network']);
    expect((await page(unborn, 'checkpoints')).ids).toEqual([]);
    await using full = await startSandbox({ ...SMALL, partiesMax: 31 });
    full.advance(36_000_000);
    expect(full.truth.partyCount()).toBe(31);
    expect((await page(full, 'parties')).ids).toHaveLength(32);
  });
});

describe('the rate limit', () => {
  const limit = { perSecond: 20, burst: 100, banMs: 600_000 };

  test('the rate limit lets a burst pass, refuses what follows, and bans who goes on', () => {
    let now = 0;
    const admit = openRateLimiter(limit, () => now);
    for (let call = 0; call < 100; call += 1)
      expect(admit('a').refused).toBeUndefined();
    for (let call = 0; call < 100; call += 1)
      expect(admit('a').refused?.status).toBe(429);
    const banned = admit('a');
    expect(banned.refused?.status).toBe(403);
    expect(banned.headers).toMatchObject({ 'Ratelimit-Retry-After': '600' });
    expect(admit('b').refused).toBeUndefined();
    now = 599_000;
    expect(admit('a').refused?.status).toBe(403);
    now = 600_001;
    expect(admit('a').refused).toBeUndefined();
  });

  test('the rate limit says the whole seconds of a ban, whatever fraction the clock shows', () => {
    const admit = openRateLimiter(
      { ...limit, burst: 0, banMs: 60_000 },
      () => 83_171.547_552_808_81,
    );
    expect(admit('a').headers).toMatchObject({ 'Ratelimit-Retry-After': '60' });
  });

  test('the rate limit gives back so many calls a second', () => {
    let now = 0;
    const admit = openRateLimiter(limit, () => now);
    for (let call = 0; call < 100; call += 1) admit('a');
    now = 500;
    const admitted = Array.from(
      { length: 11 },
      () => admit('a').refused === undefined,
    );
    expect(admitted).toEqual([
      ...Array.from({ length: 10 }, () => true),
      false,
    ]);
  });

  test('the rate limit forgets of more than 10,000 clients those that were silent the longest', () => {
    const admit = openRateLimiter({ ...limit, burst: 2 }, () => 0);
    for (const address of ['silent', 'silent', 'lively']) admit(address);
    for (let other = 0; other < 9998; other += 1) admit(`other ${other}`);
    admit('lively');
    admit('one more');
    expect(admit('lively').refused?.status).toBe(429);
    expect(admit('silent').refused).toBeUndefined();
  });

  test('the rate limit speaks as the service does, and does not count exports', async () => {
    await using sandbox = await startSandbox({
      ...SMALL,
      // Nothing comes back while it is asked.
      rateLimit: { perSecond: 0.001, burst: 1, banMs: 60_000 },
    });
    const [first] = [...sandbox.truth.parties()];
    const passed = await ask(sandbox, '/api/v2/parties');
    expect(passed.headers).toContainEqual(['Ratelimit-Limit', '0.001']);
    expect(passed.headers).toContainEqual(['Ratelimit-Remaining', '0']);
    expect(await ask(sandbox, '/api/v2/parties')).toMatchObject({
      status: 429,
      body: '{"code":8,"message":"api request rate limit exceeded","details":[]}',
    });
    const banned = await ask(sandbox, '/api/v2/checkpoints');
    expect(banned).toMatchObject({
      status: 403,
      body: '{"code":7,"message":"temporarily banned for continuing to request while rate limited","details":[]}',
    });
    expect(banned.headers).toContainEqual(['Ratelimit-Retry-After', '60']);
    expect((await ask(sandbox, exportOf(first!.id))).status).toBe(200);
    expect(sandbox.requests.of('parties')).toBe(2);
    expect(sandbox.requests.of(undefined, 403)).toBe(1);
  });
});

describe('faults', () => {
  test('faults answer instead, rewrite, delay, and are judged in order', async () => {
    await using sandbox = await startSandbox(SMALL);
    const remove = sandbox.faults.add((request) =>
      request.route === 'parties' &&
      request.query.get('pagination.first') === '3'
        ? {
            rewrite: (json) =>
              json.replace('"hasNextPage":true', '"hasNextPage":false'),
          }
        : undefined,
    );
    sandbox.faults.add(() => ({
      answer: {
        status: 503,
        body: '<html>',
        headers: { 'Content-Type': 'text/html' },
      },
    }));
    expect(
      (await page(sandbox, 'parties', { 'pagination.first': '3' })).next,
    ).toBe(false);
    const down = await ask(sandbox, '/api/v2/checkpoints');
    expect(down).toMatchObject({ status: 503, body: '<html>' });
    expect(down.headers).toContainEqual(['Content-Type', 'text/html']);
    remove();
    expect(
      (await ask(sandbox, '/api/v2/parties?pagination.first=3')).status,
    ).toBe(503);
    sandbox.faults.clear();
    expect(
      (await page(sandbox, 'parties', { 'pagination.first': '3' })).next,
    ).toBe(true);
    sandbox.faults.once('parties', { cutAfterBytes: 10 });
    expect(await ask(sandbox, '/api/v2/parties')).toMatchObject({
      status: 200,
      body: '{"parties"',
      whole: false,
    });
  });
});
