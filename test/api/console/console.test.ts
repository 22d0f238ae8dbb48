/** The console's pages: all of it local, nothing inline, everything it names there. */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import type { FastifyInstance } from 'fastify';
import { beforeAll, describe, expect, test } from 'vitest';
import { apiWithoutDatabase } from '../mirror.ts';

let server: FastifyInstance;
beforeAll(async () => {
  server = await apiWithoutDatabase({});
});

async function bodyOf(url: string): Promise<{ body: string; type: string }> {
  const { body, headers, statusCode } = await server.inject({
    url,
    headers: { host: 'localhost' },
  });
  if (statusCode !== 200) throw new Error(`${url} answered ${statusCode}`);
  return { body, type: `${headers['content-type']}` };
}

describe.each(['/', '/login'])('the page %s', (page) => {
  test('names only what this server has', async () => {
    const { body, type } = await bodyOf(page);
    expect(type).toBe('text/html; charset=utf-8');
    const named = [...body.matchAll(/(?:src|href)="([^"]*)"/g)].map(
      ([, url = '']) => url,
    );
    expect(named).toContain('assets/console.css');
    const actions = [...body.matchAll(/method="post" action="([^"]*)"/g)].map(
      ([, url = '']) => url,
    );
    expect(actions).toEqual([page === '/' ? 'logout' : 'login']);
    for (const url of actions) {
      expect(server.hasRoute({ method: 'POST', url: `/${url}` })).toBe(true);
    }
    // Relative, so that the page works below the path of a proxy.
    for (const url of named.filter((name) => !name.startsWith('#'))) {
      expect(url).toMatch(/^(?:\.\/|[a-z])/);
      if (url === 'queues') continue;
      const { pathname } = new URL(url, 'http://localhost/');
      await expect(bodyOf(pathname)).resolves.toBeDefined();
    }
  });

  test('holds no script and no style that its content security policy would refuse', async () => {
    const { body } = await bodyOf(page);
    expect(body).not.toMatch(
      /<style|style=|<script(?![^>]*src=)|\son\w+=|javascript:/i,
    );
  });

  test('has a language and a title, and labels its parts', async () => {
    const { body } = await bodyOf(page);
    expect(body).toMatch(/<html lang="en">/);
    expect(body).toMatch(/<title>[^<]*ledger-mirror<\/title>/);
    for (const [, id] of body.matchAll(/aria-labelledby="([^"]*)"/g))
      expect(body).toContain(`id="${id}"`);
    for (const [, id] of body.matchAll(/<input id="([^"]*)"(?! name="next")/g))
      expect(body).toContain(`for="${id}"`);
  });
});

function scriptsIn(folder: string): readonly string[] {
  const url = new URL(`../../../src/${folder}/`, import.meta.url);
  return readdirSync(url, { recursive: true, encoding: 'utf8' }).filter(
    (file) => file.endsWith('.js'),
  );
}

/** Every script of the page, by the path that it is served at. */
const SCRIPTS = [
  ...scriptsIn('api/console/page'),
  ...scriptsIn('format').map((file) => `shared/${file}`),
];

describe.each(SCRIPTS)('the script %s', (file) => {
  test('puts nothing into the page as markup, and names no other host', async () => {
    const { body } = await bodyOf(`/assets/${file}`);
    expect(body).not.toMatch(
      /innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function/,
    );
    expect(body.replace("'http://www.w3.org/2000/svg'", '')).not.toMatch(
      /https?:\/\//,
    );
  });

  test('imports only what is served, and finds every place that it fills', async () => {
    const { body: script } = await bodyOf(`/assets/${file}`);
    const { body: page } = await bodyOf('/');
    for (const [, path = ''] of script.matchAll(/from '(\.[^']*)'/g))
      expect(SCRIPTS).toContain(join(dirname(file), path));
    // Its requests stay below the path of a proxy, too.
    expect(script).not.toMatch(/['"`]\/(?:console|mirror|api|assets|login)\b/);
    for (const [, id] of script.matchAll(/\b(?:byId|loader)\(\s*'([^']*)'/g))
      expect(page).toContain(`id="${id}"`);
  });
});

describe('an unknown address', () => {
  const send = async (url: string, accept: string, basePath = '') => {
    const one = await apiWithoutDatabase({ basePath });
    return one.inject({ url, headers: { host: 'localhost', accept } });
  };

  test.each(['/no-such-page', '/runs/7', '/data/'])(
    'leads a browser from %s to the console, below the path of a proxy too',
    async (url) => {
      const answer = await send(`/ledger${url}`, 'text/html', '/ledger');
      expect(answer.statusCode).toBe(404);
      expect(answer.headers['content-type']).toBe('text/html; charset=utf-8');
      expect(answer.body).toContain('There is no page at this address');
      expect(answer.body).toContain('href="/ledger/"');
    },
  );

  test.each([
    ['/no-such-page', 'application/json'],
    ['/mirror/no-such-route', 'text/html'],
    ['/api/v2/no-such-route', 'text/html'],
  ])('answers %s for %s with JSON', async (url, accept) => {
    const answer = await send(url, accept);
    expect([answer.statusCode, answer.json()]).toMatchObject([
      404,
      { message: 'Not Found' },
    ]);
  });
});

describe('an asset', () => {
  test('is sent packed where the browser unpacks it, and not at all where it has it', async () => {
    const ask = async (
      headers: Record<string, string>,
    ): Promise<Awaited<ReturnType<typeof server.inject>>> =>
      server.inject({
        url: '/assets/uplot.js',
        headers: { host: 'localhost', ...headers },
      });
    const plain = await ask({});
    const packed = await ask({ 'accept-encoding': 'gzip, br' });
    expect(gunzipSync(packed.rawPayload)).toEqual(plain.rawPayload);
    const kept = await ask({ 'if-none-match': `${plain.headers.etag}` });
    expect([kept.statusCode, kept.rawPayload.length]).toEqual([304, 0]);
  });
});

describe('the style sheet', () => {
  test('is every file of the folder, in an order that ends with the phone', async () => {
    const folder = new URL(
      '../../../src/api/console/page/style/',
      import.meta.url,
    );
    const { body, type } = await bodyOf('/assets/console.css');
    expect(type).toBe('text/css; charset=utf-8');
    const places = readdirSync(folder).map((file) => ({
      file,
      at: body.indexOf(readFileSync(new URL(file, folder), 'utf8')),
    }));
    expect(places.filter(({ at }) => at < 0)).toEqual([]);
    expect(
      places.toSorted((a, b) => a.at - b.at).map(({ file }) => file),
    ).toMatchObject({
      0: 'base.css',
      [places.length - 1]: 'phone.css',
    });
  });
});
