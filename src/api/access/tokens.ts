/**
 * The tokens that open the mirror. Wrong ones are counted by address: each is logged, and
 * beyond a few a minute its answer waits. A right token is never held back for the wrong
 * ones of a neighbour, who may share a proxy, unless these come in crowds.
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
  /** API_TOKEN. */
  readonly write: string;
  /** API_READ_TOKEN, if it is set. */
  readonly read: string | undefined;
}

const WRONG_PER_MINUTE_MAX = 20;
const MINUTE_MS = 60_000;
const SLOWED_MS = 1_000;
/** How many slowed answers may wait at the same time: caps the guesses a second. */
const WAITING_PER_ADDRESS_MAX = 16;
const WAITING_MAX = 128;

/** Returns the token of an Authorization header. */
export function bearerOf(
  authorization: string | undefined,
): string | undefined {
  return /^bearer +(\S+)$/i.exec(authorization ?? '')?.[1];
}

/** Returns the role that a token gives. It is compared with each, in constant time. */
export function roleOfToken(
  token: string,
  { write, read }: Tokens,
): Role | undefined {
  const isWrite = isSame(token, write);
  const isRead = isSame(token, read ?? write);
  if (isWrite) return 'write';
  return isRead ? 'read' : undefined;
}

/** Compares hashes in constant time: the texts may have any length. */
export function isSame(text: string, expected: string): boolean {
  return timingSafeEqual(
    hash('sha256', text, 'buffer'),
    hash('sha256', expected, 'buffer'),
  );
}

/**
 * Compares a token that a request showed.
 * @returns undefined if it is wrong
 * @throws StatusError 429, after a pause if many were wrong; at once if they come in
 *   crowds, and then nothing is compared
 */
export type TokenCheck = (
  request: FastifyRequest,
  token: string,
) => Promise<Role | undefined>;

/** Counts wrong tokens for the whole server. */
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
  /** Addresses whose slowed answers wait; one entry for each answer. */
  const waiting: string[] = [];

  return async (request, token) => {
    const { ip: address, method } = request;
    const own = waiting.filter((entry) => entry === address).length;
    if (own >= WAITING_PER_ADDRESS_MAX || waiting.length >= WAITING_MAX)
      throw tooManyWrong();
    const role = roleOfToken(token, tokens);
    if (role !== undefined) return role;

    const count = await limit(request);
    if (count.isAllowed || !count.isExceeded) {
      const route = request.routeOptions.url;
      log.warn({ address, method, route }, 'A wrong token was refused');
      return undefined;
    }
    log.debug({ address, method }, 'Wrong tokens are slowed');
    waiting.push(address);
    await sleep(SLOWED_MS);
    waiting.splice(waiting.indexOf(address), 1);
    throw tooManyWrong();
  };
}

function tooManyWrong(): StatusError {
  return new StatusError(
    'resourceExhausted',
    'too many wrong tokens; try again in a minute',
  );
}
