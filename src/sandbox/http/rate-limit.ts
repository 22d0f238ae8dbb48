/**
 * The service's rate limit on list calls. Each client has a token bucket, and a second
 * one for refused calls. A client that empties the second one too is banned, and the
 * response says how long.
 */
import type { RateLimit } from '../options.ts';
import { ServiceError, type Headers } from './errors.ts';

/**
 * Maximum number of clients that are remembered. Beyond that, the one that has been
 * silent longest is forgotten.
 */
const CLIENTS_MAX = 10_000;

/** Whether a call may proceed. The headers are part of the response either way. */
export type Admission = Readonly<{ headers: Headers; refused?: ServiceError }>;

interface Bucket {
  tokens: number;
  refilledMs: number;
}

interface Client {
  readonly calls: Bucket;
  readonly refusals: Bucket;
  bannedUntilMs: number;
}

/**
 * Limits the calls of each client, which is identified by its address.
 * @param now a monotonic clock, in milliseconds
 */
export function openRateLimiter(
  limit: RateLimit | 'none',
  now: () => number = () => performance.now(),
): (address: string) => Admission {
  if (limit === 'none') return () => ({ headers: {} });
  const { perSecond, burst, banMs } = limit;
  const clients = new Map<string, Client>();

  function takeFrom(bucket: Bucket, nowMs: number) {
    const refill = ((nowMs - bucket.refilledMs) / 1000) * perSecond;
    bucket.tokens = Math.min(burst, bucket.tokens + refill);
    bucket.refilledMs = nowMs;
    if (bucket.tokens < 1) return false;
    bucket.tokens -= 1;
    return true;
  }

  return (address) => {
    // Use whole milliseconds, because the difference between two fractional times can
    // slightly exceed the ban.
    const nowMs = Math.floor(now());
    const full = () => ({ tokens: burst, refilledMs: nowMs });
    const client = clients.get(address) ?? {
      calls: full(),
      refusals: full(),
      bannedUntilMs: 0,
    };
    // Move the client to the end of the map, so that the first key is the client that has
    // been silent longest.
    clients.delete(address);
    clients.set(address, client);
    const [oldest] = clients.keys();
    if (clients.size > CLIENTS_MAX && oldest !== undefined)
      clients.delete(oldest);
    const headers = (remaining: number) => ({
      'Ratelimit-Limit': `${perSecond}`,
      'Ratelimit-Remaining': `${remaining}`,
      'Ratelimit-Request-Remote-Addr': address,
      'Ratelimit-Reset': '1',
    });
    if (client.bannedUntilMs <= nowMs) {
      if (takeFrom(client.calls, nowMs))
        return { headers: headers(Math.floor(client.calls.tokens)) };
      // The error has a handler's headers and no details, because the limit is behind the
      // gateway.
      const exceeded = new ServiceError(
        'ResourceExhausted',
        undefined,
        'api request rate limit exceeded',
      );
      if (takeFrom(client.refusals, nowMs))
        return { headers: headers(0), refused: exceeded };
      client.bannedUntilMs = nowMs + banMs;
    }
    const leftSeconds = Math.ceil((client.bannedUntilMs - nowMs) / 1000);
    const message =
      'temporarily banned for continuing to request while rate limited';
    return {
      headers: { ...headers(0), 'Ratelimit-Retry-After': `${leftSeconds}` },
      refused: new ServiceError('PermissionDenied', undefined, message),
    };
  };
}
