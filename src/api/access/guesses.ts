/**
 * Wrong tokens, by address: each is logged, and beyond a few a minute its answer waits. A right token is never
 * held back for the wrong ones of a neighbour (who may share a proxy), unless these come in crowds.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import rateLimit from '@fastify/rate-limit';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { Log } from '../../core/log.ts';
import { StatusError } from '../http/status-error.ts';

const WRONG_PER_MINUTE_MAX = 20;
const MINUTE_MS = 60_000;
const SLOWED_MS = 1_000;
/** Wrong ones that wait at once: so many guesses a second are possible, and no more. */
const WAITING_PER_ADDRESS_MAX = 16;
const WAITING_MAX = 128;

export class Guesses {
  readonly #limit: ReturnType<FastifyInstance['createRateLimit']>;
  readonly #log: Log;
  /** The addresses of those whose answer waits. */
  readonly #waiting: string[] = [];

  private constructor(limit: ReturnType<FastifyInstance['createRateLimit']>, log: Log) {
    this.#limit = limit;
    this.#log = log;
  }

  static async register(server: FastifyInstance, log: Log): Promise<Guesses> {
    await server.register(rateLimit, { global: false });
    return new Guesses(server.createRateLimit({ max: WRONG_PER_MINUTE_MAX, timeWindow: MINUTE_MS }), log);
  }

  /** @throws StatusError 429 where wrong tokens from this address come in crowds: then nothing is compared */
  refuseCrowd({ ip }: FastifyRequest): void {
    const own = this.#waiting.filter((address) => address === ip).length;
    if (own >= WAITING_PER_ADDRESS_MAX || this.#waiting.length >= WAITING_MAX) throw tooMany();
  }

  /**
   * For a token that was wrong: returns at once where that is rare.
   * @throws StatusError 429, after a pause, where it is not
   */
  async count(request: FastifyRequest): Promise<void> {
    const { ip, method } = request;
    const found = await this.#limit(request);
    if (found.isAllowed || !found.isExceeded) {
      this.#log.warn({ address: ip, method, route: request.routeOptions.url }, 'A wrong token was refused');
      return;
    }
    this.#log.debug({ address: ip, method }, 'Wrong tokens are slowed');
    this.#waiting.push(ip);
    await sleep(SLOWED_MS);
    this.#waiting.splice(this.#waiting.indexOf(ip), 1);
    throw tooMany();
  }
}

function tooMany(): StatusError {
  return StatusError.ofGateway('resourceExhausted', 'too many wrong tokens; try again in a minute');
}
