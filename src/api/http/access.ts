/**
 * Who may ask. A browser only from the mirror's own pages, and where there is no token only under a
 * loopback name, so that neither another site nor a rebound name can use the operator's browser. With
 * a token everybody, save for the two health checks, must show it: as a bearer, or by the cookie that
 * `/login` sets.
 */
import { createHmac, hash, scryptSync, timingSafeEqual } from 'node:crypto';
import { isIPv4 } from 'node:net';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { UsageError } from '../../core/errors.ts';
import { StatusError } from './status-error.ts';

const COOKIE = 'ledger_mirror_session';
const SESSION_MS = 12 * 60 * 60 * 1_000;
/** The same for every process, so that a session is known by all that serve this mirror's token. */
const SESSION_SALT = 'ledger-mirror session v1';
const OPEN_PATHS = new Set(['/healthz', '/readyz', '/login', '/assets/console.css', '/assets/icon.svg']);
const PAGE_PATHS = new Set(['/', '/data', '/runs', '/settings', '/login', '/queues', '/queues/']);

export interface AccessOptions {
  readonly token: string | undefined;
  /** The clock of sessions, in milliseconds since 1970. */
  readonly nowMs?: (() => number) | undefined;
}

/** Does the name or address mean this machine only? Names are not looked up: what DNS says can change. */
export function isLoopback(host: string): boolean {
  const name = host.toLowerCase().replace(/^\[(.*)\]$/, '$1');
  return name === 'localhost' || name === '::1' || (isIPv4(name) && name.startsWith('127.'));
}

/** Was a process that asks for no token asked under a name of this machine? A browser always names one. */
export function isAskedLocally(hostHeader: string | undefined): boolean {
  const name = hostName(hostHeader);
  return hostHeader === undefined || (name !== undefined && isLoopback(name));
}

/** @throws UsageError where others could reach the API and nothing would ask who they are */
export function refuseOpenListening(host: string, token: string | undefined): void {
  if (token !== undefined || isLoopback(host)) return;
  throw new UsageError([
    `API_HOST: ${JSON.stringify(host)} can be reached from other machines, and API_TOKEN is not set; set API_TOKEN (or API_TOKEN_FILE), or listen on 127.0.0.1`,
  ]);
}

/** Whether an Authorization header carries the token, compared in constant time. */
export function isBearer(authorization: string | undefined, token: string): boolean {
  const bearer = /^bearer +(\S+)$/i.exec(authorization ?? '')?.[1];
  return bearer !== undefined && isSame(bearer, hash('sha256', token, 'buffer'));
}

function isSame(text: string, expectedHash: Buffer): boolean {
  return timingSafeEqual(hash('sha256', text, 'buffer'), expectedHash);
}

/** Adds the checks in front of every route, and `/login`. */
export function addAccess(server: FastifyInstance, options: AccessOptions): void {
  const { token } = options;
  const guard = token === undefined ? undefined : new TokenGuard(token, options.nowMs ?? Date.now);
  server.addHook('onRequest', async (request, reply) => {
    refuseForeign(request, token !== undefined);
    if (guard === undefined || OPEN_PATHS.has(pathOf(request)) || guard.knows(request)) return undefined;
    const isPage = request.method === 'GET' && (request.headers.accept ?? '').includes('text/html');
    if (isPage) return reply.redirect('/login', 303);
    reply.header('www-authenticate', 'Bearer');
    throw StatusError.ofGateway(
      'unauthenticated',
      'a token is needed: send it as a bearer, or log in at /login',
    );
  });
  // In a scope of its own: only a login may come as a form.
  server.register(async (scope) => addSessions(scope, guard));
}

