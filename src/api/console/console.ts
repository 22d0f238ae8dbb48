/**
 * The console's files, read once at the start: no build step, nothing from another host. What a browser
 * has already is not sent again.
 */
import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { takesGzip } from '../http/answer/compression.ts';
import { hideRoute } from '../http/schemas.ts';

const FOLDER = new URL('page/', import.meta.url);
/** One page at the address of each of its views. */
const PAGES: Readonly<Record<string, readonly string[]>> = {
  'index.html': ['/', '/data', '/runs', '/settings'],
  'login.html': ['/login'],
};
const TYPES: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  css: 'text/css; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  svg: 'image/svg+xml',
};
/** One style sheet of several files; what comes later wins. */
const STYLES = ['base', 'frame', 'status', 'runs', 'tables', 'dialog', 'phone'] as const;
/** The chart library's own files. */
const LIBRARY = [
  { paths: ['/assets/uplot.js'], urls: [new URL(import.meta.resolve('uplot/dist/uPlot.iife.min.js'))] },
  { paths: ['/assets/uplot.css'], urls: [new URL(import.meta.resolve('uplot/dist/uPlot.min.css'))] },
] as const;

interface Asset {
  readonly type: string;
  readonly content: Buffer;
  readonly packed: Buffer;
  readonly tag: string;
}

/** Adds the pages and what they load. */
export async function addConsole(server: FastifyInstance): Promise<void> {
  const files = (await readdir(FOLDER, { recursive: true })).filter((file) =>
    /\.(?:html|js|svg)$/.test(file),
  );
  const own = files.map((file) => ({
    paths: PAGES[file] ?? [`/assets/${file}`],
    urls: [new URL(file, FOLDER)],
  }));
  const style = {
    paths: ['/assets/console.css'],
    urls: STYLES.map((name) => new URL(`style/${name}.css`, FOLDER)),
  };
  for (const { paths, urls } of [...own, style, ...LIBRARY]) {
    const asset = await readAsset(urls);
    for (const path of paths)
      server.get(path, hideRoute(), (request, reply) => sendAsset(request, reply, asset));
  }
}

/** @param urls files of one type, sent as one */
async function readAsset(urls: readonly URL[]): Promise<Asset> {
  const content = Buffer.concat(await Promise.all(urls.map((url) => readFile(url))));
  const packed = await promisify(gzip)(content, { level: 9 });
  const type = TYPES[urls[0]?.pathname.split('.').at(-1) ?? ''] ?? 'application/octet-stream';
  const tag = `"${createHash('sha256').update(content).digest('base64url').slice(0, 22)}"`;
  return { type, content, packed, tag };
}

function sendAsset(request: FastifyRequest, reply: FastifyReply, asset: Asset): FastifyReply {
  // Kept by the browser, and asked for again each time: a new version shows at once.
  reply.headers({ 'cache-control': 'private, no-cache', etag: asset.tag, vary: 'accept-encoding' });
  if (request.headers['if-none-match'] === asset.tag) return reply.code(304).send();
  reply.header('content-type', asset.type);
  return takesGzip(request)
    ? reply.header('content-encoding', 'gzip').send(asset.packed)
    : reply.send(asset.content);
}
