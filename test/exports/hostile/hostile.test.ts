/**
 * The hostile source itself: that its answers are what its table says, on the wire. No
 * product code takes part.
 */
import { afterEach, describe, expect, test } from 'vitest';
import { HOUR } from './ledger.ts';
import { CASES } from './cases/cases.ts';
import type { HostileCase } from './cases/case.ts';
import { askRaw, type RawAnswer } from './raw-client.ts';
import {
  startHostileSource,
  type HostileOptions,
  type HostileSource,
} from './start.ts';

const open: HostileSource[] = [];

async function start(
  cases: readonly HostileCase[],
  options: Partial<HostileOptions> = {},
): Promise<HostileSource> {
  const source = await startHostileSource({ cases, ...options });
  open.push(source);
  return source;
}

afterEach(async () => {
  await Promise.all(open.splice(0).map((source) => source.close()));
});

const endless = /^(drip|silence|endless)/;

function patienceFor(name: string): number | undefined {
  return endless.test(name) ? 300 : undefined;
}

const EXPORT = '/api/v2/ledgerentry/export';

function find(name: string): HostileCase {
  const one = CASES.find((candidate) => candidate.name === name);
  if (one === undefined)
    throw new Error(`Cannot find the case ${name}: it is not declared`);
  return one;
}

async function ask(name: string, query = '', times = 1): Promise<RawAnswer> {
  const source = await start([find(name)]);
  const path = `${EXPORT}?partyId=${source.partyOf(name)}${query}`;
  for (let before = 1; before < times; before += 1)
    await askRaw(source.url, path);
  return askRaw(source.url, path, patienceFor(name));
}

describe('the cases of the hostile source', () => {
  test('are at least ninety, and each has a name of its own', () => {
    const names = CASES.map(({ name }) => name);
    expect(new Set(names).size).toBe(names.length);
    expect(names.length).toBeGreaterThanOrEqual(90);
  });

  test('say what is right: both whole and broken answers, and rows that must be there', () => {
    const expected = CASES.flatMap((one) => [one, ...one.followedBy]).map(
      (phase) => phase.expected,
    );
    expect(
      expected.filter(({ verdicts }) => verdicts[0] === 'complete').length,
    ).toBeGreaterThanOrEqual(40);
    expect(
      expected.filter(({ verdicts }) => !verdicts.includes('complete')).length,
    ).toBeGreaterThanOrEqual(40);
    expect(
      expected.filter(({ mustHold }) => mustHold !== undefined).length,
    ).toBeGreaterThanOrEqual(5);
  });

  test.each(CASES.filter(({ isHeavy }) => !isHeavy))(
    '$name answers in each of its phases',
    async (one) => {
      const source = await start([one]);
      const path = `${EXPORT}?partyId=${source.partyOf(one.name)}`;
      const ends: string[] = [];
      for (const phase of [one, ...one.followedBy]) {
        if (phase !== one) source.advance(one.name);
        expect(source.phase(one.name)).toBe(phase);
        const { wire, end } = await askRaw(
          source.url,
          path,
          patienceFor(one.name),
        );
        ends.push(end);
        expect(wire.length > 0 || end !== 'given-up').toBe(true);
      }
      expect(ends.includes('given-up')).toBe(endless.test(one.name));
      expect(source.requests.length).toBe(ends.length);
    },
  );

  test.each(CASES.filter(({ name }) => endless.test(name)))(
    '$name sends without an end',
    async ({ name }) => {
      expect((await ask(name)).end).toBe('given-up');
    },
  );

  test.each(CASES.filter(({ isHeavy }) => !isHeavy))(
    '$name answers as it should when it is healed',
    async (one) => {
      const source = await start([one]);
      source.heal(one.name);
      const { head, text } = await askRaw(
        source.url,
        `${EXPORT}?partyId=${source.partyOf(one.name)}`,
      );
      expect(head).toContain('HTTP/1.1 200');
      const rows = one.truth(source.now, source.partyOf(one.name)).length;
      expect(text.split('\n').length).toBe(rows + 2);
      expect(source.truth(one.name).length).toBe(rows);
    },
  );
});

