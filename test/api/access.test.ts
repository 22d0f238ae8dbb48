/** Who is answered: tokens, sessions, other origins, rebound names. No network: requests are injected. */
import type { FastifyInstance, InjectOptions } from 'fastify';
import { beforeAll, describe, expect, it } from 'vitest';
import { isLoopback, refuseOpenListening } from '../../src/api/http/access.ts';
import { listen } from '../../src/api/http/listen.ts';
import { UsageError } from '../../src/core/errors.ts';
import { apiWithoutDatabase } from './mirror.ts';

const TOKEN = 'correct horse battery';
let open: FastifyInstance;
let guarded: FastifyInstance;

beforeAll(async () => {
  open = await apiWithoutDatabase({});
  guarded = await apiWithoutDatabase({ token: TOKEN });
});

async function statusOf(server: FastifyInstance, request: InjectOptions): Promise<number> {
  return (await server.inject({ url: '/mirror/runs', ...request })).statusCode;
}

describe('listening', () => {
  it.each(['127.0.0.1', '127.8.9.1', 'localhost', 'LOCALHOST', '::1', '[::1]'])(
    '%s is this machine',
    (host) => {
      expect(isLoopback(host)).toBe(true);
      expect(() => refuseOpenListening(host, undefined)).not.toThrow();
    },
  );

  it.each(['0.0.0.0', '::', '10.0.0.1', 'localhost.example.com', '127.0.0.1.example.com', '128.0.0.1', ''])(
    '%j is refused without a token',
    (host) => {
      expect(() => refuseOpenListening(host, undefined)).toThrow(UsageError);
      expect(() => refuseOpenListening(host, TOKEN)).not.toThrow();
    },
  );
});

it('a server without a token does not begin to listen for others', async () => {
  const listening = listen(open, { host: '0.0.0.0', port: 0, token: undefined });
  await expect(listening).rejects.toThrow(UsageError);
  expect(open.server.listening).toBe(false);
});

