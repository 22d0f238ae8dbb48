/**
 * The tokens that open the mirror. Wrong ones, by address: each is logged, and beyond a few a minute its answer waits.
 * A right token is never held back for the wrong ones of a neighbour (who may share a proxy), unless these come in crowds.
 */
import { hash, timingSafeEqual } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import rateLimit from '@fastify/rate-limit';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { Log } from '../../logging/log.ts';
import { StatusError } from '../kit/status-error.ts';

/** `write` reads and orders; `read` only reads. */
export type Role = 'read' | 'write';

export interface Tokens {
  readonly write: string;
  readonly read: string | undefined;
}

const WRONG_PER_MINUTE_MAX = 20;
const MINUTE_MS = 60_000;
const SLOWED_MS = 1_000;
/** Wrong ones that wait at once: so many guesses a second are possible, and no more. */
const WAITING_PER_ADDRESS_MAX = 16;
const WAITING_MAX = 128;

/** The token of an Authorization header. */
export function bearerOf(authorization: string | undefined): string | undefined {
  return /^bearer +(\S+)$/i.exec(authorization ?? '')?.[1];
}

/** The role that a token gives, compared in constant time with each, whichever fits. */
export function roleOfToken(token: string, { write, read }: Tokens): Role | undefined {
  const isWrite = isSame(token, write);
  const isRead = isSame(token, read ?? write);
  return isWrite ? 'write' : isRead ? 'read' : undefined;
}

/** Compares hashes in constant time: the texts may have any length. */
export function isSame(text: string, expected: string): boolean {
  return timingSafeEqual(
    hash('sha256', text, 'buffer'),
    hash('sha256', expected, 'buffer'),
  );
}

/** @throws StatusError 429, after a pause where many were wrong; in crowds at once, and then nothing is compared */
export type TokenCheck = (
  request: FastifyRequest,
  token: string,
) => Promise<Role | undefined>;

export async function openTokenCheck(
  server: FastifyInstance,
  tokens: Tokens,
  log: Log,
): Promise<TokenCheck> {
  await server.register(rateLimit, { global: false });
  const limit = server.createRateLimit({
    max: WRONG_PER_MINUTE_MAX,
    timeWindow: MINUTE_MS,
  });
  const tooMany = () =>
    new StatusError('resourceExhausted', 'too many wrong tokens; try again in a minute');
  /** The addresses of those whose answer waits. */
  const waiting: string[] = [];
  return async (request, token) => {
    const { ip: address, method } = request;
    const own = waiting.filter((other) => other === address).length;
    if (own >= WAITING_PER_ADDRESS_MAX || waiting.length >= WAITING_MAX) throw tooMany();
    const role = roleOfToken(token, tokens);
    if (role !== undefined) return role;
    const found = await limit(request);
    if (found.isAllowed || !found.isExceeded) {
      log.warn(
        { address, method, route: request.routeOptions.url },
        'A wrong token was refused',
      );
      return undefined;
    }
    log.debug({ address, method }, 'Wrong tokens are slowed');
    waiting.push(address);
    await sleep(SLOWED_MS);
    waiting.splice(waiting.indexOf(address), 1);
    throw tooMany();
  };
}
