/**
 * `/mirror/proof/…`: the log of nightly runs, exactly as stored in the object store, so
 * that others can verify what this mirror claims and compare it with their own mirror.
 */
import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import { openRoutes } from '../kit/routes.ts';
import { StatusError } from '../kit/status-error.ts';
import type { MirrorDeps } from './ports.ts';

/** The names of the log's files; no other object in the store can be requested. */
const PATH =
  /^(?:checkpoint|statements\/\d{9}|(?:ledgers|pages)\/\d{1,9}-[0-9a-f]{8}|tile\/(?:\d{1,2}|entries)\/(?:x\d{3}\/){0,4}\d{3}(?:\.p\/\d{1,3})?)$/;
const RANGE = /^bytes=(?<start>\d{1,15})-(?<last>\d{1,15})$/;

const FILE = {
  summary: 'A file of the log of nights',
  description:
    'What docs/proof.md describes: `checkpoint`, `statements/…`, `tile/…`, `pages/…`, `ledgers/…`. ' +
    'A range of bytes can be asked for.',
  params: z.object({ '*': z.string().max(200) }),
  produces: ['application/octet-stream'],
};

const LATEST = {
  summary: 'The last statement, and what proves it',
  description:
    'A C2SP `tlog-proof`: the signed checkpoint, the place of the last statement in the log, ' +
    'and, in `extra`, the statement itself, the public key, and the proof that the log ' +
    'continues the one with `from` nights.',
  querystring: z.object({
    from: z
      .string()
      .regex(/^\d{1,9}$/)
      .optional()
      .describe('How many nights of the log are known.'),
  }),
  produces: ['text/plain'],
};

/** Adds the routes. */
export function addProof(server: FastifyInstance, { jobs }: MirrorDeps): void {
  const add = openRoutes(server, 'mirror');
  add('GET /mirror/proof/latest', LATEST, async ({ query, signal }, reply) => {
    const from = Number(query.from ?? 0);
    const latest = await jobs.stages.readLatestStatement(from, signal);
    if (latest === undefined)
      throw new StatusError('notFound', 'no night has ended yet');
    return reply
      .header('content-type', 'text/plain; charset=utf-8')
      .header('cache-control', 'no-cache')
      .send(latest);
  });
  add(
    'GET /mirror/proof/*',
    FILE,
    async ({ params, headers, signal }, reply) => {
      const path = params['*'];
      const range = readRange(headers.range);
      const content = PATH.test(path)
        ? await jobs.stages.readProofFile(path, range, signal)
        : undefined;
      if (content === undefined)
        throw new StatusError('notFound', 'the log of nights has no such file');
      reply
        .header('content-type', 'application/octet-stream')
        // The checkpoint is the only file that ever changes.
        .header(
          'cache-control',
          path === 'checkpoint'
            ? 'no-cache'
            : 'private, max-age=31536000, immutable',
        );
      if (range === undefined) return reply.send(content);
      const end = range.start + content.length;
      return reply
        .code(206)
        .header('content-range', `bytes ${range.start}-${end - 1}/*`)
        .send(content);
    },
  );
}

/**
 * Parses the Range header.
 * @returns undefined if the request has no range that this route supports
 */
function readRange(header: string | undefined) {
  const { start, last } = RANGE.exec(header ?? '')?.groups ?? {};
  if (start === undefined || last === undefined) return undefined;
  const range = { start: Number(start), end: Number(last) + 1 };
  return range.start < range.end ? range : undefined;
}
