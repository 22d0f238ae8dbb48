import { describe, expect, test } from 'vitest';
import {
  PermanentError,
  RetryableError,
  UnreachableError,
  UsageError,
} from '../../../src/errors/errors.ts';
import { version } from '../../../src/version.ts';
import { openSource } from '../../../src/source/source-client.ts';
import { localState, sourceConfig } from '../../support/source-config.ts';
import {
  failureOf,
  NEVER,
  PARTY,
  PATIENT,
  testSource,
} from '../test-source.ts';
import { errorJson, pageJson, send, serve } from '../wire/wire-server.ts';

const PARTIES = { list: 'parties', newestFirst: true, size: 10 } as const;
const ONE_PARTY = pageJson('parties', [{ id: PARTY }]);

describe('a list request', () => {
  test('always has a size and an order; cursors are percent-encoded', async () => {
    const server = await serve((_request, response) =>
      send(response, 200, ONE_PARTY),
    );
    const { lists } = testSource(server.url);
    await lists.page(PARTIES, NEVER);
    await lists.page(
      { ...PARTIES, newestFirst: false, after: 'a+/b==' },
      NEVER,
    );
    await lists.page(
      { list: 'parties', newestFirst: false, size: 3, fromEnd: true },
      NEVER,
    );
    expect(server.asked).toEqual([
      '/api/v2/parties?pagination.first=10&pagination.newestFirst=true',
      '/api/v2/parties?pagination.first=10&pagination.newestFirst=false&pagination.after=a%2B%2Fb%3D%3D',
      '/api/v2/parties?pagination.last=3&pagination.newestFirst=false',
    ]);
  });

  test('never has an empty cursor', async () => {
    const server = await serve((_request, response) =>
      send(response, 200, ONE_PARTY),
    );
    const { lists } = testSource(server.url);
    await expect(lists.page({ ...PARTIES, after: '' }, NEVER)).rejects.toThrow(
      TypeError,
    );
    expect(server.asked).toEqual([]);
  });

  test('carries what identifies us, and the credentials of the URL only as a header', async () => {
    const seen: Record<string, unknown>[] = [];
    const server = await serve((request, response) => {
      seen.push(request.headers);
      send(response, 200, ONE_PARTY);
    });
    const url = new URL('/base/', server.url);
    url.username = 'me';
    url.password = 'p@ss';
    const source = testSource(url);
    await source.lists.page(PARTIES, NEVER);
    expect(seen[0]).toMatchObject({
      accept: 'application/json',
      'accept-encoding': 'gzip',
      'cache-control': 'no-cache',
      'user-agent': `ledger-mirror/${version()}`,
      authorization: `Basic ${Buffer.from('me:p@ss').toString('base64')}`,
    });
    expect(server.asked[0]).toMatch(/^\/base\/api\/v2\/parties\?/);
    expect(source.ledger.baseUrl).toBe(`http://127.0.0.1:${server.port}/base`);
    const own = testSource(url, { sourceAuthorization: 'Bearer t' });
    await own.lists.page(PARTIES, NEVER);
    expect(seen[1]).toMatchObject({ authorization: 'Bearer t' });
  });

  test('needs SOURCE_URL', () => {
    expect(() =>
      openSource(
        { ...sourceConfig('http://x'), sourceUrl: undefined },
        localState(),
      ),
    ).toThrow(UsageError);
  });
});

