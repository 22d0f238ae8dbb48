/** The gate before every request: the rate limit of all workers, a ban, and the budget that the source reports. */
import { setTimeout as delay } from 'node:timers/promises';
import { RetryableError } from '../core/errors.ts';
import { sharedLoad } from '../core/shared-load.ts';
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

export interface RateLimiterOptions {
  readonly ratePerSecond: number;
  readonly state: RateState;
  readonly bans: BanStore;
  readonly clock: Clock;
  readonly observer: SourceObserver;
}

export class RateLimiter {
  readonly #options: RateLimiterOptions;
  readonly #storedBan: () => Promise<Micros | undefined>;
  #bannedUntil: Micros = 0n;
  #quietUntilMs = 0;

  constructor(options: RateLimiterOptions) {
    this.#options = options;
    this.#storedBan = sharedLoad(() => options.bans.get(), BAN_CACHE_MS);
  }

  /**
   * Waits until one request may be sent.
   * @throws RetryableError `SOURCE_BANNED` or `SOURCE_RATE_LIMITED` with `retryAfterMs`, where that
   *   would take longer than five minutes
   */
  async pass(route: Route, signal: AbortSignal): Promise<void> {
    const { clock, state, ratePerSecond } = this.#options;
    signal.throwIfAborted();
    await this.#wait(route, 'ban', await this.#banMs(), signal);
    await this.#wait(route, 'rate', this.#quietUntilMs - clock.nowMs(), signal);
    await this.#wait(route, 'rate', (await state.reserve(BUDGET, ratePerSecond)).waitMs, signal);
  }

  /** The source says that its own budget is spent for so long. */
  quiet(forMs: number): void {
    this.#quietUntilMs = Math.max(this.#quietUntilMs, this.#options.clock.nowMs() + forMs);
  }

  /** All workers wait for its end: a request during a ban lengthens it. */
  async ban(forMs: number): Promise<void> {
    this.#bannedUntil = nowMicros() + BigInt(Math.ceil(forMs)) * 1000n;
    await this.#options.bans.set(this.#bannedUntil);
  }

  async #banMs(): Promise<number> {
    const stored = (await this.#storedBan()) ?? 0n;
    const until = stored > this.#bannedUntil ? stored : this.#bannedUntil;
    return Number(until - nowMicros()) / 1000;
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
