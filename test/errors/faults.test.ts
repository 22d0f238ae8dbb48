/** Who a failure is attributed to, and which failures look as if the source were away. */
import { createServer, type Socket } from 'node:net';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { gzipSync } from 'node:zlib';
import { expect, onTestFinished, test } from 'vitest';
import { PermanentError, RetryableError } from '../../src/errors/errors.ts';
import { attributeFault, isSourceAway } from '../../src/errors/faults.ts';
import { errorJson, send, serve } from '../source/wire/wire-server.ts';
import {
  failureOf,
  PATIENT,
  testSource,
  textOf,
} from '../source/test-source.ts';
import { hexId, NEVER_ABORTED } from '../support/samples.ts';

const NGINX_PAGE = '<html><h1>502 Bad Gateway</h1></html>';
const HEAD = 'HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n';

test.each([
  [502, NGINX_PAGE],
  [503, NGINX_PAGE],
  [503, errorJson(14, 'Unavailable')],
  [504, NGINX_PAGE],
])(
  'a source whose front answers %i is away, and no ledger is blamed',
  async (status, body) => {
    const server = await serve((_request, response) =>
      send(response, status, body),
    );
    const error = await exportFailure(server.url);

    expect(isSourceAway(error)).toBe(true);
    expect(attributeFault(error)).toBe('source');
  },
);

test.each([
  ['before its headers', (socket: Socket) => socket.resetAndDestroy()],
  [
    'amid its body',
    (socket: Socket) =>
      socket.write(`${HEAD}half`, () => socket.resetAndDestroy()),
  ],
  ['amid its body, in order', (socket: Socket) => socket.end(`${HEAD}half`)],
])('a source that resets an answer %s is away', async (_when, answer) => {
  const error = await exportFailure(await listen(answer));

  expect(error).toMatchObject({ code: 'SOURCE_BROKE' });
  expect(isSourceAway(error)).toBe(true);
  expect(attributeFault(error)).toBe('source');
});

test.each<[string, number, Readonly<Record<string, string>>]>([
  ['429 without Retry-After', 429, {}],
  ['429 for an hour', 429, { 'retry-after': '3600' }],
  ['503 for an hour', 503, { 'retry-after': '3600' }],
  ['a ban of ten minutes', 403, { 'ratelimit-retry-after': '600' }],
])(
  'a source that answers everybody with %s is away for that time',
  async (_what, status, headers) => {
    const server = await serve((_request, response) => {
      response.writeHead(status, headers).end();
    });
    const error = await exportFailure(server.url);

    expect(isSourceAway(error)).toBe(true);
    expect(attributeFault(error)).toBe('source');
  },
);

test.each([
  ['internal error', 80],
  ['handshake failure', 40],
  ['unrecognized name', 112],
])(
  'a source whose front ends the TLS handshake with the alert "%s" is away',
  async (_alert, number) => {
    const { port } = await listen((socket) =>
      socket.end(Buffer.from([0x15, 3, 3, 0, 2, 2, number])),
    );
    const error = await exportFailure(new URL(`https://127.0.0.1:${port}`));

    expect(error).toMatchObject({ code: 'SOURCE_UNREACHABLE' });
    expect(isSourceAway(error)).toBe(true);
  },
);

test('a source whose front wants a certificate of the client is not away', async () => {
  const { port } = await listen((socket) =>
    socket.end(Buffer.from([0x15, 3, 3, 0, 2, 2, 42])),
  );
  const error = await exportFailure(new URL(`https://127.0.0.1:${port}`));

  expect(isSourceAway(error)).toBe(false);
});

test('a source that accepts connections and answers no list is away', async () => {
  const url = await listen(() => undefined);
  const limits = { list: { ...PATIENT, headersMs: 300 } };
  const source = testSource(url, {}, { limits });
  const page = { list: 'parties', newestFirst: true, size: 2 } as const;
  const error = await failureOf(source.lists.page(page, NEVER_ABORTED));

  expect(error).toMatchObject({ code: 'SOURCE_STALLED' });
  expect(isSourceAway(error)).toBe(true);
});

test('a source that refuses connections is away', async () => {
  const error = await exportFailure(new URL('http://127.0.0.1:1'));

  expect(isSourceAway(error)).toBe(true);
});

test.each([
  [504, errorJson(4, 'DeadlineExceeded error')],
  [500, errorJson(13, 'Internal error')],
  [400, errorJson(3, 'InvalidArgument error')],
])(
  "the source's own answer %i counts against the ledger",
  async (status, body) => {
    const server = await serve((_request, response) =>
      send(response, status, body),
    );
    const error = await exportFailure(server.url);

    expect(isSourceAway(error)).toBe(false);
    expect(attributeFault(error)).toBe('export');
  },
);

test('an answer whose gzip is cut counts against the ledger', async () => {
  const cut = gzipSync('a,b\n'.repeat(1_000)).subarray(0, -12);
  const server = await serve((_request, response) => {
    response.writeHead(200, { 'content-encoding': 'gzip' });
    response.end(cut);
  });
  const error = await exportFailure(server.url);

  expect(error).toMatchObject({ code: 'SOURCE_BROKE' });
  expect(isSourceAway(error)).toBe(false);
  expect(attributeFault(error)).toBe('export');
});

test('errors of other services and permanent ones do not mean that the source is away', () => {
  const database = new RetryableError('gone', { code: 'DATABASE_UNREACHABLE' });
  const refused = new PermanentError('refused', { code: 'SOURCE_FORBIDDEN' });

  expect(isSourceAway(database)).toBe(false);
  expect(isSourceAway(refused)).toBe(false);
  expect(isSourceAway(new TypeError('bug'))).toBe(false);
});

/** The error that ends an export, from its request or from the reading of its rows. */
async function exportFailure(url: URL): Promise<unknown> {
  const source = testSource(url);
  const read = async (): Promise<string> => {
    const window = { partyId: hexId('ab') };
    const answer = await source.ledger.ask(window, NEVER_ABORTED);
    return textOf(answer.chunks);
  };
  return failureOf(read());
}

/** A server that does the same to every connection once a request has arrived. */
async function listen(answer: (socket: Socket) => void): Promise<URL> {
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', () => answer(socket));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
}