describe('a list answer', () => {
  test('carries the source’s height, time and cost', async () => {
    const server = await serve((_request, response) =>
      send(response, 200, ONE_PARTY, {
        'X-Block-Height': '18446744073709551615',
        'X-Block-Timestamp': '1683000000123456789',
      }),
    );
    const source = testSource(server.url);
    const page = await source.lists.page(PARTIES, NEVER);
    expect(page).toMatchObject({
      blockHeight: 18_446_744_073_709_551_615n,
      blockTime: 1_683_000_000_123_456n,
      rows: [{ key: PARTY, cursor: 'c0==' }],
    });
    expect(source.requests).toMatchObject([
      {
        route: 'parties',
        status: 200,
        attempt: 1,
        bytes: Buffer.byteLength(ONE_PARTY),
      },
    ]);
    expect(source.tally.take()).toMatchObject({
      requests: { lists: 1, exports: 0 },
      retries: 0,
      failures: 0,
    });
    expect(source.listLatency()).toBeDefined();
  });

  test.each(['0', '', 'soon', '99999999999999999999999'])(
    'a height of %j is none',
    async (height) => {
      const server = await serve((_request, response) =>
        send(response, 200, ONE_PARTY, { 'X-Block-Height': height }),
      );
      const page = await testSource(server.url).lists.page(PARTIES, NEVER);
      expect(page.blockHeight).toBeUndefined();
      expect(page.blockTime).toBeUndefined();
    },
  );

  test('is an error where its body is one, even with 200', async () => {
    const server = await serve((_request, response, nth) =>
      nth === 1
        ? send(response, 200, errorJson(13, 'Internal error'))
        : send(response, 200, ONE_PARTY),
    );
    const source = testSource(server.url);
    await source.lists.page(PARTIES, NEVER);
    expect(source.requests).toMatchObject([
      { errorCode: 'SOURCE_STATUS' },
      { errorCode: undefined, attempt: 2 },
    ]);
    expect(source.tally.take()).toMatchObject({
      requests: { lists: 2 },
      retries: 1,
      failures: 1,
    });
  });

  test('is asked for again where it is an error page or cut JSON', async () => {
    const server = await serve((_request, response, nth) =>
      send(
        response,
        200,
        ['<html>oops</html>', ONE_PARTY.slice(0, -9), ONE_PARTY][nth - 1] ?? '',
      ),
    );
    const page = await testSource(server.url).lists.page(PARTIES, NEVER);
    expect(page.rows).toHaveLength(1);
    expect(server.asked).toHaveLength(3);
  });
});

describe('a cursor or a size that is refused', () => {
  /** Answers by what the query holds. */
  async function refusing(
    status: number,
    isBad: (query: URLSearchParams) => boolean,
  ) {
    return serve((request, response) => {
      const { searchParams } = new URL(request.url ?? '', 'http://x');
      if (isBad(searchParams))
        send(
          response,
          status,
          errorJson(status === 400 ? 3 : 13, 'no', 10_028),
        );
      else send(response, 200, ONE_PARTY);
    });
  }

  test.each([400, 500])(
    'a cursor that alone makes it fail with %i is the reason',
    async (status) => {
      const server = await refusing(status, (query) =>
        query.has('pagination.after'),
      );
      const error = await failureOf(
        testSource(server.url).lists.page({ ...PARTIES, after: 'x' }, NEVER),
      );
      expect(error).toBeInstanceOf(PermanentError);
      expect(error).toMatchObject({ code: 'CURSOR_REFUSED' });
    },
  );

  test.each([{}, { after: 'x' }])(
    'a size that is too large is told from the cursor: %o',
    async (cursor) => {
      const server = await refusing(
        400,
        (query) => Number(query.get('pagination.first')) > 5000,
      );
      const error = await failureOf(
        testSource(server.url).lists.page(
          { ...PARTIES, size: 6000, ...cursor },
          NEVER,
        ),
      );
      expect(error).toMatchObject({
        code: 'PAGE_TOO_LARGE',
        meta: { status: 400, detailCode: 10_028 },
      });
    },
  );

  test('a source that answers nothing at all is not blamed on the cursor', async () => {
    const server = await refusing(500, () => true);
    const error = await failureOf(
      testSource(server.url).lists.page({ ...PARTIES, after: 'x' }, NEVER),
    );
    expect(error).toBeInstanceOf(RetryableError);
    expect(error).toMatchObject({
      code: 'SOURCE_STATUS',
      meta: { status: 500, attempts: 5 },
    });
  });

  test("the gateway's own cap on an answer is no rate limit", async () => {
    const body = errorJson(
      8,
      'grpc: received message larger than max (30000000 vs. 20971520)',
    );
    const server = await serve((_request, response) =>
      send(response, 429, body),
    );
    const error = await failureOf(
      testSource(server.url).lists.page(PARTIES, NEVER),
    );
    expect(error).toMatchObject({ code: 'PAGE_TOO_LARGE' });
    expect(server.asked).toHaveLength(1);
  });

  test('a page beyond our own limit is too large, also when it is packed small', async () => {
    const { gzipSync } = await import('node:zlib');
    const bomb = gzipSync(Buffer.alloc(33 * 2 ** 20, 0x20));
    const server = await serve((_request, response) =>
      response.writeHead(200, { 'content-encoding': 'gzip' }).end(bomb),
    );
    const error = await failureOf(
      testSource(server.url).lists.page(PARTIES, NEVER),
    );
    expect(error).toMatchObject({ code: 'PAGE_TOO_LARGE' });
  });
});