describe('without a token', () => {
  it.each([
    [{}, 200],
    [{ host: 'localhost:8080' }, 200],
    [{ host: '[::1]:8080' }, 200],
    [{ host: '127.0.0.1:9' }, 200],
    [{ host: 'mirror.example.com' }, 403],
    [{ host: 'localhost.example.com:8080' }, 403],
    [{ host: 'local host' }, 403],
    [{ host: 'localhost:8080', origin: 'http://localhost:8080' }, 200],
    [{ host: 'localhost:8080', origin: 'http://localhost:9090' }, 403],
    [{ host: 'localhost:8080', origin: 'http://evil.example' }, 403],
    [{ host: 'localhost:8080', origin: 'null' }, 403],
    [{ host: 'localhost:8080', 'sec-fetch-site': 'same-origin' }, 200],
    [{ host: 'localhost:8080', 'sec-fetch-site': 'none' }, 200],
    [{ host: 'localhost:8080', 'sec-fetch-site': 'same-site' }, 403],
    [{ host: 'localhost:8080', 'sec-fetch-site': 'cross-site' }, 403],
    [
      {
        host: 'localhost:8080',
        'sec-fetch-site': 'cross-site',
        'sec-fetch-mode': 'navigate',
        'sec-fetch-dest': 'document',
      },
      403,
    ],
  ])('%j is answered with %i', async (headers, status) => {
    expect(await statusOf(open, { headers: { host: 'localhost', ...headers } })).toBe(status);
  });

  it('follows a link from elsewhere to the console, but never into a frame', async () => {
    const link = { host: 'localhost', 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate' };
    expect(await statusOf(open, { url: '/', headers: { ...link, 'sec-fetch-dest': 'document' } })).toBe(200);
    expect(await statusOf(open, { url: '/', headers: { ...link, 'sec-fetch-dest': 'iframe' } })).toBe(403);
    expect(
      await statusOf(open, { url: '/', method: 'POST', headers: { ...link, 'sec-fetch-dest': 'document' } }),
    ).toBe(403);
  });
});

describe('with a token', () => {
  it('answers only who shows it', async () => {
    expect(await statusOf(guarded, {})).toBe(401);
    expect(await statusOf(guarded, { headers: { authorization: 'Bearer wrong' } })).toBe(401);
    expect(await statusOf(guarded, { headers: { authorization: `Basic ${TOKEN}` } })).toBe(401);
    expect(await statusOf(guarded, { headers: { authorization: `Bearer ${TOKEN}` } })).toBe(401);
    const spaceless = await apiWithoutDatabase({ token: 'correct-horse-battery' });
    expect(await statusOf(spaceless, { headers: { authorization: 'Bearer correct-horse-battery' } })).toBe(
      200,
    );
    expect(await statusOf(spaceless, { headers: { authorization: 'bearer correct-horse-battery' } })).toBe(
      200,
    );
    expect(await statusOf(spaceless, { headers: { authorization: 'Bearer correct-horse-batterz' } })).toBe(
      401,
    );
  });

  it.each([
    '/api/v2/parties',
    '/',
    '/metrics',
    '/openapi.json',
    '/mirror/status',
    '/assets/console.js',
    '/nothing',
    '/queues',
  ])('%s asks for it', async (url) => {
    expect(await statusOf(guarded, { url })).toBe(401);
  });

  it.each(['/healthz', '/readyz', '/login', '/assets/console.css'])('%s does not', async (url) => {
    expect(await statusOf(guarded, { url })).toBe(200);
  });

  it('sends browsers to the login page', async () => {
    const { statusCode, headers } = await guarded.inject({ url: '/', headers: { accept: 'text/html' } });
    expect([statusCode, headers.location]).toEqual([303, '/login']);
  });

  it('opens a session that scripts cannot read and other sites cannot use', async () => {
    const login = await guarded.inject({ method: 'POST', url: '/login', payload: { token: TOKEN } });
    expect(login.statusCode).toBe(204);
    const cookie = String(login.headers['set-cookie']);
    expect(cookie).toMatch(/; HttpOnly; SameSite=Strict$/);
    expect(cookie).not.toContain(TOKEN);
    const [pair = ''] = cookie.split(';');
    expect(await statusOf(guarded, { headers: { cookie: `other=1; ${pair}` } })).toBe(200);
    expect(await statusOf(guarded, { headers: { cookie: `x${pair}` } })).toBe(401);
    // A later end would be a longer session: it is part of what is signed.
    expect(await statusOf(guarded, { headers: { cookie: pair.replace(/=\d/, '=9') } })).toBe(401);
    const others = await apiWithoutDatabase({ token: `${TOKEN}!` });
    expect(await statusOf(others, { headers: { cookie: pair } })).toBe(401);
  });

  it('ends a session after twelve hours', async () => {
    let nowMs = 1_000_000;
    const server = await apiWithoutDatabase({ token: TOKEN, nowMs: () => nowMs });
    const login = await server.inject({ method: 'POST', url: '/login', payload: { token: TOKEN } });
    const cookie = String(login.headers['set-cookie']).split(';', 1)[0] ?? '';
    nowMs += 12 * 3_600_000 - 1;
    expect(await statusOf(server, { headers: { cookie } })).toBe(200);
    nowMs += 1;
    expect(await statusOf(server, { headers: { cookie } })).toBe(401);
  });

  it('takes a form, and marks the cookie Secure behind TLS', async () => {
    const form = { 'content-type': 'application/x-www-form-urlencoded', 'x-forwarded-proto': 'https' };
    const right = await guarded.inject({
      method: 'POST',
      url: '/login',
      headers: form,
      payload: `token=${encodeURIComponent(TOKEN)}`,
    });
    expect([right.statusCode, right.headers.location]).toEqual([303, '/']);
    expect(right.headers['set-cookie']).toMatch(/; Secure$/);
    const wrong = await guarded.inject({
      method: 'POST',
      url: '/login',
      headers: form,
      payload: 'token=wrong',
    });
    expect([wrong.headers.location, wrong.headers['set-cookie']]).toEqual(['/login#wrong', undefined]);
  });

  it.each([
    {},
    { token: 'wrong' },
    { token: 1 },
    { token: TOKEN, more: 1 },
    'text',
    { token: 'x'.repeat(20_000) },
  ])('a login with %j opens nothing', async (payload) => {
    const { statusCode, headers } = await guarded.inject({ method: 'POST', url: '/login', payload });
    expect(statusCode).toBeGreaterThanOrEqual(400);
    expect(headers['set-cookie']).toBeUndefined();
  });

  it('refuses other origins also to those who know it', async () => {
    const headers = { authorization: `Bearer ${TOKEN}`, origin: 'https://evil.example' };
    expect(await statusOf(guarded, { headers })).toBe(403);
  });
});

describe('every answer', () => {
  it.each(['/', '/nothing', '/api/v2/parties?pagination.first=x', '/healthz'])(
    '%s carries the security headers',
    async (url) => {
      const { headers } = await open.inject({ url, headers: { host: 'localhost' } });
      expect(headers).toMatchObject({
        'x-content-type-options': 'nosniff',
        'x-frame-options': 'DENY',
        'referrer-policy': 'same-origin',
        'cross-origin-resource-policy': 'same-origin',
      });
      expect(headers['content-security-policy']).toMatch(/^default-src 'none'; script-src 'self';/);
      expect(headers['access-control-allow-origin']).toBeUndefined();
    },
  );

  it('gives nothing back as markup', async () => {
    const markup = encodeURIComponent('<script>alert(1)</script>');
    for (const url of [
      `/${markup}`,
      `/api/v2/parties?partyId=${markup}`,
      `/mirror/runs?kind=${markup}`,
      `/mirror/runs/${markup}`,
    ]) {
      const { headers, statusCode } = await open.inject({ url, headers: { host: 'localhost' } });
      expect(statusCode).toBeGreaterThanOrEqual(400);
      expect(`${headers['content-type']}`).toMatch(/^application\/json/);
    }
  });

  it.each([
    [{ url: `/api/v2/parties?a=${'x'.repeat(9_000)}` }, 400],
    [{ url: `/api/v2/parties?${'a=1&'.repeat(200)}` }, 400],
    [{ url: '/mirror/exports', method: 'POST', payload: { partyId: 'a'.repeat(20_000) } }, 413],
    [{ url: `/mirror/runs/${'1'.repeat(200)}` }, 400],
    [{ url: '/mirror/runs?limit=501' }, 400],
    [{ url: '/mirror/runs?limit=1e9' }, 400],
    [{ url: '/mirror/runs?before=1%27' }, 400],
    [{ url: '/%zz' }, 400],
  ] as const)('%j is bounded', async (request, status) => {
    expect(await statusOf(open, { ...request, headers: { host: 'localhost' } })).toBe(status);
  });
});
