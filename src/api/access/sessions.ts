/** `/login` and `/logout`: from a token to a cookie, and back. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { hideRoute } from '../http/schemas.ts';
import { StatusError } from '../http/status-error.ts';
import type { Guesses } from './guesses.ts';
import { type Keys, SESSION_SECONDS } from './keys.ts';

const LOGIN = z.strictObject({ token: z.string().max(1_024) });
const FORM = 'application/x-www-form-urlencoded';

export function addSessions(server: FastifyInstance, keys: Keys | undefined, guesses: Guesses): void {
  server.addContentTypeParser(FORM, { parseAs: 'string' }, (_request, text, done) =>
    done(null, Object.fromEntries(new URLSearchParams(text.toString()))),
  );
  server.post<{ Body: z.infer<typeof LOGIN> }>(
    '/login',
    hideRoute({ body: LOGIN }),
    async (request, reply) => {
      if (keys === undefined) return end(request, reply, '/');
      guesses.refuseCrowd(request);
      const role = keys.roleOf(request.body.token);
      if (role === undefined) {
        await guesses.count(request);
        if (isForm(request)) return reply.redirect('/login#wrong', 303);
        throw StatusError.ofGateway('unauthenticated', 'that is not the token');
      }
      const seconds = `Max-Age=${SESSION_SECONDS}`;
      reply.header('set-cookie', cookie(request, await keys.open(role), seconds));
      return end(request, reply, '/');
    },
  );
  server.post('/logout', hideRoute(), async (request, reply) => {
    if (keys !== undefined) {
      const name = await keys.close(request.headers.cookie);
      reply.header('set-cookie', cookie(request, `${name}=`, 'Max-Age=0'));
    }
    return end(request, reply, '/login');
  });
}

function end(request: FastifyRequest, reply: FastifyReply, next: string): FastifyReply {
  return isForm(request) ? reply.redirect(next, 303) : reply.code(204).send();
}

function isForm(request: FastifyRequest): boolean {
  return request.headers['content-type']?.startsWith(FORM) === true;
}

function cookie(request: FastifyRequest, pair: string, life: string): string {
  // Believing a proxy's word costs nothing here: it can only make the cookie stricter.
  const secure = request.headers['x-forwarded-proto'] === 'https' ? '; Secure' : '';
  return `${pair}; Path=/; ${life}; HttpOnly; SameSite=Strict${secure}`;
}
