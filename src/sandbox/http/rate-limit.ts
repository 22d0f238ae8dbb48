/**
 * The service's rate limit on list calls: a bucket of tokens for each client, and a second one for calls
 * that were refused. Who empties that as well is banned, and learns for how long.
 */
import type { RateLimit } from '../options.ts';
import { ServiceError } from './errors.ts';

/** Beyond these, the clients that were silent the longest are forgotten. */
const CLIENTS_MAX = 10_000;

interface Bucket {
  tokens: number;
  refilledMs: number;
}

interface Client {
  calls: Bucket;
  refusals: Bucket;
  bannedUntilMs: number;
}

/** A call's verdict; the headers go with the answer, whichever it is. */
export interface Admission {
  headers: [string, string][];
  refused: ServiceError | undefined;
}

export class RateLimiter {
  readonly #limit: RateLimit | 'none';
  readonly #clients = new Map<string, Client>();
  readonly #now: () => number;

  /** @param now milliseconds that never go back */
  constructor(limit: RateLimit | 'none', now: () => number = () => performance.now()) {
    this.#limit = limit;
    this.#now = now;
  }

  admit(address: string): Admission {
    const limit = this.#limit;
    if (limit === 'none') return { headers: [], refused: undefined };
    const nowMs = this.#now();
    const client = this.#client(address, limit, nowMs);
    const headers = (remaining: number): [string, string][] => [
      ['Ratelimit-Limit', `${limit.perSecond}`],
      ['Ratelimit-Remaining', `${remaining}`],
      ['Ratelimit-Request-Remote-Addr', address],
      ['Ratelimit-Reset', '1'],
    ];
    if (client.bannedUntilMs > nowMs) return banned(headers(0), client.bannedUntilMs - nowMs);
    if (take(client.calls, limit, nowMs)) {
      return { headers: headers(Math.floor(client.calls.tokens)), refused: undefined };
    }
    if (take(client.refusals, limit, nowMs)) {
      return {
        headers: headers(0),
        refused: refusal('ResourceExhausted', 'api request rate limit exceeded'),
      };
    }
    client.bannedUntilMs = nowMs + limit.banMs;
    return banned(headers(0), limit.banMs);
  }

  #client(address: string, limit: RateLimit, nowMs: number): Client {
    const full = (): Bucket => ({ tokens: limit.burst, refilledMs: nowMs });
    const client = this.#clients.get(address) ?? { calls: full(), refusals: full(), bannedUntilMs: 0 };
    // Moved to the end: the map's first key is then the client that was silent the longest.
    this.#clients.delete(address);
    this.#clients.set(address, client);
    const [oldest] = this.#clients.keys();
    if (this.#clients.size > CLIENTS_MAX && oldest !== undefined) this.#clients.delete(oldest);
    return client;
  }
}

function take(bucket: Bucket, limit: RateLimit, nowMs: number): boolean {
  const refill = ((nowMs - bucket.refilledMs) / 1000) * limit.perSecond;
  bucket.tokens = Math.min(limit.burst, bucket.tokens + refill);
  bucket.refilledMs = nowMs;
  if (bucket.tokens < 1) return false;
  bucket.tokens -= 1;
  return true;
}

function banned(headers: [string, string][], leftMs: number): Admission {
  return {
    headers: [...headers, ['Ratelimit-Retry-After', `${Math.ceil(leftMs / 1000)}`]],
    refused: refusal('PermissionDenied', 'temporarily banned for continuing to request while rate limited'),
  };
}

/** No details, but a handler's headers: the limit sits behind the gateway. */
function refusal(name: 'ResourceExhausted' | 'PermissionDenied', message: string): ServiceError {
  return new ServiceError(name, undefined, message);
}
