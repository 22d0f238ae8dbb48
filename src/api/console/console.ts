/**
 * The console's files, read once at the start: no build step, nothing from another host. What a browser
 * has already is not sent again.
 */
import { hash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { extname } from 'node:path';
import type { FastifyInstance } from 'fastify';
import { openRoutes } from '../kit/routes.ts';

const FOLDER = new URL('page/', import.meta.url);
/** One page at the address of each of its views. */
const PAGES: Readonly<Record<string, readonly string[]>> = {
  'index.html': ['/', '/data', '/runs', '/settings'],
  'login.html': ['/login'],
};
const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
};
/** One style sheet of several files; what comes later wins. */
const STYLES = ['base', 'frame', 'status', 'runs', 'tables', 'dialog', 'phone'];
/** What is sent as one, by its path; the chart library brings its own. */
const BUNDLES = {
  '/assets/console.css': STYLES.map((name) => new URL(`style/${name}.css`, FOLDER)),
  '/assets/uplot.js': [new URL(import.meta.resolve('uplot/dist/uPlot.iife.min.js'))],
  '/assets/uplot.css': [new URL(import.meta.resolve('uplot/dist/uPlot.min.css'))],
};

/** Adds the pages and what they load. */
export async function addConsole(server: FastifyInstance): Promise<void> {
  const add = openRoutes(server);
  const addAsset = async (paths: readonly string[], urls: readonly URL[]) => {
    const content = Buffer.concat(await Promise.all(urls.map((url) => readFile(url))));
    const etag = `"${hash('sha256', content, 'base64url').slice(0, 22)}"`;
    const type = TYPES[extname(urls[0]?.pathname ?? '')];
    for (const path of paths) {
      add(`GET ${path}`, {}, (request, reply) => {
        // Kept by the browser, and asked for again each time: a new version shows at once.
        reply.headers({
          'cache-control': 'private, no-cache',
          etag,
          'content-type': type,
        });
        return request.headers['if-none-match'] === etag
          ? reply.code(304).send()
          : reply.send(content);
      });
    }
  };
  for (const [path, urls] of Object.entries(BUNDLES)) await addAsset([path], urls);
  for (const file of await readdir(FOLDER, { recursive: true })) {
    if (/\.(?:html|js|svg)$/.test(file))
      await addAsset(PAGES[file] ?? [`/assets/${file}`], [new URL(file, FOLDER)]);
  }
}
