/**
 * The gate behind other people's proxies: which Host lines, origins, authorizations and
 * paths they send, and what a browser then needs. No network: requests are injected.
 */
import type { FastifyInstance, LightMyRequestResponse } from 'fastify';
import { beforeAll, describe, expect, test } from 'vitest';
import { createLog } from '../../../src/logging/log.ts';
import { apiWithoutDatabase } from '../mirror.ts';

const TOKEN = 'correct-horse-battery';
const NAME = 'mirror.example';
const FORM = { 'content-type': 'application/x-www-form-urlencoded' };

let server: FastifyInstance;

beforeAll(async () => {
  server = await apiWithoutDatabase({ token: TOKEN, hosts: [NAME] });
});

describe('a login through a proxy', () => {
  test.each([
    [
      "$host:$server_port on TLS's own port",
      { host: `${NAME}:443` },
      `https://${NAME}`,
    ],
    ['$host:$server_port on port 80', { host: `${NAME}:80` }, `http://${NAME}`],
    ['$http_host', { host: `${NAME}:8443` }, `https://${NAME}:8443`],
    [
      'no Host line, with X-Forwarded-Host',
      { host: '127.0.0.1:8080' },
      undefined,
    ],
    [
      '$host on another port, from a browser that says where it comes from',
      { host: NAME, 'sec-fetch-site': 'same-origin' },
      `https://${NAME}:8443`,
    ],
    [
      'no Host line, from a browser that says where it comes from',
      { host: '127.0.0.1:8080', 'sec-fetch-site': 'same-origin' },
      `https://${NAME}:8443`,
    ],
    [
      'X-Forwarded-Host of two proxies',
      { host: '127.0.0.1:8080', 'x-forwarded-host': `${NAME}, inner.example` },
      `https://${NAME}`,
    ],
  ])('is accepted with %s', async (_, headers, origin) => {
    const forwarded = origin === undefined ? { 'x-forwarded-host': NAME } : {};
    const answer = await login({
      ...headers,
      ...forwarded,
      origin: origin ?? `https://${NAME}`,
    });
    expect(answer.statusCode).toBe(303);
    expect(answer.headers['set-cookie']).toContain('HttpOnly');
  });

  test.each([
    [{ host: NAME, origin: `https://${NAME}:9090` }],
    [{ host: NAME, origin: 'https://evil.example' }],
    [{ host: `${NAME}:443`, origin: `http://${NAME}` }],
    [{ host: NAME, origin: `https://${NAME}`, 'sec-fetch-site': 'cross-site' }],
    [{ host: NAME, origin: `https://${NAME}`, 'sec-fetch-site': 'same-site' }],
    [{ host: NAME, origin: 'null' }],
  ])('is refused from another origin: %j', async (headers) => {
    expect((await login(headers)).statusCode).toBe(403);
  });

  test('that is refused names both values and the line to write, in answer and log', async () => {
    const lines: Record<string, unknown>[] = [];
    const write = (line: string): void => {
      lines.push(JSON.parse(line) as Record<string, unknown>);
    };
    const log = createLog('info', { write });
    const logging = await apiWithoutDatabase({
      token: TOKEN,
      hosts: [NAME],
      log,
    });
    const headers = { host: NAME, origin: `https://${NAME}:8443` };
    const answer = await logging.inject({
      method: 'POST',
      url: '/login',
      headers: { ...FORM, ...headers },
      payload: `token=${TOKEN}`,
    });
    expect(answer.json()).toMatchObject({
      message: expect.stringMatching(
        /https:\/\/mirror\.example:8443.*mirror\.example.*proxy_set_header Host \$http_host/,
      ),
    });
    expect(lines).toEqual([
      expect.objectContaining({ level: 'warn', ...headers }),
    ]);
  });

  test('without a token is refused even if the browser says that it is ours', async () => {
    const open = await apiWithoutDatabase({});
    const answer = await open.inject({
      method: 'POST',
      url: '/mirror/runs',
      headers: {
        host: '127.0.0.1:8080',
        origin: `https://${NAME}`,
        'sec-fetch-site': 'same-origin',
      },
      payload: { kind: 'load' },
    });
    expect(answer.statusCode).toBe(403);
  });
});

test('a request for an unknown name is refused with the name and the setting', async () => {
  const { statusCode, body } = await server.inject({
    url: '/mirror/runs',
    headers: { host: 'other.example' },
  });
  expect(statusCode).toBe(403);
  expect(body).toMatch(/other\.example.*API_HOSTS/);
});

describe('an Authorization that a proxy adds', () => {
  const foreign = {
    host: NAME,
    authorization: 'Bearer eyJhbGciOiJ.of-the.proxy',
  };

  test('does not close a session, however often it comes', async () => {
    const cookie = sessionOf(await login({ host: NAME }));
    for (let request = 0; request < 30; request += 1) {
      const { statusCode } = await server.inject({
        url: '/mirror/runs',
        headers: { ...foreign, cookie },
      });
      expect(statusCode).toBe(200);
    }
    const guess = await server.inject({
      url: '/mirror/runs',
      headers: foreign,
    });
    expect(guess.statusCode).toBe(401);
  });

  test('does not widen a session that only reads', async () => {
    const readToken = 'reads-9876543210';
    const both = await apiWithoutDatabase({
      token: TOKEN,
      readToken,
      hosts: [NAME],
    });
    const opened = await both.inject({
      method: 'POST',
      url: '/login',
      headers: FORM,
      payload: `token=${readToken}`,
    });
    const order = await both.inject({
      method: 'POST',
      url: '/mirror/runs',
      headers: { ...foreign, cookie: sessionOf(opened) },
      payload: { kind: 'load' },
    });
    expect(order.statusCode).toBe(403);
  });
});