function addSessions(server: FastifyInstance, guard: TokenGuard | undefined): void {
  const body = {
    type: 'object',
    properties: { token: { type: 'string', maxLength: 1_024 } },
    required: ['token'],
    additionalProperties: false,
  };
  server.addContentTypeParser(
    'application/x-www-form-urlencoded',
    { parseAs: 'string' },
    (_request, text, done) => done(null, Object.fromEntries(new URLSearchParams(text.toString()))),
  );
  server.post<{ Body: { token: string } }>('/login', { schema: { hide: true, body } }, (request, reply) => {
    const isForm = request.headers['content-type']?.startsWith('application/x-www-form-urlencoded') === true;
    if (guard?.isToken(request.body.token) === false) {
      if (isForm) return reply.redirect('/login#wrong', 303);
      throw StatusError.ofGateway('unauthenticated', 'that is not the token');
    }
    if (guard !== undefined) reply.header('set-cookie', cookie(request, guard.session()));
    return isForm ? reply.redirect('/', 303) : reply.code(204).send();
  });
}

function cookie(request: FastifyRequest, session: string): string {
  // Believing a proxy's word costs nothing here: it can only make the cookie stricter.
  const secure = request.headers['x-forwarded-proto'] === 'https' ? '; Secure' : '';
  return `${COOKIE}=${session}; Path=/; Max-Age=${SESSION_MS / 1_000}; HttpOnly; SameSite=Strict${secure}`;
}

/** Compares in constant time and keeps nothing of anyone. */
class TokenGuard {
  readonly #tokenHash: Buffer;
  readonly #sessionKey: Buffer;
  readonly #nowMs: () => number;

  constructor(token: string, nowMs: () => number) {
    this.#tokenHash = hash('sha256', token, 'buffer');
    this.#sessionKey = scryptSync(token, SESSION_SALT, 32);
    this.#nowMs = nowMs;
  }

  knows(request: FastifyRequest): boolean {
    const bearer = /^bearer +(\S+)$/i.exec(request.headers.authorization ?? '')?.[1];
    if (bearer !== undefined) return this.isToken(bearer);
    const session = new RegExp(`(?:^|; *)${COOKIE}=([^;]*)`).exec(request.headers.cookie ?? '')?.[1];
    return session !== undefined && this.#isSession(session);
  }

  /** `<end in ms>.<mac>`: nothing is kept, so any process can check it. */
  session(): string {
    const end = `${this.#nowMs() + SESSION_MS}`;
    return `${end}.${this.#sign(end)}`;
  }

  isToken(text: string): boolean {
    return isSame(text, this.#tokenHash);
  }

  #isSession(text: string): boolean {
    const [end = '', mac = ''] = text.split('.', 2);
    const isOurs = timingSafeEqual(hash('sha256', mac, 'buffer'), hash('sha256', this.#sign(end), 'buffer'));
    return isOurs && Number(end) > this.#nowMs();
  }

  #sign(end: string): string {
    return createHmac('sha256', this.#sessionKey).update(end).digest('base64url');
  }
}

/** @throws StatusError 403 for a browser that another site sent, or that was lured here by a name */
function refuseForeign(request: FastifyRequest, hasToken: boolean): void {
  const { host, origin } = request.headers;
  if (!hasToken && !isAskedLocally(host)) {
    throw refused('without API_TOKEN only requests under a loopback name are answered');
  }
  if (origin !== undefined && (!URL.canParse(origin) || new URL(origin).host !== host?.toLowerCase())) {
    throw refused('requests from a browser of another origin are not answered');
  }
  const site = request.headers['sec-fetch-site'];
  if (site === undefined || site === 'same-origin' || site === 'none') return;
  // Following a link to a page from elsewhere is harmless: the page does nothing by itself.
  const isLink =
    request.method === 'GET' &&
    request.headers['sec-fetch-mode'] === 'navigate' &&
    request.headers['sec-fetch-dest'] === 'document';
  if (!isLink || !PAGE_PATHS.has(pathOf(request))) {
    throw refused('requests from a browser of another origin are not answered');
  }
}

function hostName(host: string | undefined): string | undefined {
  return host !== undefined && URL.canParse(`http://${host}`)
    ? new URL(`http://${host}`).hostname
    : undefined;
}

function pathOf(request: FastifyRequest): string {
  return request.url.split('?', 1)[0] ?? request.url;
}

function refused(message: string): StatusError {
  return StatusError.ofGateway('permissionDenied', message);
}
