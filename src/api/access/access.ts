/**
 * The one gate in front of every route. With a token everybody, save for the two health checks, must show it:
 * as a bearer, or by the cookie that `/login` sets. A read token may read everything, and start or cancel nothing.
 */
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { Log } from '../../core/log.ts';
import { StatusError } from '../http/status-error.ts';
import { Guesses } from './guesses.ts';
import { pathOf, refuseForeign } from './hosts.ts';
import { bearerOf, Keys, type Role, type SessionStore } from './keys.ts';
import { addSessions } from './sessions.ts';

/** They tell nothing, and whoever watches the process must not need a name or a token for them. */
const HEALTH_PATHS: ReadonlySet<string> = new Set(['/healthz', '/readyz']);
const OPEN_PATHS = new Set(['/login', '/logout', '/assets/console.css', '/assets/icon.svg']);
const READING = new Set(['GET', 'HEAD']);

export interface AccessOptions {
  /** API_TOKEN; without it only loopback names are answered. */
  readonly token: string | undefined;
  /** API_READ_TOKEN. */
  readonly readToken?: string | undefined;
  /** API_HOSTS, and API_HOST where it names one. */
  readonly hosts?: readonly string[] | undefined;
  /** The clock of sessions, in milliseconds since 1970. */
  readonly nowMs?: (() => number) | undefined;
}

export function isHealthPath(request: FastifyRequest): boolean {
  return HEALTH_PATHS.has(pathOf(request));
}

/** Answered before anybody has shown a token. */
export function isOpenPath(request: FastifyRequest): boolean {
  return isHealthPath(request) || OPEN_PATHS.has(pathOf(request));
}

/** Adds the checks in front of every route, `/login` and `/logout`. */
export async function addAccess(
  server: FastifyInstance,
  options: AccessOptions,
  { sessions, log }: { readonly sessions: SessionStore; readonly log: Log },
): Promise<void> {
  const { token, readToken, hosts = [], nowMs = Date.now } = options;
  const keys = token === undefined ? undefined : new Keys({ write: token, read: readToken }, sessions, nowMs);
  const guesses = await Guesses.register(server, log);
  server.addHook('onRequest', async (request, reply) => {
    if (isHealthPath(request)) return undefined;
    refuseForeign(request, { names: hosts, hasToken: token !== undefined });
    if (keys === undefined || isOpenPath(request)) return undefined;
    const role = await roleOf(request, keys, guesses);
    if (role === 'write' || (role === 'read' && READING.has(request.method))) return undefined;
    if (role === 'read') {
      throw StatusError.ofGateway(
        'permissionDenied',
        'API_READ_TOKEN may read everything, and start or cancel nothing',
      );
    }
    const isPage = request.method === 'GET' && (request.headers.accept ?? '').includes('text/html');
    if (isPage) return reply.redirect('/login', 303);
    reply.header('www-authenticate', 'Bearer');
    throw StatusError.ofGateway(
      'unauthenticated',
      'a token is needed: send it as a bearer, or log in at /login',
    );
  });
  // In a scope of its own: only a login may come as a form.
  server.register(async (scope) => addSessions(scope, keys, guesses));
}

/** @throws StatusError 429 where tokens are being guessed */
async function roleOf(request: FastifyRequest, keys: Keys, guesses: Guesses): Promise<Role | undefined> {
  const bearer = bearerOf(request.headers.authorization);
  if (bearer === undefined) return (await keys.sessionOf(request.headers.cookie))?.role;
  guesses.refuseCrowd(request);
  const role = keys.roleOf(bearer);
  if (role === undefined) await guesses.count(request);
  return role;
}
