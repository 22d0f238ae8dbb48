/** The console's files, read once at the start: no build step, nothing from another host. */
import { readFile } from 'node:fs/promises';
import type { FastifyInstance } from 'fastify';

const FOLDER = new URL('console/', import.meta.url);
const FILES = [
  { path: '/', file: 'index.html', type: 'text/html; charset=utf-8' },
  { path: '/login', file: 'login.html', type: 'text/html; charset=utf-8' },
  { path: '/assets/console.css', file: 'console.css', type: 'text/css; charset=utf-8' },
  { path: '/assets/console.js', file: 'console.js', type: 'text/javascript; charset=utf-8' },
] as const;

/** Adds the pages and what they load. */
export async function addConsole(server: FastifyInstance): Promise<void> {
  for (const { path, file, type } of FILES) {
    const content = await readFile(new URL(file, FOLDER));
    server.get(path, { schema: { hide: true } }, (_request, reply) =>
      reply.header('content-type', type).send(content),
    );
  }
}
