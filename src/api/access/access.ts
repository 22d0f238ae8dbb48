/**
 * The one gate in front of every route. With a token everybody, save for the two health checks, must show it:
 * as a bearer, or by the cookie that `/login` sets. A read token may read everything, and start or cancel nothing.
 */
import { createHmac, randomBytes, scrypt } from 'node:crypto';
import { promisify } from 'node:util';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { Config } from '../../config/environment.ts';
import type { Log } from '../../logging/log.ts';
import { sharedLoad } from '../../concurrency/shared-load.ts';
import type { Rows } from '../../postgres/rows.ts';
import { openRoutes } from '../kit/routes.ts';
import { StatusError } from '../kit/status-error.ts';
import { pathOf, refuseForeign } from './hosts.ts';
import { END_SESSION, ENDED_SESSION, readSessionSecret } from './store/ended-sessions.ts';
import { bearerOf, isSame, openTokenCheck, type Role, type Tokens } from './tokens.ts';

/** They tell nothing, and whoever watches the process must not need a name or a token for them. */
const HEALTH_PATHS: ReadonlySet<string> = new Set(['/healthz', '/readyz']);
const OPEN_PATHS = new Set([
  '/login',
  '/logout',
  '/assets/console.css',
  '/assets/icon.svg',
]);
const READING = new Set(['GET', 'HEAD']);
const LOGIN = z.strictObject({ token: z.string().max(1_024) });
const FORM = 'application/x-www-form-urlencoded';
const SESSION_SECONDS = 12 * 60 * 60;
const COOKIE_PREFIX = 'ledger_mirror_';
const derive = promisify(scrypt) as (
  password: string,
  salt: Buffer,
  bytes: number,
) => Promise<Buffer>;

/** Without a token only loopback names are answered. */
export type AccessSettings = Pick<
  Config,
  'apiToken' | 'apiReadToken' | 'apiHosts' | 'apiHost'
>;

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
  { apiToken: write, apiReadToken: read, apiHosts = [], apiHost }: AccessSettings,
  { rows, log }: { readonly rows: Rows; readonly log: Log },
): Promise<void> {
  const tokens = write === undefined ? undefined : { write, read };
  const locks = tokens && {
    ...openSessions(tokens, rows),
    checkToken: await openTokenCheck(server, tokens, log),
  };
  const rules = {
    names: [...apiHosts, apiHost.toLowerCase()],
    hasToken: locks !== undefined,
  };
  server.addHook('onRequest', async (request, reply) => {
    if (isHealthPath(request)) return undefined;
    refuseForeign(request, rules);
    if (locks === undefined || isOpenPath(request)) return undefined;
    const { authorization, cookie, accept = '' } = request.headers;
    const bearer = bearerOf(authorization);
    const role = await (bearer === undefined
      ? locks.roleOf(cookie)
      : locks.checkToken(request, bearer));
    if (role === 'write' || (role === 'read' && READING.has(request.method)))
      return undefined;
    if (role === 'read') {
      const allowed = 'API_READ_TOKEN may read everything, and start or cancel nothing';
      throw new StatusError('permissionDenied', allowed);
    }
    if (request.method === 'GET' && accept.includes('text/html'))
      return reply.redirect('/login', 303);
    reply.header('www-authenticate', 'Bearer');
    throw new StatusError(
      'unauthenticated',
      'a token is needed: send it as a bearer, or log in at /login',
    );
  });
  // In a scope of its own: only a login may come as a form.
  server.register(async (scope) => {
    scope.addContentTypeParser(FORM, { parseAs: 'string' }, (_request, text, done) =>
      done(null, Object.fromEntries(new URLSearchParams(text.toString()))),
    );
    const add = openRoutes(scope);
    add('POST /login', { body: LOGIN }, async (request, reply) => {
      if (locks !== undefined) {
        const role = await locks.checkToken(request, request.body.token);
        if (role === undefined && isForm(request))
          return reply.redirect('/login#wrong', 303);
        if (role === undefined)
          throw new StatusError('unauthenticated', 'that is not the token');
        reply.header(
          'set-cookie',
          cookieOf(request, await locks.open(role), SESSION_SECONDS),
        );
      }
      return isForm(request) ? reply.redirect('/', 303) : reply.code(204).send();
    });
    add('POST /logout', {}, async (request, reply) => {
      if (locks !== undefined)
        reply.header(
          'set-cookie',
          cookieOf(request, await locks.close(request.headers.cookie), 0),
        );
      return isForm(request) ? reply.redirect('/login', 303) : reply.code(204).send();
    });
  });
}

function isForm({ headers }: Pick<FastifyRequest, 'headers'>): boolean {
  return headers['content-type']?.startsWith(FORM) === true;
}

/** @param pair `name=value` */
function cookieOf(
  { headers }: Pick<FastifyRequest, 'headers'>,
  pair: string,
  seconds: number,
): string {
  // Believing a proxy's word costs nothing here: it can only make the cookie stricter.
  const secure = headers['x-forwarded-proto'] === 'https' ? '; Secure' : '';
  return `${pair}; Path=/; Max-Age=${seconds}; HttpOnly; SameSite=Strict${secure}`;
}

/** The sessions of a mirror, as one process knows them; all of its processes share which were ended. */
function openSessions({ write, read = '' }: Tokens, rows: Rows) {
  /** Another token, or another mirror with the same one, has another key: its sessions are none of ours. */
  const readKey = sharedLoad(async () =>
    derive(`${write}\n${read}`, await readSessionSecret(rows), 32),
  );
  const sign = async (text: string) =>
    createHmac('sha256', await readKey())
      .update(`session v2 ${text}`)
      .digest('base64url');
  /** Mirrors on one machine share its cookies, whichever port: each has a name of its own. */
  const cookieName = async () => `${COOKIE_PREFIX}${(await sign('name')).slice(0, 12)}`;
  const find = async (cookies: string) => {
    const name = await cookieName();
    const pair = cookies.split('; ').find((one) => one.startsWith(`${name}=`));
    const [end = '', role = '', id = '', mac = '', rest] = (pair ?? '')
      .slice(name.length + 1)
      .split('.');
    if (rest !== undefined || !isSame(mac, await sign(`${end}.${role}.${id}`)))
      return undefined;
    const endMs = Number(end);
    if (endMs <= Date.now() || (role !== 'read' && role !== 'write')) return undefined;
    return { id, endMs, role } as const;
  };
  return {
    /** A cookie's `name=value`, for a session that begins now. */
    open: async (role: Role) => {
      const body = `${Date.now() + SESSION_SECONDS * 1_000}.${role}.${randomBytes(16).toString('base64url')}`;
      return `${await cookieName()}=${body}.${await sign(body)}`;
    },
    /** @param cookies the request's Cookie header */
    roleOf: async (cookies = '') => {
      const session = cookies.includes(COOKIE_PREFIX) ? await find(cookies) : undefined;
      const ended =
        session && (await rows('look up a session', ENDED_SESSION, [session.id]));
      return ended?.length === 0 ? session?.role : undefined;
    },
    /** @returns the cookie to set in its place */
    close: async (cookies = '') => {
      const session = await find(cookies);
      if (session !== undefined)
        await rows('end a session', END_SESSION, [session.id, `${session.endMs}`]);
      return `${await cookieName()}=`;
    },
  };
}
