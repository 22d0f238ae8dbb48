/** Headers that keep a browser from being used, and a limit on the requests in work at once. */
import type { FastifyInstance } from 'fastify';
import { StatusError } from './status-error.ts';

/** What more would only wait for the database's connections. */
const OPEN_REQUESTS_MAX = 256;
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
  let open = 0;
  server.addHook('onRequest', async (request, reply) => {
    reply.headers(HEADERS);
    open += 1;
    reply.raw.once('close', () => (open -= 1));
    if (open > OPEN_REQUESTS_MAX) {
      reply.header('retry-after', '1');
      throw StatusError.ofGateway('unavailable', 'too many requests are open; try again');
    }
    if (request.url.length > URL_CHARACTERS_MAX) {
      throw StatusError.ofGateway(
        'invalidArgument',
        `the URL is longer than ${URL_CHARACTERS_MAX} characters`,
      );
    }
  });
}
