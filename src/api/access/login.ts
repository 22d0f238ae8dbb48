/**
 * `/login` exchanges a token for a session cookie, and `/logout` ends the session. Both
 * accept the page's form or JSON.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { openRoutes } from '../kit/routes.ts';
import { StatusError } from '../kit/status-error.ts';
import { safeReturnPath } from './paths.ts';
import { SESSION_SECONDS, type Sessions } from './sessions.ts';
import type { TokenCheck } from './tokens.ts';

const LOGIN = z.strictObject({
  token: z.string().max(1_024),
  next: z
    .string()
    .max(2_048)
    .optional()
    .describe('The page to return to: path, query and fragment.'),
});
const FORM = 'application/x-www-form-urlencoded';

/** The token and session checks of a mirror that requires a token. */
export interface Locks {
  readonly sessions: Sessions;
  readonly checkToken: TokenCheck;
}

export interface LoginOptions {
  /** undefined if no token is required; every client is then let in. */
  readonly locks: Locks | undefined;
  /** The path of the cookie: browsers send it for this path and everything below it. */
  readonly cookiePath: string;
}

/** Adds both routes in their own scope, so that no other route accepts form bodies. */
export function addLogin(
  server: FastifyInstance,
  { locks, cookiePath }: LoginOptions,
): void {
  server.register(async (scope) => {
    scope.addContentTypeParser(
      FORM,
      { parseAs: 'string' },
      (_request, text, done) =>
        done(null, Object.fromEntries(new URLSearchParams(text.toString()))),
    );
    const add = openRoutes(scope);

    add('POST /login', { body: LOGIN }, async (request, reply) => {
      const { token, next } = request.body;
      if (locks !== undefined) {
        // Tokens are often pasted with a space or a line break around them.
        const role = await locks.checkToken(request, token.trim());
        if (role === undefined) return refuseLogin(request, reply, next);
        const pair = await locks.sessions.open(role);
        reply.header(
          'set-cookie',
          cookieOf(request, pair, SESSION_SECONDS, cookiePath),
        );
      }
      return isForm(request)
        ? reply.redirect(safeReturnPath(next), 303)
        : reply.code(204).send();
    });

    add('POST /logout', {}, async (request, reply) => {
      if (locks !== undefined) {
        const pair = await locks.sessions.close(request.headers.cookie);
        reply.header('set-cookie', cookieOf(request, pair, 0, cookiePath));
      }
      return isForm(request)
        ? reply.redirect('/login', 303)
        : reply.code(204).send();
    });
  });
}

/** Returns the address of the login page, which sends the browser back to `next`. */
export function loginPage(next: string | undefined): string {
  const page = safeReturnPath(next);
  const query = page === '/' ? '' : `?next=${encodeURIComponent(page)}`;
  return `/login${query}`;
}

/**
 * Sends a browser back to the login form if it used the form.
 * @throws StatusError 401 if the client did not use the form
 */
function refuseLogin(
  request: FastifyRequest,
  reply: FastifyReply,
  next: string | undefined,
): FastifyReply {
  if (isForm(request)) return reply.redirect(`${loginPage(next)}#wrong`, 303);
  throw new StatusError('unauthenticated', 'that is not the token');
}

function isForm({ headers }: FastifyRequest): boolean {
  return headers['content-type']?.startsWith(FORM) === true;
}

/**
 * Returns the value of a Set-Cookie header. The cookie is Lax: browsers send it when they
 * follow a link from another site, but not when they submit a form from there.
 * @param pair `name=value`
 */
function cookieOf(
  { headers }: FastifyRequest,
  pair: string,
  seconds: number,
  path: string,
): string {
  // Trusting the proxy is harmless here: its header can only make the cookie stricter.
  const secure = headers['x-forwarded-proto'] === 'https' ? '; Secure' : '';
  return `${pair}; Path=${path}; Max-Age=${seconds}; HttpOnly; SameSite=Lax${secure}`;
}
