/** The gate before every request: the rate limit of all workers, a ban, and the budget that the source reports. */
import { setTimeout as delay } from 'node:timers/promises';
import { RetryableError } from '../core/errors.ts';
import { nowMicros, type Micros } from '../core/time.ts';
import type { BanStore, Clock, RateState, Route, SourceObserver, WaitReason } from './ports.ts';

/** For a longer wait the job goes back to the queue with its resume point. */
export const WAIT_MAX_MS = 5 * 60_000;
const BAN_CACHE_MS = 1_000;
const BUDGET = 'source';

export const SYSTEM_CLOCK: Clock = {
  nowMs: () => performance.now(),
  async sleep(delayMs, signal) {
    await delay(delayMs, undefined, { signal }).catch(() => signal.throwIfAborted());
  },
};

/** A budget for one process: evenly spaced, without a burst. */
export function localRate(clock: Clock): RateState {
  let nextMs = 0;
  return {
    reserve(_budget, ratePerSecond) {
      const nowMs = clock.nowMs();
      const atMs = Math.max(nowMs, nextMs);
      nextMs = atMs + 1000 / ratePerSecond;
      return Promise.resolve({ waitMs: atMs - nowMs });
    },
  };
}

/** Remembers a ban for this process only. */
export function localBans(): BanStore {
  let until: Micros | undefined;
  return {
    get: () => Promise.resolve(until),
    set(next) {
      if (until === undefined || next > until) until = next;
      return Promise.resolve();
    },
  };
}

export interface RateLimiterOptions {
  readonly ratePerSecond: number;
  readonly state: RateState;
  readonly bans: BanStore;
  readonly clock: Clock;
  readonly observer: SourceObserver;
}

export class RateLimiter {
  readonly #options: RateLimiterOptions;
  #quietUntilMs = 0;
  #ban: { until: Micros | undefined; readAtMs: number } | undefined;

  constructor(options: RateLimiterOptions) {
    this.#options = options;
  }

  /**
   * Waits until one request may be sent.
   * @throws RetryableError `SOURCE_BANNED` or `SOURCE_RATE_LIMITED` with `retryAfterMs`, where that
   *   would take longer than five minutes
   */
  async pass(route: Route, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    await this.#wait(route, 'ban', await this.#banMs(), signal);
    await this.#wait(route, 'rate', this.#quietUntilMs - this.#options.clock.nowMs(), signal);
    const { waitMs } = await this.#options.state.reserve(BUDGET, this.#options.ratePerSecond);
    await this.#wait(route, 'rate', waitMs, signal);
  }

  /** The source says that its own budget is spent for so long. */
  quiet(forMs: number): void {
    this.#quietUntilMs = Math.max(this.#quietUntilMs, this.#options.clock.nowMs() + forMs);
  }

  /** All workers wait for its end: a request during a ban lengthens it. */
  async ban(forMs: number): Promise<void> {
    const until = nowMicros() + BigInt(Math.ceil(forMs)) * 1000n;
    this.#ban = { until, readAtMs: this.#options.clock.nowMs() };
    await this.#options.bans.set(until);
  }

  async #banMs(): Promise<number> {
    const nowMs = this.#options.clock.nowMs();
    if (this.#ban === undefined || nowMs - this.#ban.readAtMs >= BAN_CACHE_MS) {
      this.#ban = { until: await this.#options.bans.get(), readAtMs: nowMs };
    }
    const { until } = this.#ban;
    return until === undefined ? 0 : Number(until - nowMicros()) / 1000;
  }

  async #wait(route: Route, reason: WaitReason, waitMs: number, signal: AbortSignal): Promise<void> {
    if (waitMs <= 0) return;
    if (waitMs > WAIT_MAX_MS) throw tooLong(reason, waitMs);
    this.#options.observer.onWait({ route, reason, waitMs });
    await this.#options.clock.sleep(waitMs, signal);
  }
}

function tooLong(reason: WaitReason, waitMs: number): RetryableError {
  const isBan = reason === 'ban';
  const state = isBan ? 'the source has banned this client' : 'the request budget (SOURCE_RATE) is spent';
  return new RetryableError(
    `Cannot ask the source: ${state} for another ${Math.ceil(waitMs / 1000)} s; the work goes on by itself then`,
    {
      code: isBan ? 'SOURCE_BANNED' : 'SOURCE_RATE_LIMITED',
      retryAfterMs: Math.ceil(waitMs),
      meta: { waitMs },
    },
  );
}
