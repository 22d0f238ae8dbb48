/**
 * The one gate in front of every route. With a token everybody, save for the two health checks, must show it:
 * as a bearer, or by the cookie that `/login` sets. A read token may read everything, and start or cancel nothing.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { Log } from '../../core/log.ts';
import { hideRoutes } from '../http/routes.ts';
import { StatusError } from '../http/status-error.ts';
import { openTokenCheck, type TokenCheck } from './guesses.ts';
import { pathOf, refuseForeign } from './hosts.ts';
import { bearerOf, Keys, type Role, SESSION_SECONDS, type SessionStore } from './keys.ts';

/** They tell nothing, and whoever watches the process must not need a name or a token for them. */
const HEALTH_PATHS: ReadonlySet<string> = new Set(['/healthz', '/readyz']);
const OPEN_PATHS = new Set(['/login', '/logout', '/assets/console.css', '/assets/icon.svg']);
const READING = new Set(['GET', 'HEAD']);
const LOGIN = z.strictObject({ token: z.string().max(1_024) });
const FORM = 'application/x-www-form-urlencoded';

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

/** What opens the mirror where there is a token. */
interface Locks {
  readonly keys: Keys;
  readonly checkToken: TokenCheck;
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
  { token, readToken, hosts = [], nowMs = Date.now }: AccessOptions,
  { sessions, log }: { readonly sessions: SessionStore; readonly log: Log },
): Promise<void> {
  const tokens = token === undefined ? undefined : { write: token, read: readToken };
  const locks = tokens && {
    keys: new Keys(tokens, sessions, nowMs),
    checkToken: await openTokenCheck(server, tokens, log),
  };
  server.addHook('onRequest', async (request, reply) => {
    if (isHealthPath(request)) return undefined;
    refuseForeign(request, { names: hosts, hasToken: locks !== undefined });
    if (locks === undefined || isOpenPath(request)) return undefined;
    const role = await roleOf(request, locks);
    if (role === 'write' || (role === 'read' && READING.has(request.method))) return undefined;
    if (role === 'read') {
      const allowed = 'API_READ_TOKEN may read everything, and start or cancel nothing';
      throw new StatusError('permissionDenied', allowed);
    }
    const isPage = request.method === 'GET' && (request.headers.accept ?? '').includes('text/html');
    if (isPage) return reply.redirect('/login', 303);
    reply.header('www-authenticate', 'Bearer');
    throw new StatusError('unauthenticated', 'a token is needed: send it as a bearer, or log in at /login');
  });
  // In a scope of its own: only a login may come as a form.
  server.register(async (scope) => addSessions(scope, locks));
}

async function roleOf(request: FastifyRequest, { keys, checkToken }: Locks): Promise<Role | undefined> {
  const bearer = bearerOf(request.headers.authorization);
  return bearer === undefined ? keys.roleOf(request.headers.cookie) : checkToken(request, bearer);
}

/** From a token to a cookie, and back. */
function addSessions(server: FastifyInstance, locks: Locks | undefined): void {
  server.addContentTypeParser(FORM, { parseAs: 'string' }, (_request, text, done) =>
    done(null, Object.fromEntries(new URLSearchParams(text.toString()))),
  );
  const add = hideRoutes(server);
  add('POST /login', { body: LOGIN }, async (request, reply) => {
    if (locks !== undefined) {
      const role = await locks.checkToken(request, request.body.token);
      if (role === undefined && isForm(request)) return reply.redirect('/login#wrong', 303);
      if (role === undefined) throw new StatusError('unauthenticated', 'that is not the token');
      setCookie(request, reply, await locks.keys.open(role), SESSION_SECONDS);
    }
    return isForm(request) ? reply.redirect('/', 303) : reply.code(204).send();
  });
  add('POST /logout', {}, async (request, reply) => {
    if (locks !== undefined)
      setCookie(request, reply, `${await locks.keys.close(request.headers.cookie)}=`, 0);
    return isForm(request) ? reply.redirect('/login', 303) : reply.code(204).send();
  });
}

function isForm({ headers }: Pick<FastifyRequest, 'headers'>): boolean {
  return headers['content-type']?.startsWith(FORM) === true;
}

function setCookie(
  { headers }: Pick<FastifyRequest, 'headers'>,
  reply: FastifyReply,
  pair: string,
  seconds: number,
): void {
  // Believing a proxy's word costs nothing here: it can only make the cookie stricter.
  const secure = headers['x-forwarded-proto'] === 'https' ? '; Secure' : '';
  reply.header('set-cookie', `${pair}; Path=/; Max-Age=${seconds}; HttpOnly; SameSite=Strict${secure}`);
}
