import { gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { PermanentError } from '../../src/errors/errors.ts';
import { parseInstant } from '../../src/time/time.ts';
import type { WindowRequest } from '../../src/exports/ports.ts';
import type { HttpRequest } from '../../src/source/wire/http.ts';
import {
  exportUrl,
  type ExportConfig,
  openLedgerSource,
} from '../../src/source/ledger-source.ts';
import { sourceConfig } from '../support/source-config.ts';
import {
  ASSET,
  failureOf,
  NEVER,
  PARTY,
  testRequester,
  testSource,
  textOf,
} from './test-source.ts';
import { errorJson, send, serve } from './wire/wire-server.ts';

const NAMES: ExportConfig = sourceConfig('http://x');
const FROM = parseInstant('2023-05-10T00:00:00Z') ?? 0n;
const TO = parseInstant('2023-05-11T00:00:00Z') ?? 0n;
const CSV = 'a,b\n1,2\n';

function queryOf(
  question: WindowRequest,
  names: Partial<ExportConfig> = {},
): string {
  return exportUrl('http://x', { ...NAMES, ...names }, question).search;
}

test('an export is waited for as long as a query of the source may take, and not as long for its next byte', async () => {
  const sent: HttpRequest[] = [];
  const requester = testRequester((request) => {
    sent.push(request);
    return Promise.reject(new Error('heard'));
  });
  const ledger = openLedgerSource({ requester, baseUrl: 'http://x' }, NAMES);
  await expect(ledger.ask({ partyId: PARTY }, NEVER)).rejects.toThrow('heard');
  const { headersMs = 0, idleMs = 0, callMs = 0 } = sent[0]?.limits ?? {};
  // Nothing is sent before the query has ended; then something comes all the time, for hours.
  expect(headersMs).toBeGreaterThanOrEqual(10 * 60_000);
  expect(idleMs).toBeLessThan(headersMs);
  expect(callMs).toBeGreaterThanOrEqual(12 * 3_600_000);
});

describe('an export request', () => {
  test('uses the configured path and parameters', () => {
    const question = { partyId: PARTY, assetId: ASSET, from: FROM, to: TO };
    expect(queryOf(question)).toBe(
      `?partyId=${PARTY}&assetId=${ASSET}&dateRange.startTimestamp=1683676800000000000&dateRange.endTimestamp=1683763200000000000`,
    );
    const own = {
      sourceExportPath: '/x',
      sourceExportParamParty: 'p',
      sourceExportParamAsset: 'a',
      sourceExportParamFrom: 'f',
      sourceExportParamTo: 't',
    };
    expect(queryOf(question, { ...own, sourceExportTime: 'ms' })).toBe(
      `?p=${PARTY}&a=${ASSET}&f=1683676800000&t=1683763200000`,
    );
    expect(
      queryOf(
        { partyId: PARTY, from: FROM },
        { ...own, sourceExportTime: 's' },
      ),
    ).toBe(`?p=${PARTY}&f=1683676800`);
    expect(
      queryOf(
        { partyId: PARTY, from: FROM },
        { ...own, sourceExportTime: 'rfc3339' },
      ),
    ).toBe(`?p=${PARTY}&f=2023-05-10T00%3A00%3A00Z`);
    expect(queryOf({ partyId: PARTY })).toBe(`?partyId=${PARTY}`);
    expect(queryOf({ partyId: '../x&y' })).toBe('?partyId=..%2Fx%26y');
    expect(queryOf({ partyId: PARTY, from: 0n })).toBe(
      `?partyId=${PARTY}&dateRange.startTimestamp=0`,
    );
  });

  test.each([
    ['an end alone', { partyId: PARTY, to: TO }],
    ['an end before the beginning', { partyId: PARTY, from: TO, to: FROM }],
    ['an empty range', { partyId: PARTY, from: FROM, to: FROM }],
    ['a fraction of a second', { partyId: PARTY, from: FROM + 1n }],
    ['the network', { partyId: 'network' }],
    ['no id', { partyId: '' }],
    ['an id that cannot be printed', { partyId: 'a\u0000b' }],
    ['an id in capitals', { partyId: PARTY.toUpperCase() }],
    ['no asset', { partyId: PARTY, assetId: '' }],
    ['what is no asset', { partyId: PARTY, assetId: 'a&b=c' }],
  ])('%s never reaches the wire', async (_, question) => {
    const server = await serve((_request, response) =>
      send(response, 200, CSV),
    );
    const error = await failureOf(
      testSource(server.url).ledger.ask(question, NEVER),
    );
    expect(error).toMatchObject({ code: 'EXPORT_QUESTION' });
    expect(server.asked).toEqual([]);
  });
});

describe('an export answer', () => {
  test.each([
    ['raw', 'csv', CSV, {}],
    [
      'messages',
      'messages',
      JSON.stringify({
        result: { contentType: 'text/x', data: btoa(CSV), extensions: [1] },
      }),
      {},
    ],
    ['raw in gzip', 'csv', gzipSync(CSV), { 'content-encoding': 'gzip' }],
  ])(
    'is unpacked and read where its form is %s',
    async (_, form, body, headers) => {
      const server = await serve((_request, response) =>
        response
          .writeHead(200, { 'content-type': 'text/csv', ...headers })
          .end(body),
      );
      const source = testSource(server.url);
      await using answer = await source.ledger.ask({ partyId: PARTY }, NEVER);
      expect(await textOf(answer.chunks)).toBe(CSV);
      expect(answer.form()).toBe(form);
      expect(source.requests).toMatchObject([
        {
          route: 'export',
          status: 200,
          bytes: body.length,
          errorCode: undefined,
        },
      ]);
    },
  );

  test('is closed once, however often it is', async () => {
    const server = await serve((_request, response) =>
      send(response, 200, CSV),
    );
    const source = testSource(server.url);
    const answer = await source.ledger.ask({ partyId: PARTY }, NEVER);
    await answer[Symbol.asyncDispose]();
    await answer[Symbol.asyncDispose]();
    expect(source.requests).toHaveLength(1);
  });

  test('cancels the request at the source when it is closed', async () => {
    const gone = Promise.withResolvers<void>();
    const server = await serve((_request, response) => {
      response.once('close', () => gone.resolve());
      response.writeHead(200).write(CSV);
    });
    const source = testSource(server.url);
    {
      await using answer = await source.ledger.ask({ partyId: PARTY }, NEVER);
      for await (const chunk of answer.chunks) {
        expect(chunk.toString()).toBe(CSV);
        break;
      }
    }
    await gone.promise;
    expect(source.tally.take()?.requests).toEqual({ lists: 0, exports: 1 });
  });

  test('ends with the reason of an abort, which cancels the request', async () => {
    const gone = Promise.withResolvers<void>();
    const server = await serve((_request, response) => {
      response.once('close', () => gone.resolve());
      response.writeHead(200).write(CSV);
    });
    const stop = new AbortController();
    const answer = await testSource(server.url).ledger.ask(
      { partyId: PARTY },
      stop.signal,
    );
    const reading = textOf(answer.chunks);
    stop.abort(new Error('stop'));
    await expect(reading).rejects.toThrow('stop');
    await gone.promise;
  });

  test('reports an abort before the first read to the reader', async () => {
    const gone = Promise.withResolvers<void>();
    const server = await serve((_request, response) => {
      response.once('close', () => gone.resolve());
      response.writeHead(200).write(CSV);
    });
    const stop = new AbortController();
    const answer = await testSource(server.url).ledger.ask(
      { partyId: PARTY },
      stop.signal,
    );
    stop.abort(new Error('stop'));
    await gone.promise;
    await expect(textOf(answer.chunks)).rejects.toThrow('stop');
  });
});

describe('a refused export', () => {
  test.each([
    [
      'enveloped',
      JSON.stringify({
        error: JSON.parse(
          errorJson(3, 'InvalidArgument error', 10_038),
        ) as unknown,
      }),
    ],
    ['bare', errorJson(3, 'InvalidArgument error', 10_038)],
    [
      'spaced and in gzip',
      gzipSync(
        errorJson(3, 'InvalidArgument error', 10_038).replaceAll(':', ': '),
      ),
    ],
  ])('%s is permanent and says why', async (_, body) => {
    const headers =
      typeof body === 'string' ? {} : { 'content-encoding': 'gzip' };
    const server = await serve((_request, response) =>
      response.writeHead(400, headers).end(body),
    );
    const error = await failureOf(
      testSource(server.url).ledger.ask(
        { partyId: PARTY, assetId: ASSET },
        NEVER,
      ),
    );
    expect(error).toBeInstanceOf(PermanentError);
    expect(error).toMatchObject({
      code: 'EXPORT_REFUSED',
      meta: {
        status: 400,
        code: 3,
        message: 'InvalidArgument error',
        detailCode: 10_038,
        inner: 'reason',
      },
    });
  });

  test('says so where an asset is demanded', async () => {
    const body = JSON.stringify({
      error: JSON.parse(
        errorJson(3, 'InvalidArgument error', 10_017),
      ) as unknown,
    });
    const server = await serve((_request, response) =>
      send(response, 400, body),
    );
    const { ledger } = testSource(server.url);
    expect(
      await failureOf(ledger.ask({ partyId: PARTY }, NEVER)),
    ).toMatchObject({
      code: 'ASSET_REQUIRED',
      message: expect.stringContaining('SOURCE_ASSETS') as string,
    });
    expect(
      await failureOf(ledger.ask({ partyId: PARTY, assetId: ASSET }, NEVER)),
    ).toMatchObject({
      code: 'EXPORT_REFUSED',
    });
  });

  test('does not blame the party for a wrong path', async () => {
    const server = await serve((_request, response) =>
      send(response, 404, errorJson(5, 'Not Found')),
    );
    const error = await failureOf(
      testSource(server.url).ledger.ask({ partyId: PARTY }, NEVER),
    );
    expect(error).toMatchObject({
      code: 'SOURCE_ABSENT',
      message: expect.stringContaining('SOURCE_EXPORT_PATH') as string,
    });
  });

  test('does not blame the party for a refused client', async () => {
    const server = await serve((_request, response) => send(response, 401, ''));
    const error = await failureOf(
      testSource(server.url).ledger.ask({ partyId: PARTY }, NEVER),
    );
    expect(error).toMatchObject({ code: 'SOURCE_UNAUTHORIZED' });
  });
});

describe('an export request is repeated', () => {
  test.each([429, 503])('where the source did no work: %i', async (status) => {
    const server = await serve((_request, response, nth) =>
      send(response, nth < 3 ? status : 200, CSV),
    );
    await using answer = await testSource(server.url).ledger.ask(
      { partyId: PARTY },
      NEVER,
    );
    expect(await textOf(answer.chunks)).toBe(CSV);
    expect(server.asked).toHaveLength(3);
  });

  test.each([500, 504])(
    'but not where its query may have run: %i',
    async (status) => {
      const server = await serve((_request, response) =>
        send(response, status, errorJson(13, 'Internal error')),
      );
      const error = await failureOf(
        testSource(server.url).ledger.ask({ partyId: PARTY }, NEVER),
      );
      expect(error).toMatchObject({
        code: 'SOURCE_STATUS',
        meta: { status, code: 13 },
      });
      expect(server.asked).toHaveLength(1);
    },
  );
});
