/**
 * Strangers that hold connections open, on real sockets: all other clients must still get
 * their answers.
 */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import fastify from 'fastify';
import { afterEach, describe, expect, onTestFinished, test } from 'vitest';
import { addBounds } from '../../../src/api/access/connections.ts';
import { listen } from '../../../src/api/server/server.ts';
import { apiWithoutDatabase } from '../mirror.ts';

const TOKEN = 'correct-horse-battery';
const SLOW_LOGIN =
  'POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9000\r\n\r\n{';
const open: Socket[] = [];

afterEach(() => {
  for (const socket of open.splice(0)) socket.destroy();
});

async function start(
  timeouts = {
    headersTimeout: 60_000,
    requestTimeout: 90_000,
    connectionsCheckingInterval: 500,
  },
): Promise<URL> {
  const server = await apiWithoutDatabase({ token: TOKEN, timeouts });
  const listening = await listen(server, {
    host: '127.0.0.1',
    port: 0,
    token: TOKEN,
  });
  onTestFinished(() => listening[Symbol.asyncDispose]());
  return new URL(listening.url);
}

/** Opens connections that each send `firstBytes` and then nothing. */
async function hold(
  url: URL,
  count: number,
  firstBytes = '',
): Promise<readonly Socket[]> {
  const sockets = Array.from({ length: count }, () =>
    connect(Number(url.port), url.hostname),
  );
  for (const socket of sockets) socket.on('error', () => undefined);
  open.push(...sockets);
  await Promise.all(
    sockets.map((socket) => once(socket, 'connect').catch(() => undefined)),
  );
  for (const socket of sockets) socket.write(firstBytes);
  return sockets;
}

async function statusOf(url: URL, path: string): Promise<number> {
  const headers = { authorization: `Bearer ${TOKEN}`, connection: 'close' };
  const response = await fetch(new URL(path, url), { headers });
  await response.text();
  return response.status;
}

/** The answer's first line, once the server has closed the connection. */
async function lastWords(socket: Socket): Promise<string> {
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => chunks.push(chunk));
  if (!socket.closed) await once(socket, 'close');
  return Buffer.concat(chunks).toString().split('\r\n', 1)[0] ?? '';
}

describe('260 strangers that log in slowly', () => {
  test('block neither the health checks nor the API for others', async () => {
    const url = await start();
    await hold(url, 260, SLOW_LOGIN);
    for (const path of [
      '/healthz',
      '/readyz',
      '/mirror/status',
      '/api/v2/parties',
    ]) {
      expect([path, await statusOf(url, path)]).toEqual([path, 200]);
    }
  });

  test('are mostly refused because too many logins are open', async () => {
    const url = await start();
    await hold(url, 16, SLOW_LOGIN);
    await expect.poll(async () => (await login(url)).status).toBe(503);
    expect(await statusOf(url, '/mirror/status')).toBe(200);
  });
});

test('256 clients that hang up while the gate looks them up leave nothing counted', async () => {
  const server = fastify();
  onTestFinished(() => server.close());
  let goneCount = 0;
  server.addHook('onRequest', async ({ url, raw }) => {
    if (url !== '/slow') return;
    if (!raw.socket.closed) await once(raw.socket, 'close');
    goneCount += 1;
  });
  addBounds(server);
  server.get('/slow', () => 'slow').get('/fast', () => 'fast');
  const url = new URL(await server.listen({ host: '127.0.0.1', port: 0 }));
  for (const socket of await hold(
    url,
    256,
    'GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n',
  ))
    socket.end();
  await expect.poll(() => goneCount).toBe(256);
  expect(await statusOf(url, '/fast')).toBe(200);
});

describe('more idle connections than one address may hold', () => {
  test('close the oldest connections, not the newest', async () => {
    const url = await start();
    const idle = await hold(url, 300);
    for (const path of ['/healthz', '/mirror/status'])
      expect(await statusOf(url, path)).toBe(200);
    await expect
      .poll(() => idle.filter((socket) => socket.closed).length)
      .toBeGreaterThanOrEqual(44);
    expect(idle.slice(-200).filter((socket) => socket.closed)).toEqual([]);
  });

  test('close no connection that has shown the token', async () => {
    const url = await start();
    const [known] = await hold(
      url,
      1,
      `GET /mirror/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${TOKEN}\r\n\r\n`,
    );
    if (known === undefined) throw new Error('no connection');
    await once(known, 'data');
    await hold(url, 400);
    expect(await statusOf(url, '/healthz')).toBe(200);
    expect(known.closed).toBe(false);
  });
});

describe('a request that arrives too slowly', () => {
  const SHORT = 700;
  /** Never reached by what is tested here: that the other one ends it is what is seen. */
  const LONG = 600_000;

  test('ends at the limit for headers while its headers are missing', async () => {
    const url = await start({
      headersTimeout: SHORT,
      requestTimeout: LONG,
      connectionsCheckingInterval: 100,
    });
    const [idle, slow] = await hold(
      url,
      2,
      'GET /healthz HTTP/1.1\r\nHost: local',
    );
    const [body] = await hold(url, 1, SLOW_LOGIN);
    if (idle === undefined || slow === undefined || body === undefined)
      throw new Error('no connection');
    expect(await Promise.all([lastWords(idle), lastWords(slow)])).toEqual([
      expect.stringContaining('408'),
      expect.stringContaining('408'),
    ]);
    expect(body.closed).toBe(false);
  });

  test('ends at the limit for the request while its body is missing', async () => {
    const url = await start({
      headersTimeout: SHORT - 100,
      requestTimeout: SHORT,
      connectionsCheckingInterval: 100,
    });
    const [body] = await hold(url, 1, SLOW_LOGIN);
    if (body === undefined) throw new Error('no connection');
    expect(await lastWords(body)).toContain('408');
  });
});

async function login(url: URL): Promise<Response> {
  const response = await fetch(new URL('/login', url), {
    method: 'POST',
    headers: { 'content-type': 'application/json', connection: 'close' },
    body: JSON.stringify({ token: 'x' }),
  });
  await response.text();
  return response;
}
