/**
 * What a network does to an answer: on real sockets, with limits short enough for a test.
 */
import { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { RetryableError } from '../../../src/errors/errors.ts';
import { DripGuard } from '../../../src/source/wire/body.ts';
import type { HttpLimits } from '../../../src/source/wire/http.ts';
import { LIST_RETRIES } from '../../../src/source/requester.ts';
import {
  failureOf,
  NEVER,
  PARTY,
  PATIENT,
  testSource,
  textOf,
} from '../test-source.ts';
import {
  pageJson,
  send,
  serve,
  serveBytes,
  type WireServer,
} from './wire-server.ts';

/** undici's timers tick every half second; a shorter limit ends with the next tick. */
const SHORT_MS = 400;
/** Where it must not end: longer than a busy machine leaves a process alone. */
const IDLE_MS = 1_500;
const CSV = 'a,b\n1,2\n';
const GOOD = pageJson('parties', [{ id: PARTY }]);
const PAGE = { list: 'parties', newestFirst: true, size: 10 } as const;

function limited(server: WireServer, limits: Partial<HttpLimits> = {}) {
  const short = { ...PATIENT, ...limits };
  return testSource(
    server.url,
    {},
    {
      limits: {
        list: short,
        export: short,
        listRetries: { ...LIST_RETRIES, attemptsMax: 1 },
      },
    },
  );
}

async function exportFailure(
  server: WireServer,
  limits?: Partial<HttpLimits>,
): Promise<unknown> {
  const ask = async (): Promise<string> => {
    await using answer = await limited(server, limits).ledger.ask(
      { partyId: PARTY },
      NEVER,
    );
    return await textOf(answer.chunks);
  };
  const error = await failureOf(ask());
  expect(error).toBeInstanceOf(RetryableError);
  return error;
}

function pageFailure(
  server: WireServer,
  limits?: Partial<HttpLimits>,
): Promise<unknown> {
  return failureOf(limited(server, limits).lists.page(PAGE, NEVER));
}

describe('a silent source', () => {
  test('is given up before the status line', async () => {
    const server = await serveBytes(() => undefined);
    expect(await pageFailure(server, { headersMs: SHORT_MS })).toMatchObject({
      code: 'SOURCE_STALLED',
    });
  });

  test('is given up amid a body over a half-open connection', async () => {
    const server = await serveBytes(
      (socket) =>
        void socket.write(
          `HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n${CSV}`,
        ),
    );
    expect(await exportFailure(server, { idleMs: SHORT_MS })).toMatchObject({
      code: 'SOURCE_STALLED',
    });
  });

  test('is given up at the limit of the call', async () => {
    const server = await serve((_request, response) => {
      response.writeHead(200);
      const timer = setInterval(() => response.write('x,y\n'), 50);
      response.once('close', () => clearInterval(timer));
    });
    expect(await exportFailure(server, { callMs: SHORT_MS })).toMatchObject({
      code: 'SOURCE_TIMEOUT',
    });
  });

  test('is given up where it only trickles', async () => {
    const server = await serve((_request, response) => {
      response.writeHead(200);
      const timer = setInterval(() => response.write('x,y\n'), 50);
      response.once('close', () => clearInterval(timer));
    });
    const drip = { bytesPerSecondMin: 1024, windowMs: SHORT_MS };
    expect(await exportFailure(server, { drip })).toMatchObject({
      code: 'SOURCE_DRIP',
    });
  });

  test('is not blamed for a reader that takes its time', async () => {
    const rows = '1,2\n'.repeat(2_000_000);
    const server = await serve((_request, response) =>
      response.writeHead(200).end(`a,b\n${rows}`),
    );
    const drip = { bytesPerSecondMin: 200_000, windowMs: 1_000 };
    await using answer = await limited(server, {
      drip,
      idleMs: IDLE_MS,
    }).ledger.ask({ partyId: PARTY }, NEVER);
    let bytes = 0;
    for await (const chunk of answer.chunks) {
      if (bytes === 0) await delay(2 * IDLE_MS);
      bytes += chunk.length;
    }
    expect(bytes).toBe(4 + rows.length);
  });

  test('is not called slow for a slow reader', () => {
    const guard = new DripGuard({ bytesPerSecondMin: 1000, windowMs: 1000 });
    for (let count = 0; count < 1000; count += 1) guard.arrived(1, 0);
    expect(() => guard.arrived(500, 1000)).not.toThrow();
    expect(() => guard.arrived(500, 1000)).toThrow('500 bytes a second');
  });
});

describe('a body that breaks its announcement', () => {
  test('is an error where its chunks are cut', async () => {
    const head = 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n8\r\n';
    const server = await serveBytes(
      (socket) => void socket.end(head + CSV + '\r\n'),
    );
    expect(await exportFailure(server)).toMatchObject({ code: 'SOURCE_BROKE' });
  });

  test('is an error where the connection is reset', async () => {
    const server = await serveBytes((socket) => {
      socket.write(`HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n${CSV}`, () =>
        socket.resetAndDestroy(),
      );
    });
    expect(await exportFailure(server)).toMatchObject({ code: 'SOURCE_BROKE' });
  });

  test('is an error where it is shorter than its Content-Length', async () => {
    const server = await serveBytes(
      (socket) =>
        void socket.end(`HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n${CSV}`),
    );
    expect(await exportFailure(server)).toMatchObject({ code: 'SOURCE_BROKE' });
    expect(await pageFailure(server)).toMatchObject({ code: 'SOURCE_BROKE' });
  });

  test('is an error where it is longer than its Content-Length', async () => {
    const length = Buffer.byteLength(GOOD) - 5;
    const server = await serveBytes(
      (socket) =>
        void socket.end(
          `HTTP/1.1 200 OK\r\ncontent-length: ${length}\r\n\r\n${GOOD}`,
        ),
    );
    expect(await pageFailure(server)).toMatchObject({
      code: 'ANSWER_NOT_UNDERSTOOD',
    });
  });

  test('is an error where it is not HTTP', async () => {
    const server = await serveBytes(
      (socket) => void socket.end('SSH-2.0-OpenSSH_9.7\r\n'),
    );
    expect(await pageFailure(server)).toMatchObject({ code: 'SOURCE_BROKE' });
  });

  test.each([
    ['cut gzip', gzipSync(CSV.repeat(1000)).subarray(0, -12), 'SOURCE_BROKE'],
    [
      'gzip with wrong bytes',
      Buffer.concat([gzipSync(CSV).subarray(0, 12), Buffer.alloc(30, 0xff)]),
      'SOURCE_BROKE',
    ],
    ['no gzip', Buffer.from(CSV), 'SOURCE_BROKE'],
    [
      'gzip and zero bytes',
      Buffer.concat([gzipSync(CSV), Buffer.alloc(512)]),
      'SOURCE_BROKE',
    ],
    [
      'gzip and text behind a zero byte',
      Buffer.concat([gzipSync(CSV), Buffer.from('\0x')]),
      'SOURCE_BROKE',
    ],
    [
      'gzip and text',
      Buffer.concat([gzipSync(CSV), Buffer.from('{"error":{}}')]),
      'SOURCE_BROKE',
    ],
  ])('is an error where its encoding is wrong: %s', async (_, body, code) => {
    const server = await serve((_request, response) =>
      response.writeHead(200, { 'content-encoding': 'gzip' }).end(body),
    );
    expect(await exportFailure(server)).toMatchObject({ code });
  });

  test('is an error where bytes follow its gzip in later pieces', async () => {
    const server = await serve((_request, response) => {
      response
        .writeHead(200, { 'content-encoding': 'gzip' })
        .write(gzipSync(CSV));
      setTimeout(() => response.write(Buffer.alloc(1)), 50);
      setTimeout(() => response.end(gzipSync(CSV)), 100);
    });
    expect(await exportFailure(server)).toMatchObject({ code: 'SOURCE_BROKE' });
  });

  test('is read to the end of its last gzip member, however its bytes are cut', async () => {
    const members = Buffer.concat([
      gzipSync(CSV),
      gzipSync(''),
      gzipSync('3,4\n'.repeat(9)),
    ]);
    const server = await serve((_request, response) => {
      response.writeHead(200, { 'content-encoding': 'gzip' });
      Readable.from([...members].map((byte) => Buffer.from([byte]))).pipe(
        response,
      );
    });
    await using answer = await limited(server).ledger.ask(
      { partyId: PARTY },
      NEVER,
    );
    expect(await textOf(answer.chunks)).toBe(`${CSV}${'3,4\n'.repeat(9)}`);
  });

  test('is an error where its encoding was not asked for', async () => {
    const server = await serve((_request, response) =>
      response.writeHead(200, { 'content-encoding': 'br' }).end(CSV),
    );
    expect(await exportFailure(server)).toMatchObject({
      code: 'ANSWER_NOT_UNDERSTOOD',
    });
  });

  test('is cut where it is an endless error body, and its status counts', async () => {
    const server = await serve((_request, response) => {
      response.writeHead(503);
      const pump = (): void => {
        while (response.write('x'.repeat(4096)));
      };
      response.on('drain', pump).on('error', () => undefined);
      pump();
    });
    expect(await exportFailure(server)).toMatchObject({
      code: 'SOURCE_BUSY',
      meta: { status: 503 },
    });
  });
});

describe('redirects', () => {
  test('within the origin are followed a few times', async () => {
    const server = await serve((request, response, nth) => {
      if (request.url?.startsWith('/v3/') === true) send(response, 200, GOOD);
      else
        send(response, 307, 'moved', {
          location: nth < 3 ? `${request.url}x` : '/v3/parties',
        });
    });
    expect((await limited(server).lists.page(PAGE, NEVER)).rows).toHaveLength(
      1,
    );
    expect(server.asked.at(-1)).toBe('/v3/parties');
  });

  test('without end are an error', async () => {
    const server = await serve((_request, response) =>
      send(response, 302, '', { location: '/again' }),
    );
    expect(await pageFailure(server)).toMatchObject({
      code: 'SOURCE_REDIRECT',
    });
    expect(server.asked).toHaveLength(4);
  });

  test('to nowhere are an error', async () => {
    const server = await serve((_request, response) => send(response, 301, ''));
    expect(await pageFailure(server)).toMatchObject({
      code: 'SOURCE_REDIRECT',
    });
  });

  test('to another origin are not followed: the credentials are not for it', async () => {
    const other = await serve((_request, response) =>
      send(response, 200, GOOD),
    );
    const target = `${other.url.origin}/api?secret=1&ticket=ST-123`;
    const server = await serve((_request, response) =>
      send(response, 308, `<a href="${target}">Moved</a>`, {
        location: target,
      }),
    );
    const error = await pageFailure(server);
    expect(error).toMatchObject({
      code: 'SOURCE_REDIRECT',
      message: expect.stringContaining(other.url.origin) as string,
    });
    // The page of a proxy repeats the target, and the ticket in its query.
    expect(JSON.stringify([String(error), error])).not.toMatch(/secret|ST-123/);
    expect(other.asked).toEqual([]);
  });
});