describe('a hostile answer on the wire', () => {
  test.each([
    [
      'http-1.0-without-length',
      /^HTTP\/1\.0 200 Said\r\nContent-Type: text\/csv\r\nConnection: close\r\n\r\nvega_time/,
    ],
    [
      'closed-without-length',
      /^HTTP\/1\.1 200 Said\r\nContent-Type: text\/csv\r\nConnection: close\r\n\r\nvega_time/,
    ],
    [
      'content-type-twice',
      /Content-Type: text\/csv\r\nContent-Type: application\/grpc\r\n/,
    ],
    ['content-type-missing', /^HTTP\/1\.1 200 Said\r\nTransfer-Encoding/],
    [
      'trailer-tells-an-error',
      /\r\n0\r\nGrpc-Status: 13\r\nGrpc-Message: copying to stdout\r\n\r\n$/,
    ],
    ['early-hints', /^HTTP\/1\.1 103 Early Hints\r\n.*\r\n\r\nHTTP\/1\.1 200/],
    ['not-http', /^SSH-2\.0/],
    ['chunk-size-that-is-no-number', /\r\nZZ\r\nmore/],
    ['status-429-once', /^HTTP\/1\.1 429 .*\r\nRetry-After: 1/s],
    [
      'redirect-elsewhere',
      /^HTTP\/1\.1 307 .*\r\nLocation: http:\/\/127\.0\.0\.1:9\/export/s,
    ],
    ['status-204', /^HTTP\/1\.1 204 Said\r\nConnection: close\r\n\r\n$/],
  ] as const)('has the fault it is named after: %s', async (name, bytes) => {
    expect((await ask(name)).wire).toMatch(bytes);
  });

  test('has a last chunk only where its body is complete', async () => {
    expect((await ask('chunked-without-an-end')).wire).not.toMatch(
      /\r\n0\r\n\r\n$/,
    );
    expect((await ask('chunked-cut-in-a-row')).wire).not.toMatch(
      /\r\n0\r\n\r\n$/,
    );
    expect((await ask('raw-csv')).wire).toMatch(/\r\n0\r\n\r\n$/);
  });

  test('has a wrong length that differs from its body', async () => {
    const measure = async (name: string): Promise<number> => {
      const { head, text } = await ask(name);
      return (
        Number(/Content-Length: (\d+)/.exec(head)?.[1]) -
        Buffer.byteLength(text)
      );
    };
    expect(await measure('raw-csv-with-length')).toBe(0);
    expect(await measure('length-too-large')).toBe(500);
    expect(await measure('length-too-small')).toBe(-60);
  });

  test('that is cut at a row ends at another row each time', async () => {
    const rows = [
      (await ask('http-1.0-cut-at-a-row-end')).text,
      (await ask('http-1.0-cut-at-a-row-end', '', 2)).text,
    ];
    for (const text of rows) expect(text.endsWith('\n')).toBe(true);
    expect(rows[0]?.split('\n').length).not.toBe(rows[1]?.split('\n').length);
  });

  test('is gzip as its case says: one member, two members, cut, or not packed', async () => {
    expect((await ask('gzip')).text).toMatch(/^vega_time/);
    expect((await ask('gzip-of-two-members')).text.split('\n').length).toBe(
      (await ask('gzip')).text.split('\n').length,
    );
    expect((await ask('gzip-cut')).text).not.toMatch(/^vega_time/);
    expect((await ask('gzip-that-is-none')).text).toMatch(/^vega_time/);
  });

  test.each(
    CASES.filter(
      ({ name, expected }) =>
        name.includes('message') &&
        expected.verdicts[0] === 'complete' &&
        name !== 'one-message-of-70-megabytes',
    ),
  )('$name carries the CSV that the truth demand', async (one) => {
    const { text } = await ask(one.name);
    const data = [...text.matchAll(/"data":\s*("(?:[^"\\]|\\.)*")/g)].map(
      ([, json = '""']) => JSON.parse(json) as string,
    );
    const isBase64 = data.every((piece) =>
      /^[A-Za-z0-9+/]*={0,2}$/.test(piece),
    );
    const csv = data
      .map((piece) =>
        isBase64 ? Buffer.from(piece, 'base64').toString() : piece,
      )
      .join('');
    expect(csv.startsWith('vega_time,')).toBe(true);
    expect(csv.trimEnd().split('\n').length).toBe(101);
  });

  test.each([
    ['error-glued-to-the-last-row', /[^\n]\{"error":\{"code":13/],
    ['error-glued-to-a-whole-row', /\n\{"error":\{"code":13/],
    ['result-and-error', /"result":\{.*"error":\{"code":13/],
    ['byte-order-mark', /^\uFEFFvega_time/],
    ['crlf', /"?\r\n/],
    ['quoted', /^"vega_time","quantity"/],
    ['no-final-line-end', /[^\n]$/],
    ['semicolons', /^vega_time;quantity/],
    ['unknown-column-of-lines', /"line 3\nand another\r\nthird"/],
    ['nul-in-an-odd-row', /\n\0\0/],
    ['times-of-india', /\+05:30,/],
    ['times-of-nine-digits', /\.\d{6}000\+00,/],
    ['row-of-9999', /\n9999-12-31/],
    ['quantity-with-an-exponent', /,1\.1e1,/],
    ['ids-with-0x', /,0x[0-9a-f]{64},/],
    [
      'twelve-columns',
      /account_to_account_type,account_from_balance,account_to_balance\n/,
    ],
    ['twelve-columns', /,\\x[0-9a-f]{64},(3|4|9|10|1),/],
    ['header-only', /^[a-z_,]+\n$/],
    ['html', /^<!doctype html>/],
    ['formula', /"=HYPERLINK\(""/],
    ['whole-answer-twice', /^vega_time[^]*\nvega_time/],
  ] as const)('%s has its peculiarity in the body', async (name, body) => {
    expect((await ask(name)).text).toMatch(body);
  });
});

describe('a hostile source', () => {
  const seconds = (source: HostileSource, hours: number): bigint =>
    (source.now - BigInt(hours) * HOUR) / 1_000_000n;

  test('honours a half-open range and an asset, in four spellings of time', async () => {
    const spell = {
      ns: (time: bigint) => String(time * 1_000_000_000n),
      ms: (time: bigint) => String(time * 1000n),
      s: String,
      rfc3339: (time: bigint) => new Date(Number(time) * 1000).toISOString(),
    };
    const counts: number[] = [];
    for (const time of ['ns', 'ms', 's', 'rfc3339'] as const) {
      const names = {
        path: '/out',
        party: 'who',
        asset: 'what',
        from: 'a',
        to: 'b',
        time,
      };
      const source = await start([find('raw-csv')], { names });
      const from = spell[time](seconds(source, 400));
      const to = spell[time](seconds(source, 200));
      const query = new URLSearchParams({
        who: source.partyOf('raw-csv'),
        a: from,
        b: to,
      });
      counts.push(
        (await askRaw(source.url, `/out?${query.toString()}`)).text.split('\n')
          .length,
      );
      expect(source.requests[0]?.from).toBe(seconds(source, 400) * 1_000_000n);
    }
    expect(new Set(counts).size).toBe(1);
    expect(counts[0]).toBeGreaterThan(20);
    expect(counts[0]).toBeLessThan(40);
  });

  test('tells its parties, no checkpoints, and its clock where the case has one', async () => {
    const source = await start([find('growth'), find('raw-csv')]);
    const parties = await askRaw(
      source.url,
      '/api/v2/parties?pagination.first=1',
    );
    expect(parties.text).toContain(source.partyOf('raw-csv'));
    expect(parties.text).toContain('"hasNextPage":true');
    expect(parties.head).toContain(
      `X-Block-Timestamp: ${(source.now - 48n * HOUR) * 1000n}`,
    );
    expect((await askRaw(source.url, '/api/v2/checkpoints')).text).toContain(
      '"edges":[]',
    );
    const silent = await start([find('no-clock')]);
    expect((await askRaw(silent.url, '/api/v2/parties')).head).not.toContain(
      'X-Block',
    );
  });

  test('mixes filters as the broken release does', async () => {
    const source = await start([find('release-that-mixes-filters')]);
    const party = source.partyOf('release-that-mixes-filters');
    const count = async (query: string): Promise<number> =>
      (
        await askRaw(source.url, `${EXPORT}?partyId=${party}${query}`)
      ).text.split('\n').length - 2;
    const from = seconds(source, 300) * 1_000_000_000n;
    const to = seconds(source, 290) * 1_000_000_000n;
    const incoming = await count(
      `&dateRange.startTimestamp=${from}&dateRange.endTimestamp=${to}`,
    );
    expect(await count('')).toBe(100);
    expect(incoming).toBeGreaterThan(20);
    expect(incoming).toBeLessThan(60);
    expect(
      (
        await askRaw(
          source.url,
          `${EXPORT}?partyId=${party}&dateRange.endTimestamp=${to}`,
        )
      ).wire,
    ).toBe('');
  });
});
