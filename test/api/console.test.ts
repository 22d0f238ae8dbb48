/** The console's pages: all of it local, nothing inline, everything it names there. */
import type { FastifyInstance } from 'fastify';
import { beforeAll, describe, expect, it } from 'vitest';
import { apiWithoutDatabase } from './mirror.ts';

let server: FastifyInstance;
beforeAll(async () => {
  server = await apiWithoutDatabase({});
});

async function bodyOf(url: string): Promise<{ body: string; type: string }> {
  const { body, headers, statusCode } = await server.inject({ url, headers: { host: 'localhost' } });
  if (statusCode !== 200) throw new Error(`${url} answered ${statusCode}`);
  return { body, type: `${headers['content-type']}` };
}

describe.each(['/', '/login'])('the page %s', (page) => {
  it('names only what this server has', async () => {
    const { body, type } = await bodyOf(page);
    expect(type).toBe('text/html; charset=utf-8');
    const named = [...body.matchAll(/(?:src|href|action)="([^"]*)"/g)].map(([, url = '']) => url);
    expect(named).toContain('/assets/console.css');
    for (const url of named) {
      expect(url).toMatch(/^\/(?!\/)/);
      await expect(bodyOf(url)).resolves.toBeDefined();
    }
  });

  it('holds no script and no style that its content security policy would refuse', async () => {
    const { body } = await bodyOf(page);
    expect(body).not.toMatch(/<style|style=|<script(?![^>]*src=)|\son\w+=|javascript:/i);
  });

  it('tells its language and title, and labels its parts', async () => {
    const { body } = await bodyOf(page);
    expect(body).toMatch(/<html lang="en">/);
    expect(body).toMatch(/<title>[^<]*ledger-mirror<\/title>/);
    for (const [, id] of body.matchAll(/aria-labelledby="([^"]*)"/g)) expect(body).toContain(`id="${id}"`);
    for (const [, id] of body.matchAll(/<input id="([^"]*)"/g)) expect(body).toContain(`for="${id}"`);
  });
});

describe('the script', () => {
  it('puts nothing into the page as markup', async () => {
    const { body } = await bodyOf('/assets/console.js');
    expect(body).not.toMatch(/innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function/);
    expect(body).not.toMatch(/https?:\/\//);
  });

  it('finds every place that it fills', async () => {
    const [{ body: script }, { body: page }] = [await bodyOf('/assets/console.js'), await bodyOf('/')];
    const places = [...script.matchAll(/place\('([^']*)'\)/g)].map(([, id]) => id);
    expect(places.length).toBeGreaterThan(4);
    for (const id of places) expect(page).toContain(`id="${id}"`);
  });
});
