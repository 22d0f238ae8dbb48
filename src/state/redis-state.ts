/** Resume state in Redis, the reference: one key for each entry, expired by Redis itself. */
import { Redis, ReplyError } from 'ioredis';
import { PermanentError, RetryableError, UnreachableError } from '../core/errors.ts';
import { rateScheduleOf, wholeMs } from './rate-schedule.ts';
import { type ResumeState, checkedKey, decodeValue, encodeValue } from './resume-state.ts';

const CONNECT_TIMEOUT_MS = 2_000;
const COMMAND_TIMEOUT_MS = 3_000;
/** A connection that answers no command for this long is closed. */
const SOCKET_TIMEOUT_MS = 5_000;
const RECONNECT_MIN_MS = 50;
const RECONNECT_MAX_MS = 1_000;

/** Answers of a Redis that will serve again: starting, failing over, busy, full. */
const RETRYABLE_REPLIES = new Set([
  'LOADING',
  'READONLY',
  'MASTERDOWN',
  'CLUSTERDOWN',
  'TRYAGAIN',
  'BUSY',
  'OOM',
  'NOREPLICAS',
  'MISCONF',
]);

/** `reserveNext` in rate-schedule.ts, on the store's clock. Lua's doubles hold microseconds exactly until the year 2255. */
const RESERVE = `
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval, burst, ahead = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local place = tonumber(redis.call('GET', KEYS[1]) or 0) or 0
local mine = math.min(math.max(place, now), now + ahead)
local left = mine + interval
redis.call('SET', KEYS[1], string.format('%.0f', left), 'PX', math.ceil((left - now) / 1000) + 1000)
return math.ceil(math.max(0, mine - burst - now))
`;

interface RedisStateOptions {
  readonly url: string;
  /** Two mirrors can share a Redis: each has a prefix of its own. */
  readonly prefix: string;
  /** The connection broke or could not be made; it is tried again by itself. */
  readonly onConnectionError: (error: Error) => void;
}

/** Connects in the background; until then, and in an outage, calls end in UnreachableError. */
export class RedisState implements ResumeState {
  readonly #redis: Redis;
  readonly #prefix: string;

  constructor({ url, prefix, onConnectionError }: RedisStateOptions) {
    this.#prefix = prefix;
    this.#redis = new Redis(url, {
      connectTimeout: CONNECT_TIMEOUT_MS,
      commandTimeout: COMMAND_TIMEOUT_MS,
      socketTimeout: SOCKET_TIMEOUT_MS,
      // Each failed attempt to connect empties the queue of waiting commands: it cannot grow in an outage.
      maxRetriesPerRequest: 0,
      retryStrategy: (times) => Math.min(RECONNECT_MIN_MS * 2 ** Math.min(times, 10), RECONNECT_MAX_MS),
    });
    this.#redis.on('error', onConnectionError);
  }

  async get(key: string): Promise<unknown> {
    const entry = this.#entry(key);
    return decodeValue(await redisCall(`read ${key}`, () => this.#redis.get(entry)));
  }

  async set(key: string, value: unknown, ttlMs: number): Promise<void> {
    const entry = this.#entry(key);
    const text = encodeValue(key, value);
    await redisCall(`remember ${key}`, () =>
      this.#redis.set(entry, text, 'PX', Math.max(1, Math.ceil(ttlMs))),
    );
  }

  async reserve(budget: string, ratePerSecond: number): Promise<{ waitMs: number }> {
    const { interval, burst, aheadMax } = rateScheduleOf(ratePerSecond);
    const key = checkedKey(`${this.#prefix}:rate`, budget);
    const waitMicros = await redisCall(`reserve a request of ${budget}`, () =>
      this.#redis.eval(RESERVE, 1, key, interval, burst, aheadMax),
    );
    return { waitMs: wholeMs(Number(waitMicros)) };
  }

  async close(): Promise<void> {
    this.#redis.disconnect();
  }

  #entry(key: string): string {
    return checkedKey(`${this.#prefix}:state`, key);
  }
}

async function redisCall<Result>(action: string, call: () => Promise<Result>): Promise<Result> {
  try {
    return await call();
  } catch (error) {
    throw redisError(action, error);
  }
}

/** Only an error that Redis itself answered has a code; any other means that it was not reached. */
function redisError(action: string, error: unknown): Error {
  const state = error instanceof Error ? error.message : String(error);
  if (!(error instanceof ReplyError)) {
    return new UnreachableError(`Cannot ${action}: Redis is not reachable (${state})`, {
      code: 'STATE_UNREACHABLE',
      cause: error,
    });
  }
  // The protocol's own error code is the first word of the answer.
  const reply = /^[A-Z]+/.exec(state)?.[0] ?? 'ERR';
  const details = { code: `STATE_REDIS_${reply}`, meta: { reply }, cause: error };
  return RETRYABLE_REPLIES.has(reply)
    ? new RetryableError(`Cannot ${action}: Redis answers ${state}`, details)
    : new PermanentError(
        `Cannot ${action}: Redis answers ${state}; see its configuration and REDIS_URL`,
        details,
      );
}
