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
/** While requests follow one upon another, the turns of so much time are reserved together. */
const TOGETHER_MS = 250;

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
  readonly #turns: Turns;

  constructor(options: RateLimiterOptions) {
    this.#options = options;
    this.#turns = new Turns(options);
    this.#storedBan = sharedLoad(() => options.bans.get(), BAN_CACHE_MS);
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
    await this.#wait(route, 'rate', await this.#turns.next(), signal);
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

/**
 * The turns of this process in the budget of all. Asked for one by one; while each is used in time, for twice as
 * many at once, so that a fast night does not ask the store as often as the source. One that is not used is lost.
 */
class Turns {
  readonly #options: Pick<RateLimiterOptions, 'ratePerSecond' | 'state' | 'clock'>;
  readonly #intervalMs: number;
  readonly #togetherMax: number;
  #left = 0;
  #nextMs = 0;
  #together = 0;
  #reserving: Promise<void> | undefined;

  constructor(options: Pick<RateLimiterOptions, 'ratePerSecond' | 'state' | 'clock'>) {
    this.#options = options;
    this.#intervalMs = 1_000 / options.ratePerSecond;
    this.#togetherMax = Math.max(1, Math.floor(TOGETHER_MS / this.#intervalMs));
  }

  /** @returns how long to wait until the next */
  async next(): Promise<number> {
    for (;;) {
      const nowMs = this.#options.clock.nowMs();
      if (this.#left > 0 && nowMs - this.#nextMs <= TOGETHER_MS) {
        const waitMs = Math.max(0, this.#nextMs - nowMs);
        this.#left -= 1;
        this.#nextMs += this.#intervalMs;
        return waitMs;
      }
      // Whoever comes while more are reserved gets one of them, if they suffice.
      await (this.#reserving ??= this.#reserve(nowMs).finally(() => (this.#reserving = undefined)));
    }
  }

  async #reserve(nowMs: number): Promise<void> {
    const { state, ratePerSecond } = this.#options;
    const wasUsed = this.#left === 0 && nowMs - this.#nextMs <= TOGETHER_MS;
    this.#together = wasUsed ? Math.min(Math.max(1, this.#together * 2), this.#togetherMax) : 1;
    // One turn of a slower budget is as many of this one.
    const { waitMs } = await state.reserve(BUDGET, ratePerSecond / this.#together);
    this.#nextMs = this.#options.clock.nowMs() + waitMs;
    this.#left = this.#together;
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
