/**
 * Attacks on the way into the API, byte by byte on real sockets: each held once, and must
 * go on to hold.
 */
import { once } from 'node:events';
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { listen, type Listening } from '../../src/api/server/server.ts';
import { apiWithoutDatabase } from '../api/mirror.ts';

const TOKEN = 'correct-horse-battery';
const HEAD = 'Host: localhost\r\n';
const CLOSE = `${HEAD}Connection: close\r\n\r\n`;
const POST = `POST /login HTTP/1.1\r\n${HEAD}Content-Type: application/json\r\n`;
const SMUGGLED = 'GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n';
let api: Listening | undefined;

beforeAll(async () => {
  const server = await apiWithoutDatabase({ token: TOKEN });
  api = await listen(server, { host: '127.0.0.1', port: 0, token: TOKEN });
});
afterAll(() => api?.[Symbol.asyncDispose]());

/**
 * The status of every answer on one connection, in order; the server closes it, or we do
 * when it is silent.
 */
async function statuses(bytes: string): Promise<readonly number[]> {
  const url = new URL(api?.url ?? '');
  const socket = connect(Number(url.port), url.hostname);
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => chunks.push(chunk));
  socket.on('error', () => undefined);
  socket.setTimeout(2_000, () => socket.destroy());
  socket.write(bytes, 'latin1');
  await once(socket, 'close');
  return [
    ...Buffer.concat(chunks)
      .toString('latin1')
      .matchAll(/HTTP\/1\.1 (\d{3}) /g),
  ].map(([, code]) => Number(code));
}

const GATE_SHUT = [400, 401, 404, 405, 413, 414, 417, 426, 431];

describe('a request that two servers could read in two ways', () => {
  test.each([
    [
      'both lengths',
      `${POST}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${SMUGGLED}`,
    ],
    [
      'two lengths',
      `${POST}Content-Length: 2\r\nContent-Length: 60\r\n\r\n{}${SMUGGLED}`,
    ],
    ['a negative length', `${POST}Content-Length: -1\r\n\r\n${SMUGGLED}`],
    [
      'an unknown coding',
      `${POST}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n${SMUGGLED}`,
    ],
    [
      'a coding twice',
      `${POST}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n${SMUGGLED}`,
    ],
    [
      'a folded header',
      `${POST}X-One: a\r\n b\r\nContent-Length : 2\r\n\r\n{}${SMUGGLED}`,
    ],
    [
      'a bare line feed',
      `POST /login HTTP/1.1\nHost: localhost\nContent-Length: 2\r\r\n\n{}${SMUGGLED}`,
    ],
    [
      'a NUL in a header',
      `${POST}X-One: a\0b\r\nContent-Length: 2\r\n\r\n{}${SMUGGLED}`,
    ],
  ])(
    'is refused, and what follows it is not read: %s',
    async (_name, bytes) => {
      const found = await statuses(bytes);
      expect(found).toHaveLength(1);
      expect(found[0]).toBe(400);
    },
  );
});

describe('the access check', () => {
  test('stands before each request of a connection', async () => {
    const pipelined = [`/healthz`, `/metrics`, `/healthz`]
      .map(
        (path, index) =>
          `GET ${path} HTTP/1.1\r\n${index === 2 ? CLOSE : `${HEAD}\r\n`}`,
      )
      .join('');
    expect(await statuses(pipelined)).toEqual([200, 401, 200]);
  });

  test.each([
    '/healthz/../metrics',
    '/healthz%2f..%2fmetrics',
    '//metrics',
    '/metrics;a=/healthz',
    '/metrics#/healthz',
    '/login/../mirror/status',
    '/LOGIN/../metrics',
    '\\metrics',
    'http://localhost/metrics',
    '/assets/..%2f..%2fpackage.json',
    '/assets/console.css/../../metrics',
    '/queues/static/..%2f..%2fpackage.json',
  ])('is not walked around by the path %s', async (path) => {
    const [status] = await statuses(`GET ${path} HTTP/1.1\r\n${CLOSE}`);
    expect(GATE_SHUT).toContain(status);
  });

  test.each([
    'X-Original-URL: /healthz',
    'X-Rewrite-URL: /healthz',
    'X-HTTP-Method-Override: GET',
    'Authorization: Bearer',
    'Authorization: Bearer undefined',
    `Authorization: Bearer\t${TOKEN}x`,
    `Authorization: Basic ${TOKEN}`,
    'Cookie: ledger-mirror=Infinity.x',
    'Cookie: ledger-mirror=.',
    'Cookie: ledger-mirror=99999999999.AAAA',
  ])('is not talked round by the header %s', async (header) => {
    const [status] = await statuses(
      `GET /metrics HTTP/1.1\r\n${header}\r\n${CLOSE}`,
    );
    expect(status).toBe(401);
  });

  test.each([
    [
      'an upgrade',
      `GET /mirror/status HTTP/1.1\r\n${HEAD}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n`,
    ],
    [
      'plain HTTP/2',
      `GET / HTTP/1.1\r\n${HEAD}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n`,
    ],
    ['the preface of HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
    ['a tunnel', `CONNECT metrics:80 HTTP/1.1\r\n${HEAD}\r\n`],
    [
      'an expectation',
      `${POST}Expect: 200-maybe\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}`,
    ],
  ])('opens no other way: %s', async (_name, bytes) => {
    const found = await statuses(bytes);
    expect(found.every((status) => GATE_SHUT.includes(status))).toBe(true);
  });
});

describe('a request that is too large', () => {
  test.each([
    ['a header', `X-One: ${'x'.repeat(17_000)}\r\n`],
    ['headers', 'X: y\r\n'.repeat(3_000)],
  ])('is refused while it is read: %s', async (_name, headers) => {
    expect(
      await statuses(`GET /healthz HTTP/1.1\r\n${headers}${CLOSE}`),
    ).toEqual([431]);
  });

  test('is refused for its target', async () => {
    const [status] = await statuses(
      `GET /healthz?${'a'.repeat(9_000)} HTTP/1.1\r\n${CLOSE}`,
    );
    expect([400, 414]).toContain(status);
  });
});

describe('a body that would change what objects are', () => {
  test.each([
    '{"__proto__":{"role":"write"},"token":"x"}',
    '{"constructor":{"prototype":{"role":"write"}},"token":"x"}',
    '['.repeat(8_000),
  ])('is refused: %s', async (body) => {
    const [status] = await statuses(
      `${POST}Content-Length: ${body.length}\r\nConnection: close\r\n\r\n${body}`,
    );
    expect([400, 401]).toContain(status);
    expect(Reflect.get({}, 'role')).toBeUndefined();
  });
});
