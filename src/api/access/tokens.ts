/**
 * Checks access tokens. Wrong tokens are logged and counted per address, and after a few
 * per minute the responses are delayed. If several clients share a proxy, one client's
 * wrong tokens do not delay another's correct token, unless there are very many of them.
 */
import { hash, timingSafeEqual } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import rateLimit from '@fastify/rate-limit';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { Log } from '../../logging/log.ts';
import { StatusError } from '../kit/status-error.ts';

/** `write` may read everything and start runs; `read` may only read. */
export type Role = 'read' | 'write';

export interface Tokens {
  /** The value of API_TOKEN. */
  readonly write: string;
  /** The value of API_READ_TOKEN, if it is set. */
  readonly read: string | undefined;
}

/**
 * Returns the tokens that are currently valid. It returns the same object until one of
 * them changes, for example because a token's file was replaced.
 */
export type ReadTokens = () => Tokens;

const WRONG_PER_MINUTE_MAX = 20;
const MINUTE_MS = 60_000;
const SLOWED_MS = 1_000;
/**
 * Maximum number of delayed responses waiting at the same time, which caps guesses per
 * second.
 */
const WAITING_PER_ADDRESS_MAX = 16;
const WAITING_MAX = 128;

/** Returns the bearer token in an Authorization header; undefined if there is none. */
export function bearerOf(
  authorization: string | undefined,
): string | undefined {
  return /^bearer +(\S+)$/i.exec(authorization ?? '')?.[1];
}

/**
 * Returns the role that a token grants. The token is always compared with both configured
 * tokens, each in constant time.
 */
export function roleOfToken(
  token: string,
  { write, read }: Tokens,
): Role | undefined {
  const isWrite = isSame(token, write);
  const isRead = isSame(token, read ?? write);
  if (isWrite) return 'write';
  return isRead ? 'read' : undefined;
}

/**
 * Compares two strings in constant time. It compares their hashes, so the strings may
 * have different lengths.
 */
export function isSame(text: string, expected: string): boolean {
  return timingSafeEqual(
    hash('sha256', text, 'buffer'),
    hash('sha256', expected, 'buffer'),
  );
}

/**
 * Checks a token that a request carries.
 * @returns undefined if the token is wrong
 * @throws StatusError 429 after a delay if the address has sent many wrong tokens, or
 *   immediately, without checking the token, if too many delayed responses are waiting
 */
export type TokenCheck = (
  request: FastifyRequest,
  token: string,
) => Promise<Role | undefined>;

/** Returns a check that counts wrong tokens for the whole server. */
export async function openTokenCheck(
  server: FastifyInstance,
  readTokens: ReadTokens,
  log: Log,
): Promise<TokenCheck> {
  await server.register(rateLimit, { global: false });
  const limit = server.createRateLimit({
    max: WRONG_PER_MINUTE_MAX,
    timeWindow: MINUTE_MS,
  });
  /** The addresses of the delayed responses that are waiting; one entry per response. */
  const waiting: string[] = [];

  return async (request, token) => {
    const { ip: address, method } = request;
    const own = waiting.filter((entry) => entry === address).length;
    if (own >= WAITING_PER_ADDRESS_MAX || waiting.length >= WAITING_MAX)
      throw tooManyWrong();
    const role = roleOfToken(token, readTokens());
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
