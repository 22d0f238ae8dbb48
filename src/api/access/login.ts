/**
 * `/login` and `/logout`: a token for a session's cookie, from the page's form or as
 * JSON.
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

/** What opens a mirror that has a token. */
export interface Locks {
  readonly sessions: Sessions;
  readonly checkToken: TokenCheck;
}

export interface LoginOptions {
  /** undefined if no token is asked for: then everybody is let in. */
  readonly locks: Locks | undefined;
  /** The cookie is for this path and everything below it. */
  readonly cookiePath: string;
}

/** Adds both routes, in a scope of their own: only they accept a form. */
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
        const role = await locks.checkToken(request, token);
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

/** Returns the address of the login page, from which the browser comes back to `next`. */
export function loginPage(next: string | undefined): string {
  const page = safeReturnPath(next);
  const query = page === '/' ? '' : `?next=${encodeURIComponent(page)}`;
  return `/login${query}`;
}

/** @throws StatusError 401, to a client that did not send the page's form */
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
 * Returns the text of a Set-Cookie header. The cookie is Lax: a link from another site
 * finds the session, and a form there does not send it.
 * @param pair `name=value`
 */
function cookieOf(
  { headers }: FastifyRequest,
  pair: string,
  seconds: number,
  path: string,
): string {
  // To believe a proxy costs nothing here: its word can only make the cookie stricter.
  const secure = headers['x-forwarded-proto'] === 'https' ? '; Secure' : '';
  return `${pair}; Path=${path}; Max-Age=${seconds}; HttpOnly; SameSite=Lax${secure}`;
}
