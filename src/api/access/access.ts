/**
 * The access check that every request goes through. If a token is set, every request
 * except health checks and the login must carry it, as a bearer token or through the
 * cookie that `/login` sets. The read token may read everything and query the lake, but
 * cannot start or cancel anything.
 */
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { Log } from '../../logging/log.ts';
import type { Rows } from '../../postgres/api-rows.ts';
import { StatusError } from '../kit/status-error.ts';
import type { IsNamedOrigin } from './cross-origin.ts';
import { refuseForeign } from './hosts.ts';
import { addLogin, loginPage, type Locks } from './login.ts';
import { isHealthPath, isOpenPath } from './paths.ts';
import { Sessions } from './sessions.ts';
import {
  bearerOf,
  openTokenCheck,
  type ReadTokens,
  type Role,
  roleOfToken,
} from './tokens.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** What the request may do; null on the paths that need no token. */
    role: Role | null;
    /** Whether the mirror has a token, so that there are sessions to end. */
    hasLogin: boolean;
  }
}

const READING = new Set(['GET', 'HEAD']);
/**
 * Minimum time between two log lines about refused requests; logging each of them would
 * let a stranger fill the disk.
 */
const REFUSAL_LOG_EVERY_MS = 10_000;

/** The settings that decide which requests are allowed. */
export interface AccessSettings {
  /**
   * The token that grants full access. Without it, only requests to loopback names are
   * accepted.
   */
  readonly apiToken: string | undefined;
  readonly apiReadToken: string | undefined;
  /**
   * Returns the tokens that are currently valid, if they can change at run time. If this
   * is absent, the two tokens above apply.
   */
  readonly readTokens?: ReadTokens | undefined;
  /** Host names that requests may use, besides loopback names and `apiHost`. */
  readonly apiHosts: readonly string[] | undefined;
  readonly apiHost: string;
  /** Origins whose pages may read the source-compatible API. */
  readonly apiOrigins?: readonly string[] | undefined;
  /**
   * The path prefix, without a trailing slash, under which a proxy exposes the console.
   */
  readonly apiBasePath?: string | undefined;
}

/** The dependencies of the checks, in addition to their settings. */
export interface AccessDeps {
  readonly isNamedOrigin: IsNamedOrigin;
  readonly rows: Rows;
  readonly log: Log;
}

/**
 * Adds the access checks in front of every route, and the routes `/login` and `/logout`.
 */
export async function addAccess(
  server: FastifyInstance,
  settings: AccessSettings,
  { rows, log, isNamedOrigin }: AccessDeps,
): Promise<void> {
  const { apiHosts = [], apiHost } = settings;
  const readTokens = settings.readTokens ?? fixTokens(settings);
  const locks =
    readTokens === undefined
      ? undefined
      : {
          sessions: new Sessions(readTokens, rows),
          checkToken: await openTokenCheck(server, readTokens, log),
        };
  const names = [...apiHosts, apiHost.toLowerCase()];
  const rules = { names, hasToken: readTokens !== undefined, isNamedOrigin };
  const logRefusal = openRefusalLog(log);

  server.decorateRequest('role', null);
  server.decorateRequest('hasLogin', readTokens !== undefined);
  server.addHook('onRequest', async (request, reply) => {
    if (isHealthPath(request)) return undefined;
    try {
      refuseForeign(request, rules);
    } catch (error) {
      logRefusal(request);
      throw error;
    }
    if (readTokens === undefined || locks === undefined) {
      request.role = 'write';
      return undefined;
    }
    if (isOpenPath(request)) return undefined;

    const role = await roleOf(request, readTokens, locks);
    request.role = role ?? null;
    if (role === 'write' || (role === 'read' && isReading(request)))
      return undefined;
    if (role === 'read')
      throw new StatusError(
        'permissionDenied',
        'API_READ_TOKEN can only read and query; starting and cancelling need API_TOKEN',
      );
    const { accept = '' } = request.headers;
    if (request.method === 'GET' && accept.includes('text/html'))
      return reply.redirect(loginPage(request.url), 303);
    reply.header('www-authenticate', 'Bearer');
    throw new StatusError(
      'unauthenticated',
      'a token is required: send it as a bearer token, or log in at /login',
    );
  });
  addLogin(server, { locks, cookiePath: settings.apiBasePath || '/' });
}

/**
 * Whether a request only reads. With a method other than GET, a request counts as reading
 * only if its route declares `onlyReads`, which neither the queue board's routes nor
 * unknown paths do.
 */
function isReading({ method, routeOptions }: FastifyRequest): boolean {
  return READING.has(method) || routeOptions.config.onlyReads === true;
}

/** Wraps tokens that never change; returns undefined if none is set. */
function fixTokens({
  apiToken,
  apiReadToken,
}: AccessSettings): ReadTokens | undefined {
  if (apiToken === undefined) return undefined;
  const tokens = { write: apiToken, read: apiReadToken };
  return () => tokens;
}

/**
 * Returns the role of a request. A proxy that authenticates its users adds its own bearer
 * token to each request. If the request also has a valid session, the proxy's token does
 * not count as a wrong guess.
 */
async function roleOf(
  request: FastifyRequest,
  readTokens: ReadTokens,
  { sessions, checkToken }: Locks,
): Promise<Role | undefined> {
  const { authorization, cookie } = request.headers;
  const bearer = bearerOf(authorization);
  if (bearer === undefined) return sessions.roleOf(cookie);
  if (roleOfToken(bearer, readTokens()) === undefined) {
    const role = await sessions.roleOf(cookie);
    if (role !== undefined) return role;
  }
  return checkToken(request, bearer);
}

/**
 * Returns a function that logs refused hosts and origins, with the headers that caused
 * the refusal, at most once every ten seconds.
 */
function openRefusalLog(log: Log): (request: FastifyRequest) => void {
  let lastMs = -Infinity;
  return ({ headers, method, routeOptions }) => {
    const nowMs = performance.now();
    if (nowMs - lastMs < REFUSAL_LOG_EVERY_MS) return;
    lastMs = nowMs;
    const { host, origin, 'sec-fetch-site': fetchSite } = headers;
    log.warn(
      { host, origin, fetchSite, method, route: routeOptions.url },
      'A request for another host or from another origin was refused',
    );
  };
}
