/** Resume state in Redis, with one key per entry, which Redis itself expires. */
import { ReplyError } from 'ioredis';
import { reconnectOnError } from '../errors/redis-replies.ts';
import { openRedis } from '../network/redis-client.ts';
import type { RedisLogin } from '../network/redis-login.ts';
import type { RotatingSecret } from '../network/rotating-secret.ts';
import {
  AHEAD_MAX_MICROS,
  BURST_MICROS,
  keepIn,
  type ResumeState,
} from './resume-state.ts';

const CONNECT_TIMEOUT_MS = 2_000;
const COMMAND_TIMEOUT_MS = 3_000;
/** How long a connection may go without any response before it is closed. */
const SOCKET_TIMEOUT_MS = 5_000;
const RECONNECT_MIN_MS = 50;
const RECONNECT_MAX_MS = 1_000;

/**
 * Error codes of a Redis that will recover: it is starting, failing over, busy or full,
 * or its password has changed. In the last case, the next connection logs in with the new
 * password from the secret's file.
 */
const RETRYABLE =
  /^(?:LOADING|READONLY|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|BUSY|OOM|NOREPLICAS|MISCONF|WRONGPASS|NOAUTH)$/;

/**
 * Reserves a request by Redis's own clock. Lua's doubles represent microseconds exactly
 * until the year 2255.
 */
const RESERVE = `
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval = tonumber(ARGV[1])
local due = tonumber(redis.call('GET', KEYS[1]) or 0) or 0
local mine = math.min(math.max(due, now), now + ${AHEAD_MAX_MICROS})
local left = mine + interval
redis.call('SET', KEYS[1], string.format('%.0f', left), 'PX', math.ceil((left - now) / 1000) + 1000)
return math.ceil(math.max(0, mine - ${BURST_MICROS} - now))
`;

/**
 * Opens resume state in Redis. It connects in the background; until then, and during an
 * outage, calls throw UnreachableError.
 * @param prefix separates mirrors that share a Redis
 * @param onConnectionError called when the connection breaks or cannot be made; it is
 *   retried automatically
 * @param login overrides the user and password of the URL
 */
export function openRedisState(
  url: string,
  prefix: string,
  onConnectionError: (error: Error) => void,
  login?: RotatingSecret<RedisLogin>,
): ResumeState {
  const redis = openRedis(url, login, {
    connectTimeout: CONNECT_TIMEOUT_MS,
    commandTimeout: COMMAND_TIMEOUT_MS,
    socketTimeout: SOCKET_TIMEOUT_MS,
    // Each failed attempt to connect clears the queue of waiting commands, so it cannot
    // grow during an outage.
    maxRetriesPerRequest: 0,
    // Reconnect, but leave it to the caller to retry the failed command.
    reconnectOnError: (error) => reconnectOnError(error) !== false,
    retryStrategy: (times) =>
      Math.min(RECONNECT_MIN_MS * 2 ** Math.min(times, 10), RECONNECT_MAX_MS),
  });
  redis.on('error', onConnectionError);
  return keepIn({
    name: 'Redis',
    advice: 'see its configuration and REDIS_URL',
    read: (key) => redis.get(`${prefix}:state:${key}`),
    write: (key, text, ttlMs) =>
      redis.set(
        `${prefix}:state:${key}`,
        text,
        'PX',
        Math.max(1, Math.ceil(ttlMs)),
      ),
    take: async (budget, intervalMicros) =>
      Number(
        await redis.eval(
          RESERVE,
          1,
          `${prefix}:rate:${budget}`,
          intervalMicros,
        ),
      ),
    // An error reported by Redis itself is a ReplyError, whose first word is the code.
    refusal: (error) => {
      if (!(error instanceof Error && error instanceof ReplyError))
        return undefined;
      const reply = /^[A-Z]+/.exec(error.message)?.[0] ?? 'ERR';
      return {
        code: `STATE_REDIS_${reply}`,
        isRetryable: RETRYABLE.test(reply),
      };
    },
    close: async () => redis.disconnect(),
  });
}