describe('a link from a chat', () => {
  const browser = { host: NAME, accept: 'text/html' };

  test('finds the session: its cookie is Lax', async () => {
    expect(
      String((await login({ host: NAME })).headers['set-cookie']),
    ).toContain('SameSite=Lax');
  });

  test.each(['/runs', '/data?party=ab', '/settings'])(
    'leads to the login and back to %s',
    async (url) => {
      const refused = await server.inject({ url, headers: browser });
      expect(refused.headers.location).toBe(
        `/login?next=${encodeURIComponent(url)}`,
      );

      const next = `${url}#run/01a2`;
      const wrong = await login({ host: NAME }, { token: 'guess', next });
      expect(wrong.headers.location).toBe(
        `/login?next=${encodeURIComponent(next)}#wrong`,
      );
      const back = await login({ host: NAME }, { token: TOKEN, next });
      expect(back.headers.location).toBe(next);
    },
  );

  test.each([
    'https://evil.example/',
    '//evil.example/runs',
    '/\\evil.example/runs',
    '/runs\r\nset-cookie: a=b',
    'javascript:alert(1)',
    '/mirror/status',
    '/logout',
    'runs',
    '',
  ])('never leads elsewhere: %j', async (next) => {
    const { statusCode, headers } = await login(
      { host: NAME },
      { token: TOKEN, next },
    );
    expect(statusCode).toBe(303);
    expect(['/', '/runs']).toContain(headers.location);
  });
});

describe('API_BASE_PATH', () => {
  let below: FastifyInstance;

  beforeAll(async () => {
    below = await apiWithoutDatabase({
      token: TOKEN,
      hosts: [NAME],
      basePath: '/ledger',
    });
  });

  test.each(['/ledger', ''])(
    'serves console and API to a proxy that sends %j on',
    async (prefix) => {
      const page = await below.inject({
        url: `${prefix}/runs`,
        headers: { host: NAME, accept: 'text/html' },
      });
      expect([page.statusCode, page.headers.location]).toEqual([
        303,
        '/ledger/login?next=%2Fruns',
      ]);
      const opened = await below.inject({
        method: 'POST',
        url: `${prefix}/login`,
        headers: { ...FORM, host: NAME },
        payload: `token=${TOKEN}&next=%2Fruns`,
      });
      expect(opened.headers.location).toBe('/ledger/runs');
      expect(opened.headers['set-cookie']).toContain('; Path=/ledger;');
      const cookie = sessionOf(opened);
      for (const path of [
        '/',
        '/runs',
        '/mirror/runs',
        '/assets/main.js',
        '/metrics',
      ]) {
        const { statusCode } = await below.inject({
          url: `${prefix}${path}`,
          headers: { host: NAME, cookie },
        });
        expect([path, statusCode]).toEqual([path, 200]);
      }
    },
  );

  test('leads from the bare path into it', async () => {
    const { statusCode, headers } = await below.inject({
      url: '/ledger',
      headers: { host: NAME },
    });
    expect([statusCode, headers.location]).toEqual([308, '/ledger/']);
  });

  test('opens no way around the gate', async () => {
    for (const url of [
      '/ledger/ledger/mirror/runs',
      '/ledger//healthz',
      '/ledgerx/healthz',
      '/ledger/healthz/../mirror/runs',
      '/ledger/%2e%2e/mirror/runs',
    ]) {
      const { statusCode } = await below.inject({
        url,
        headers: { host: NAME },
      });
      expect([url, statusCode]).toEqual([url, 401]);
    }
    const health = await below.inject({ url: '/ledger/healthz' });
    expect(health.statusCode).toBe(200);
  });

  test('is part of every address that an answer names', async () => {
    const document = await below.inject({
      url: '/ledger/openapi.json',
      headers: { host: NAME, authorization: `Bearer ${TOKEN}` },
    });
    expect(document.json()).toMatchObject({ servers: [{ url: '/ledger' }] });
  });
});

describe('HEAD', () => {
  test.each(['/healthz', '/readyz', '/login'])(
    '%s is answered',
    async (url) => {
      const { statusCode, body } = await server.inject({
        method: 'HEAD',
        url,
        headers: { host: NAME },
      });
      expect([statusCode, body]).toEqual([200, '']);
    },
  );

  test('asks for the token wherever GET does', async () => {
    for (const url of ['/', '/metrics', '/api/v2/parties', '/nothing']) {
      const { statusCode } = await server.inject({
        method: 'HEAD',
        url,
        headers: { host: NAME },
      });
      expect([url, statusCode]).toEqual([url, 401]);
    }
  });
});

test('a connection outlives the idle limits of balancers, which reach ten minutes', () => {
  expect(server.server.keepAliveTimeout).toBeGreaterThan(600_000);
});

function login(
  headers: Readonly<Record<string, string>>,
  fields: Readonly<Record<string, string>> = { token: TOKEN },
): Promise<LightMyRequestResponse> {
  return server.inject({
    method: 'POST',
    url: '/login',
    headers: { ...FORM, ...headers },
    payload: new URLSearchParams(fields).toString(),
  });
}

function sessionOf(answer: LightMyRequestResponse): string {
  return String(answer.headers['set-cookie']).split(';', 1)[0] ?? '';
}
