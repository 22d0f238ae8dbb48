/**
 * Who is answered: tokens, sessions, other origins, rebound names. No network: requests
 * are injected.
 */
import { Readable } from 'node:stream';
import type { FastifyInstance, InjectOptions } from 'fastify';
import { beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import {
  isLoopback,
  refuseOpenListening,
} from '../../../src/api/access/hosts.ts';
import { listen } from '../../../src/api/server/server.ts';
import { UsageError } from '../../../src/errors/errors.ts';
import {
  apiWithoutDatabase,
  NO_CONSOLE,
  NO_LAKE,
  sessionsInMemory,
} from '../mirror.ts';

const TOKEN = 'correct horse battery';
let open: FastifyInstance;
let guarded: FastifyInstance;

beforeAll(async () => {
  open = await apiWithoutDatabase({});
  guarded = await apiWithoutDatabase({ token: TOKEN });
});

async function statusOf(
  server: FastifyInstance,
  request: InjectOptions,
): Promise<number> {
  return (await server.inject({ url: '/mirror/runs', ...request })).statusCode;
}

const CHANGING = ['POST', 'PUT', 'PATCH', 'DELETE'] as const;

/** Lists the routes that are not for GET or HEAD, from the tree that Fastify prints. */
function changingRoutes(
  server: FastifyInstance,
): { readonly method: (typeof CHANGING)[number]; readonly path: string }[] {
  const above: string[] = [];
  const tree = server.printRoutes({ commonPrefix: false });
  return tree.split('\n').flatMap((line) => {
    const [, indent = '', part = '', methods = ''] =
      /^(.*[└├]── )(\S*)(?: \((.*)\))?$/.exec(line) ?? [];
    const depth = indent.length / 4 - 1;
    above.splice(depth, above.length, part);
    const path = above.join('');
    return CHANGING.filter((method) =>
      methods.split(', ').includes(method),
    ).map((method) => ({ method, path }));
  });
}

describe('the address the API listens on', () => {
  test.each([
    '127.0.0.1',
    '127.8.9.1',
    'localhost',
    'LOCALHOST',
    '::1',
    '[::1]',
  ])('%s counts as this machine', (host) => {
    expect(isLoopback(host)).toBe(true);
    expect(() => refuseOpenListening(host, undefined)).not.toThrow();
  });

  test.each([
    '0.0.0.0',
    '::',
    '10.0.0.1',
    'localhost.example.com',
    '127.0.0.1.example.com',
    '128.0.0.1',
    '',
  ])('%j is refused without a token', (host) => {
    expect(() => refuseOpenListening(host, undefined)).toThrow(UsageError);
    expect(() => refuseOpenListening(host, TOKEN)).not.toThrow();
  });
});

test('a server without a token does not begin to listen for others', async () => {
  const listening = listen(open, {
    host: '0.0.0.0',
    port: 0,
    token: undefined,
  });
  await expect(listening).rejects.toThrow(UsageError);
  expect(open.server.listening).toBe(false);
});

describe('the API without a token', () => {
  test.each([
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
  ])('answers a request with headers %j with %i', async (headers, status) => {
    expect(
      await statusOf(open, { headers: { host: 'localhost', ...headers } }),
    ).toBe(status);
  });

  test('serves the console to a link from another site, but never into a frame', async () => {
    const link = {
      host: 'localhost',
      'sec-fetch-site': 'cross-site',
      'sec-fetch-mode': 'navigate',
    };
    expect(
      await statusOf(open, {
        url: '/',
        headers: { ...link, 'sec-fetch-dest': 'document' },
      }),
    ).toBe(200);
    expect(
      await statusOf(open, {
        url: '/',
        headers: { ...link, 'sec-fetch-dest': 'iframe' },
      }),
    ).toBe(403);
    expect(
      await statusOf(open, {
        url: '/',
        method: 'POST',
        headers: { ...link, 'sec-fetch-dest': 'document' },
      }),
    ).toBe(403);
  });
});

describe('the API behind a proxy without a token', () => {
  test.each([
    'x-forwarded-for',
    'x-forwarded-host',
    'x-forwarded-proto',
    'x-real-ip',
    'forwarded',
    'via',
  ])(
    'refuses a request with %s, because the proxy would open the mirror to everybody',
    async (name) => {
      const headers = { host: '127.0.0.1:8080', [name]: 'for=203.0.113.9' };
      expect(await statusOf(open, { headers })).toBe(403);
      const known = {
        ...headers,
        authorization: 'Bearer correct-horse-battery',
      };
      const guardedToo = await apiWithoutDatabase({
        token: 'correct-horse-battery',
      });
      expect(await statusOf(guardedToo, { headers: known })).toBe(200);
    },
  );
});

describe('the check of the Host header', () => {
  const authorization = 'Bearer correct-horse-battery';
  const hosts = ['mirror.example', '*.internal.example', '10.1.2.3'];

  test.each([
    ['127.0.0.1:8080', 200],
    ['localhost', 200],
    ['[::1]:8080', 200],
    ['mirror.example', 200],
    ['MIRROR.example:8080', 200],
    ['a.internal.example', 200],
    ['10.1.2.3:8080', 200],
    ['rebind.evil.example', 403],
    ['mirror.example.evil.example', 403],
    ['xinternal.example', 403],
    ['internal.example', 403],
    ['10.1.2.4', 403],
    ['bad host', 403],
  ])('%s is answered with %i', async (host, status) => {
    const server = await apiWithoutDatabase({
      token: 'correct-horse-battery',
      hosts,
    });
    expect(await statusOf(server, { headers: { host, authorization } })).toBe(
      status,
    );
  });

  test('accepts only loopback names where API_HOSTS is not set, so that a rebound name reads nothing', async () => {
    const server = await apiWithoutDatabase({ token: 'correct-horse-battery' });
    expect(
      await statusOf(server, {
        headers: { host: 'rebind.evil.example', authorization },
      }),
    ).toBe(403);
  });

  test.each(['/healthz', '/readyz'])(
    'does not apply to %s, which probes ask by address',
    async (url) => {
      for (const server of [open, guarded]) {
        expect(
          await statusOf(server, { url, headers: { host: '10.9.8.7:8080' } }),
        ).toBe(200);
      }
    },
  );
});

describe('the read token', () => {
  const token = 'writes-0123456789';
  const readToken = 'reads-9876543210';
  const reader = { authorization: `Bearer ${readToken}` };

  test('reads everything that the full token reads', async () => {
    const server = await apiWithoutDatabase({ token, readToken });
    for (const url of [
      '/mirror/runs',
      '/mirror/status',
      '/api/v2/parties',
      '/metrics',
      '/',
    ]) {
      expect(await statusOf(server, { url, headers: reader })).toBe(200);
    }
  });

  test.each([
    ['POST', '/mirror/exports'],
    ['DELETE', '/mirror/exports/018f4e5e-0000-7000-8000-000000000000'],
    ['POST', '/console/night'],
    ['PUT', '/queues/api/queues/pause'],
    ['PATCH', '/nothing'],
  ] as const)(
    'orders nothing: %s %s is answered with 403',
    async (method, url) => {
      const server = await apiWithoutDatabase({ token, readToken });
      expect(
        await statusOf(server, { method, url, headers: reader, payload: {} }),
      ).toBe(403);
    },
  );

  test('queries the lake, by its header or by its session', async () => {
    const asked: unknown[] = [];
    const lake = {
      ...NO_LAKE,
      ask: (question: unknown) => {
        asked.push(question);
        return Promise.resolve({ rows: [], isCut: false, tookMs: 1 });
      },
      file: () => Promise.resolve(Readable.from(['n\n1\n'])),
    };
    const server = await apiWithoutDatabase({
      token,
      readToken,
      console: { ...NO_CONSOLE, lake },
    });
    const payload = { sql: 'select 1' };
    const cookie = await sessionCookie(server, readToken);
    for (const headers of [reader, { cookie }]) {
      for (const url of ['/console/query', '/console/query/file?format=csv'])
        expect([
          url,
          await statusOf(server, { method: 'POST', url, headers, payload }),
        ]).toEqual([url, 200]);
    }
    expect(asked).toEqual([payload, payload]);
    expect(
      await statusOf(server, {
        method: 'POST',
        url: '/console/query',
        payload,
      }),
    ).toBe(401);
  });

  test('may send no other request that is not a GET, on any route that exists', async () => {
    const server = await apiWithoutDatabase({ token, readToken });
    const reading: string[] = [];
    const refused: string[] = [];
    for (const { method, path } of changingRoutes(server)) {
      const status = await statusOf(server, {
        method,
        url: path.replaceAll(':id', '018f4e5e-0000-7000-8000-000000000000'),
        headers: reader,
        payload: {},
      });
      (status === 403 ? refused : reading).push(`${method} ${path}`);
    }
    expect(reading.toSorted()).toEqual([
      'POST /console/query',
      'POST /console/query/file',
      'POST /login',
      'POST /logout',
    ]);
    expect(refused).toEqual(
      expect.arrayContaining([
        'POST /console/look',
        'POST /console/test-notice',
        'POST /mirror/exports',
        'POST /mirror/runs',
        'DELETE /mirror/exports/:id',
      ]),
    );
  });

  test('opens a session that reads and orders nothing', async () => {
    const server = await apiWithoutDatabase({ token, readToken });
    const cookie = await sessionCookie(server, readToken);
    expect(await statusOf(server, { headers: { cookie } })).toBe(200);
    expect(
      await statusOf(server, {
        method: 'POST',
        url: '/mirror/exports',
        headers: { cookie },
        payload: {},
      }),
    ).toBe(403);
    // The role is part of what is signed.
    const forged = cookie.replace('.read.', '.write.');
    expect(forged).not.toBe(cookie);
    expect(await statusOf(server, { headers: { cookie: forged } })).toBe(401);
  });
});

describe('a session', () => {
  test('ends with the logout, even for a client that kept its cookie', async () => {
    const sessions = sessionsInMemory();
    const server = await apiWithoutDatabase({
      token: TOKEN,
      answers: sessions,
    });
    const mine = await sessionCookie(server, TOKEN);
    const other = await sessionCookie(server, TOKEN);
    const out = await server.inject({
      method: 'POST',
      url: '/logout',
      headers: { cookie: mine },
    });
    expect(out.statusCode).toBe(204);
    expect(out.headers['set-cookie']).toMatch(
      /=; Path=\/; Max-Age=0; HttpOnly/,
    );
    expect(await statusOf(server, { headers: { cookie: mine } })).toBe(401);
    expect(await statusOf(server, { headers: { cookie: other } })).toBe(200);
    // Another process of the same mirror knows of it, too.
    const sibling = await apiWithoutDatabase({
      token: TOKEN,
      answers: sessions,
    });
    expect(await statusOf(sibling, { headers: { cookie: mine } })).toBe(401);
    expect(await statusOf(sibling, { headers: { cookie: other } })).toBe(200);
  });

  test('is valid for one mirror only, even where another has the same token', async () => {
    const server = await apiWithoutDatabase({
      token: TOKEN,
      answers: sessionsInMemory(1),
    });
    const another = await apiWithoutDatabase({
      token: TOKEN,
      answers: sessionsInMemory(2),
    });
    const cookie = await sessionCookie(server, TOKEN);
    expect(await statusOf(server, { headers: { cookie } })).toBe(200);
    expect(await statusOf(another, { headers: { cookie } })).toBe(401);
    // Two mirrors on one machine share its cookies, so their names differ.
    expect((await sessionCookie(another, TOKEN)).split('=')[0]).not.toBe(
      cookie.split('=')[0],
    );
  });

  test('ends when either token is rotated', async () => {
    const sessions = sessionsInMemory();
    const server = await apiWithoutDatabase({
      token: TOKEN,
      readToken: 'reader',
      answers: sessions,
    });
    const cookie = await sessionCookie(server, TOKEN);
    for (const rotated of [
      { token: `${TOKEN}!` },
      { token: TOKEN, readToken: 'other' },
    ]) {
      const after = await apiWithoutDatabase({ ...rotated, answers: sessions });
      expect(await statusOf(after, { headers: { cookie } })).toBe(401);
    }
  });
});

async function sessionCookie(
  server: FastifyInstance,
  token: string,
): Promise<string> {
  const login = await server.inject({
    method: 'POST',
    url: '/login',
    payload: { token },
  });
  return String(login.headers['set-cookie']).split(';', 1)[0] ?? '';
}

describe('the API with a token', () => {
  test('answers only requests that carry the token', async () => {
    expect(await statusOf(guarded, {})).toBe(401);
    expect(
      await statusOf(guarded, { headers: { authorization: 'Bearer wrong' } }),
    ).toBe(401);
    expect(
      await statusOf(guarded, { headers: { authorization: `Basic ${TOKEN}` } }),
    ).toBe(401);
    expect(
      await statusOf(guarded, {
        headers: { authorization: `Bearer ${TOKEN}` },
      }),
    ).toBe(401);
    const spaceless = await apiWithoutDatabase({
      token: 'correct-horse-battery',
    });
    expect(
      await statusOf(spaceless, {
        headers: { authorization: 'Bearer correct-horse-battery' },
      }),
    ).toBe(200);
    expect(
      await statusOf(spaceless, {
        headers: { authorization: 'bearer correct-horse-battery' },
      }),
    ).toBe(200);
    expect(
      await statusOf(spaceless, {
        headers: { authorization: 'Bearer correct-horse-batterz' },
      }),
    ).toBe(401);
  });

  test.each([
    '/api/v2/parties',
    '/',
    '/metrics',
    '/openapi.json',
    '/mirror/status',
    '/assets/console.js',
    '/nothing',
    '/queues',
  ])('asks for the token at %s', async (url) => {
    expect(await statusOf(guarded, { url })).toBe(401);
  });

  test.each(['/healthz', '/readyz', '/login', '/assets/console.css'])(
    'serves %s without the token',
    async (url) => {
      expect(await statusOf(guarded, { url })).toBe(200);
    },
  );

  test('sends browsers to the login page', async () => {
    const { statusCode, headers } = await guarded.inject({
      url: '/',
      headers: { accept: 'text/html' },
    });
    expect([statusCode, headers.location]).toEqual([303, '/login']);
  });

  test.each([` ${TOKEN}`, `${TOKEN} `, `${TOKEN}\n`])(
    'accepts a token that was pasted with blanks: %j',
    async (token) => {
      const { statusCode } = await guarded.inject({
        method: 'POST',
        url: '/login',
        payload: { token },
      });
      expect(statusCode).toBe(204);
    },
  );

  test('opens a session that scripts cannot read and other sites cannot use', async () => {
    const login = await guarded.inject({
      method: 'POST',
      url: '/login',
      payload: { token: TOKEN },
    });
    expect(login.statusCode).toBe(204);
    const cookie = String(login.headers['set-cookie']);
    expect(cookie).toMatch(/; HttpOnly; SameSite=Lax$/);
    expect(cookie).not.toContain(TOKEN);
    const [pair = ''] = cookie.split(';');
    expect(
      await statusOf(guarded, { headers: { cookie: `other=1; ${pair}` } }),
    ).toBe(200);
    expect(await statusOf(guarded, { headers: { cookie: `x${pair}` } })).toBe(
      401,
    );
    // A later end would be a longer session: it is part of what is signed.
    expect(
      await statusOf(guarded, {
        headers: { cookie: pair.replace(/=\d/, '=9') },
      }),
    ).toBe(401);
    const others = await apiWithoutDatabase({ token: `${TOKEN}!` });
    expect(await statusOf(others, { headers: { cookie: pair } })).toBe(401);
  });

  test('ends a session after twelve hours', async () => {
    vi.useFakeTimers({ toFake: ['Date'], now: 1_000_000 });
    onTestFinished(() => void vi.useRealTimers());
    const server = await apiWithoutDatabase({ token: TOKEN });
    const login = await server.inject({
      method: 'POST',
      url: '/login',
      payload: { token: TOKEN },
    });
    const cookie = String(login.headers['set-cookie']).split(';', 1)[0] ?? '';
    vi.setSystemTime(1_000_000 + 12 * 3_600_000 - 1);
    expect(await statusOf(server, { headers: { cookie } })).toBe(200);
    vi.setSystemTime(1_000_000 + 12 * 3_600_000);
    expect(await statusOf(server, { headers: { cookie } })).toBe(401);
  });

  test('accepts a login form and marks the cookie Secure behind TLS', async () => {
    const form = {
      'content-type': 'application/x-www-form-urlencoded',
      'x-forwarded-proto': 'https',
    };
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
    expect([wrong.headers.location, wrong.headers['set-cookie']]).toEqual([
      '/login#wrong',
      undefined,
    ]);
  });

  test.each([
    {},
    { token: 'wrong' },
    { token: 1 },
    { token: TOKEN, more: 1 },
    'text',
    { token: 'x'.repeat(20_000) },
  ])('opens no session for a login with %j', async (payload) => {
    const { statusCode, headers } = await guarded.inject({
      method: 'POST',
      url: '/login',
      payload,
    });
    expect(statusCode).toBeGreaterThanOrEqual(400);
    expect(headers['set-cookie']).toBeUndefined();
  });

  test('refuses requests from other origins even with the token', async () => {
    const headers = {
      authorization: `Bearer ${TOKEN}`,
      origin: 'https://evil.example',
    };
    expect(await statusOf(guarded, { headers })).toBe(403);
  });
});

describe('every answer of the API', () => {
  test.each([
    '/',
    '/nothing',
    '/api/v2/parties?pagination.first=x',
    '/healthz',
  ])('%s carries the security headers', async (url) => {
    const { headers } = await open.inject({
      url,
      headers: { host: 'localhost' },
    });
    expect(headers).toMatchObject({
      'x-content-type-options': 'nosniff',
      'x-frame-options': 'DENY',
      'referrer-policy': 'same-origin',
      'cross-origin-resource-policy': 'same-origin',
    });
    expect(headers['content-security-policy']).toMatch(
      /^default-src 'none'; script-src 'self';/,
    );
    expect(headers['access-control-allow-origin']).toBeUndefined();
  });

  test('never returns request text as markup', async () => {
    const markup = encodeURIComponent('<script>alert(1)</script>');
    for (const url of [
      `/${markup}`,
      `/api/v2/parties?partyId=${markup}`,
      `/mirror/runs?kind=${markup}`,
      `/mirror/runs/${markup}`,
    ]) {
      const { headers, statusCode } = await open.inject({
        url,
        headers: { host: 'localhost' },
      });
      expect(statusCode).toBeGreaterThanOrEqual(400);
      expect(`${headers['content-type']}`).toMatch(/^application\/json/);
    }
  });

  test.each([
    [{ url: `/api/v2/parties?a=${'x'.repeat(9_000)}` }, 400],
    [{ url: `/api/v2/parties?${'a=1&'.repeat(200)}` }, 400],
    [
      {
        url: '/mirror/exports',
        method: 'POST',
        payload: { partyId: 'a'.repeat(20_000) },
      },
      413,
    ],
    [{ url: `/mirror/runs/${'1'.repeat(200)}` }, 400],
    [
      { url: '/mirror/runs/urn:uuid:0199a000-0000-7000-8000-000000000001' },
      400,
    ],
    [{ url: '/mirror/runs?limit=501' }, 400],
    [{ url: '/mirror/runs?limit=1e9' }, 400],
    [{ url: '/mirror/runs?before=1%27' }, 400],
    [{ url: '/%zz' }, 400],
    [{ url: '/mirror/runs?limit=1e400' }, 400],
    [{ url: '/mirror/runs?limit=Infinity' }, 400],
    [{ url: '/mirror/exports?limit=1e400' }, 400],
    [{ url: '/console/quarantined?limit=1e400' }, 400],
    [{ url: '/mirror/runs?kind=%00' }, 400],
    [{ url: '/console/parties?after=%00' }, 400],
    [{ url: '/console/parties?after=a%00b' }, 400],
    [{ url: '/console/parties?after=%' }, 400],
    [{ url: '/console/parties?after=%ff' }, 400],
  ] as const)(
    'is refused for a request beyond the limits: %j',
    async (request, status) => {
      expect(
        await statusOf(open, { ...request, headers: { host: 'localhost' } }),
      ).toBe(status);
    },
  );
});
