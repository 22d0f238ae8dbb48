/**
 * Serves the console's files, which are read once at startup. There is no build step, and
 * nothing comes from another host. All URLs in the files are relative, so the pages also
 * work under a proxy's path prefix. A file that the browser has cached is not sent again.
 */
import { hash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { extname } from 'node:path';
import type { FastifyInstance } from 'fastify';
import { openRoutes } from '../kit/routes.ts';

const FOLDER = new URL('page/', import.meta.url);
/**
 * Rules that the command line and the console share. The page imports them as if they
 * were in its folder `shared/`.
 */
const SHARED = new URL('../../format/', import.meta.url);

/** The paths of the HTML files; a page has one path per view. */
const PAGES: Readonly<Record<string, readonly string[]>> = {
  'index.html': [
    '/',
    '/first-night',
    '/data',
    '/statement',
    '/runs',
    '/settings',
  ],
  'login.html': ['/login'],
};

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** The parts of the style sheet, in order: later rules override earlier ones. */
const STYLES = [
  'base',
  'frame',
  'status',
  'runs',
  'tables',
  'dialog',
  'statement',
  'phone',
];

/**
 * Bundles by path; each is sent as one file. The chart library comes bundled, and Prism as
 * one file for each language.
 */
const BUNDLES = {
  '/assets/console.css': STYLES.map(
    (name) => new URL(`style/${name}.css`, FOLDER),
  ),
  '/assets/prism.js': [
    new URL(import.meta.resolve('prismjs/components/prism-core.min.js')),
    new URL(import.meta.resolve('prismjs/components/prism-sql.min.js')),
  ],
  '/assets/uplot.js': [
    new URL(import.meta.resolve('uplot/dist/uPlot.iife.min.js')),
  ],
  '/assets/uplot.css': [
    new URL(import.meta.resolve('uplot/dist/uPlot.min.css')),
  ],
};

const ETAG_CHARACTERS = 22;

/** Adds the pages and the files that they load. */
export async function addConsole(server: FastifyInstance): Promise<void> {
  for (const [path, urls] of Object.entries(BUNDLES))
    await addFile(server, [path], urls);
  for (const file of await readdir(FOLDER, { recursive: true })) {
    if (!/\.(?:html|js|svg)$/.test(file)) continue;
    const paths = PAGES[file] ?? [`/assets/${file}`];
    await addFile(server, paths, [new URL(file, FOLDER)]);
  }
  for (const file of await readdir(SHARED)) {
    if (file.endsWith('.js'))
      await addFile(
        server,
        [`/assets/shared/${file}`],
        [new URL(file, SHARED)],
      );
  }
}

/** Serves the concatenated content of `urls` at each of `paths`. */
async function addFile(
  server: FastifyInstance,
  paths: readonly string[],
  urls: readonly URL[],
): Promise<void> {
  const content = Buffer.concat(
    await Promise.all(urls.map((url) => readFile(url))),
  );
  const digest = hash('sha256', content, 'base64url').slice(0, ETAG_CHARACTERS);
  const etag = `"${digest}"`;
  const type = TYPES[extname(urls[0]?.pathname ?? '')];
  const add = openRoutes(server);
  for (const path of paths) {
    add(`GET ${path}`, { hasHead: true }, (request, reply) => {
      reply.headers({
        // The browser caches the file but revalidates it on each use, so a new version
        // appears at once.
        'cache-control': 'private, no-cache',
        etag,
        'content-type': type,
      });
      return request.headers['if-none-match'] === etag
        ? reply.code(304).send()
        : reply.send(content);
    });
  }
}