describe('a source that would exhaust the process', () => {
  test('is refused by the bounds of a page: 58 KB on the wire that are 30 million brackets', async () => {
    const { gzipSync } = await import('node:zlib');
    const bomb = gzipSync(
      Buffer.concat([Buffer.alloc(15e6, '['), Buffer.alloc(15e6, ']')]),
    );
    expect(bomb.length).toBeLessThan(60_000);
    const server = await serve((_request, response) =>
      response.writeHead(200, { 'content-encoding': 'gzip' }).end(bomb),
    );
    const error = await failureOf(
      testSource(server.url).lists.page(PARTIES, NEVER),
    );
    expect(error).toMatchObject({ code: 'PAGE_SHAPE' });
    expect(server.asked).toHaveLength(1);
  });

  test('is refused where it sends more rows than were asked for', async () => {
    const rows = Array.from({ length: PARTIES.size + 1 }, () => ({
      id: PARTY,
    }));
    const server = await serve((_request, response) =>
      send(response, 200, pageJson('parties', rows)),
    );
    const error = await failureOf(
      testSource(server.url).lists.page(PARTIES, NEVER),
    );
    expect(error).toMatchObject({
      code: 'PAGE_SHAPE',
      meta: { path: 'parties.edges.length' },
    });
  });
});

describe('the lookup of a party', () => {
  test('asks by filter', async () => {
    const server = await serve((_request, response) =>
      send(response, 200, ONE_PARTY),
    );
    const row = await testSource(server.url).lists.party(
      PARTY.toUpperCase(),
      NEVER,
    );
    expect(row?.key).toBe(PARTY);
    expect(server.asked).toEqual([`/api/v2/parties?partyId=${PARTY}`]);
  });

  test('finds none where the service says so', async () => {
    const server = await serve((_request, response) =>
      send(response, 404, errorJson(5, 'NotFound error', 50_001)),
    );
    expect(
      await testSource(server.url).lists.party(PARTY, NEVER),
    ).toBeUndefined();
  });

  test('fails where the path is wrong', async () => {
    const server = await serve((_request, response) =>
      send(response, 404, 'no such page'),
    );
    const error = await failureOf(
      testSource(server.url).lists.party(PARTY, NEVER),
    );
    expect(error).toMatchObject({
      code: 'SOURCE_ABSENT',
      meta: { status: 404 },
    });
  });

  test('fails where the source did not filter', async () => {
    const other = pageJson('parties', [{ id: 'ef'.repeat(32) }]);
    const server = await serve((_request, response) =>
      send(response, 200, other),
    );
    await expect(
      testSource(server.url).lists.party(PARTY, NEVER),
    ).rejects.toMatchObject({
      code: 'PAGE_SHAPE',
    });
  });

  test.each(['', ' ', 'a\u0000b', 'x'.repeat(1_025)])(
    '%j is no id and is not sent',
    async (id) => {
      const server = await serve((_request, response) =>
        send(response, 200, ONE_PARTY),
      );
      await expect(
        testSource(server.url).lists.party(id, NEVER),
      ).rejects.toMatchObject({
        code: 'PARTY_ID',
      });
      expect(server.asked).toEqual([]);
    },
  );
});

test('a source that is not there is unreachable, within the limit for that', async () => {
  const source = testSource(new URL('http://127.0.0.1:1'));
  const error = await failureOf(source.lists.page(PARTIES, NEVER));
  expect(error).toBeInstanceOf(UnreachableError);
  expect(error).toMatchObject({
    code: 'SOURCE_UNREACHABLE',
    meta: { errno: 'ECONNREFUSED' },
  });
  expect(source.clock.nowMs()).toBeGreaterThan(45_000);
  expect(source.clock.nowMs()).toBeLessThanOrEqual(60_000);
  expect(source.clock.slept.length).toBeGreaterThan(2);
});

test('a small question to a list that drips is asked twice, and given up', async () => {
  let asked = 0;
  const server = await serve((_request, response) => {
    asked += 1;
    response.writeHead(200, { 'content-type': 'application/json' });
    response.write('{');
  });
  const limits = { list: { ...PATIENT, callMs: 300 } };
  const source = testSource(server.url, {}, { limits });
  const question = { list: 'parties', newestFirst: true, size: 2 } as const;
  const error = await failureOf(
    source.lists.page({ ...question, isSmall: true }, NEVER),
  );

  expect(error).toMatchObject({ code: 'SOURCE_TIMEOUT' });
  expect(asked).toBe(2);
});
