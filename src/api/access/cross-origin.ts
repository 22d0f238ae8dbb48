/**
 * Allows pages of configured origins to read the source-compatible API in a browser; the
 * source itself allows this to every page. Such pages cannot read anything else from the
 * mirror, or change anything. Browsers do not send cookies with these requests, so the
 * page needs a token if one is set.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { pathOf } from './paths.ts';

const PREFLIGHT_SECONDS = 7_200;
/**
 * Response headers that a page of a configured origin may read, besides those that any
 * page may read.
 */
const READABLE = [
  'content-disposition',
  'retry-after',
  'x-block-height',
  'x-block-timestamp',
  'x-mirror-complete',
  'x-mirror-known-from',
  'x-mirror-known-to',
  'x-mirror-missing',
  'x-mirror-whole',
].join(', ');

/**
 * Whether a request comes from a page of a configured origin and is for a path that
 * such pages may read.
 */
export type IsNamedOrigin = (request: FastifyRequest) => boolean;

/**
 * Adds the CORS headers and answers preflight requests. Call this before adding the
 * access checks, because a preflight request carries no token.
 * @param paths the paths that such pages may read
 */
export function addCrossOrigin(
  server: FastifyInstance,
  origins: readonly string[],
  paths: ReadonlySet<string>,
): IsNamedOrigin {
  const named = new Set(origins);
  const isNamed: IsNamedOrigin = (request) =>
    named.has(request.headers.origin ?? '') && paths.has(pathOf(request));
  if (named.size === 0) return isNamed;
  server.addHook('onRequest', async (request, reply) => {
    if (!paths.has(pathOf(request))) return undefined;
    reply.header('vary', 'Origin');
    if (!isNamed(request)) return undefined;
    reply.headers({
      'access-control-allow-origin': request.headers.origin,
      'access-control-expose-headers': READABLE,
    });
    return isPreflight(request) ? answerPreflight(reply) : undefined;
  });
  return isNamed;
}

function isPreflight({ method, headers }: FastifyRequest): boolean {
  const asked = headers['access-control-request-method'];
  return method === 'OPTIONS' && asked !== undefined;
}

function answerPreflight(reply: FastifyReply): FastifyReply {
  return reply
    .code(204)
    .headers({
      'access-control-allow-methods': 'GET',
      'access-control-allow-headers': 'Authorization',
      'access-control-max-age': String(PREFLIGHT_SECONDS),
    })
    .send();
}
