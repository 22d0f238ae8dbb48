/** Headers that keep a browser from being used, and targets that no route has a use for. */
import type { FastifyInstance } from 'fastify';
import { StatusError } from './status-error.ts';

const URL_CHARACTERS_MAX = 8_192;

const HEADERS = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  // Not `no-referrer`: a browser would then send the login's form with the origin `null`.
  'referrer-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), geolocation=(), microphone=()',
  'cache-control': 'no-store',
} as const;

/** Must be added before all routes. */
export function addSafety(server: FastifyInstance): void {
  server.addHook('onRequest', async (request, reply) => {
    reply.headers(HEADERS);
    if (request.url.length > URL_CHARACTERS_MAX) {
      throw new StatusError('invalidArgument', `the URL is longer than ${URL_CHARACTERS_MAX} characters`);
    }
    // The service's own lists say in their own words what is wrong with a parameter.
    if (!request.url.startsWith('/api/v2/') && !isText(request.url)) {
      throw new StatusError('invalidArgument', 'the URL holds a broken escape or a NUL character');
    }
  });
}

/** No text of ours holds a NUL, and Postgres takes none. */
function isText(url: string): boolean {
  try {
    return !decodeURIComponent(url).includes('\0');
  } catch {
    return false;
  }
}
