/**
 * The gate in front of every request: the rate limit shared by all workers, bans, and
 * the source's own budget.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { sharedLoad } from '../concurrency/shared-load.ts';
import { RetryableError } from '../errors/errors.ts';
import { nowMicros, type Micros } from '../time/time.ts';
import type {
  BanStore,
  Clock,
  RateState,
  Route,
  SourceObserver,
  WaitReason,
} from './ports.ts';

/**
 * Maximum time to wait within a job. If a longer wait is needed, the job returns to the
 * queue with its resume point.
 */
export const WAIT_MAX_MS = 5 * 60_000;
const BAN_CACHE_MS = 1_000;
const BUDGET = 'source';
/**
 * How far ahead one reservation may take slots and how late a slot may still be used,
 * in milliseconds.
 */
const BATCH_MS = 250;

export const SYSTEM_CLOCK: Clock = {
  nowMs: () => performance.now(),
  async sleep(delayMs, signal) {
    await delay(delayMs, undefined, { signal }).catch(() =>
      signal.throwIfAborted(),
    );
  },
};

export interface RateDeps {
  readonly rate: RateState;
  readonly bans: BanStore;
  readonly clock: Clock;
  readonly observer: SourceObserver;
}

export class RateLimiter {
  readonly #deps: RateDeps;
  readonly #slots: RequestSlots;
  /** Reads the ban that any worker may have stored, at most once a second. */
  readonly #readStoredBan: () => Promise<Micros | undefined>;
  /** The end of the last ban that this process itself received. */
  #bannedUntil: Micros = 0n;
  /**
   * Until when this process pauses because the source reported its own budget as spent.
   */
  #pausedUntilMs = 0;

  /** @param ratePerSecond SOURCE_RATE: requests per second, across all workers */
  constructor(ratePerSecond: number, deps: RateDeps) {
    this.#deps = deps;
    this.#slots = new RequestSlots(ratePerSecond, deps);
    this.#readStoredBan = sharedLoad(() => deps.bans.get(), BAN_CACHE_MS);
  }

  /**
   * Waits until a request may be sent.
   * @throws RetryableError `SOURCE_BANNED` or `SOURCE_RATE_LIMITED` with
   *   `retryAfterMs`, if the wait would exceed five minutes
   */
  async pass(route: Route, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    await this.#wait(route, 'ban', await this.#banMs(), signal);
    const pausedMs = this.#pausedUntilMs - this.#deps.clock.nowMs();
    await this.#wait(route, 'rate', pausedMs, signal);
    await this.#wait(route, 'rate', await this.#slots.take(), signal);
  }

  /** Makes this process wait while the source's own budget is spent. */
  pauseFor(forMs: number): void {
    const untilMs = this.#deps.clock.nowMs() + forMs;
    this.#pausedUntilMs = Math.max(this.#pausedUntilMs, untilMs);
  }

  /** Makes all workers wait, because a request during a ban extends it. */
  async ban(forMs: number): Promise<void> {
    this.#bannedUntil = nowMicros() + BigInt(Math.ceil(forMs)) * 1000n;
    await this.#deps.bans.set(this.#bannedUntil);
  }

  async #banMs(): Promise<number> {
    const stored = (await this.#readStoredBan()) ?? 0n;
    const until = stored > this.#bannedUntil ? stored : this.#bannedUntil;
    return Number(until - nowMicros()) / 1000;
  }

  async #wait(
    route: Route,
    reason: WaitReason,
    waitMs: number,
    signal: AbortSignal,
  ): Promise<void> {
    if (waitMs <= 0) return;
    if (waitMs > WAIT_MAX_MS) throw waitTooLong(reason, waitMs);
    const { clock, observer } = this.#deps;
    observer.onWait({ route, reason, waitMs });
    await clock.sleep(waitMs, signal);
  }
}

/**
 * This process's slots in the budget that all workers share. A slot is an instant from
 * which one request may be sent. Slots are one interval (1 s divided by the rate)
 * apart.
 *
 * Each reservation is a round trip to the shared store. As long as reserved slots are
 * used in time, each reservation takes twice as many as the last, up to 250 ms worth of
 * slots, so that fast work does not call the store as often as the source. After a
 * pause it starts over with one slot. A slot that is not used within 250 ms is lost, so
 * the budget may be partly unused but is never exceeded.
 */
class RequestSlots {
  readonly #deps: RateDeps;
  readonly #ratePerSecond: number;
  readonly #intervalMs: number;
  readonly #batchMax: number;
  #batchSize = 0;
  /** Number of reserved slots that no request has taken yet. */
  #left = 0;
  /** The instant of the next of these slots. */
  #nextMs = 0;
  #reserving: Promise<void> | undefined;

  constructor(ratePerSecond: number, deps: RateDeps) {
    this.#deps = deps;
    this.#ratePerSecond = ratePerSecond;
    this.#intervalMs = 1_000 / ratePerSecond;
    this.#batchMax = Math.max(1, Math.floor(BATCH_MS / this.#intervalMs));
  }

  /**
   * Takes the next slot.
   * @returns how long to wait for it
   */
  async take(): Promise<number> {
    for (;;) {
      const nowMs = this.#deps.clock.nowMs();
      if (this.#left > 0 && nowMs - this.#nextMs <= BATCH_MS) {
        const waitMs = Math.max(0, this.#nextMs - nowMs);
        this.#left -= 1;
        this.#nextMs += this.#intervalMs;
        return waitMs;
      }
      // Concurrent callers share one reservation. Callers for which it has no slot left
      // make the next one.
      this.#reserving ??= this.#reserve(nowMs).finally(() => {
        this.#reserving = undefined;
      });
      await this.#reserving;
    }
  }

  async #reserve(nowMs: number): Promise<void> {
    const isUsedInTime = this.#left === 0 && nowMs - this.#nextMs <= BATCH_MS;
    const doubled = Math.min(Math.max(1, this.#batchSize * 2), this.#batchMax);
    this.#batchSize = isUsedInTime ? doubled : 1;
    // The store spaces reservations by their rate, so a batch of n slots is reserved as
    // one slot at 1/n of the rate.
    const rate = this.#ratePerSecond / this.#batchSize;
    const { waitMs } = await this.#deps.rate.reserve(BUDGET, rate);
    this.#nextMs = this.#deps.clock.nowMs() + waitMs;
    this.#left = this.#batchSize;
  }
}

function waitTooLong(reason: WaitReason, waitMs: number): RetryableError {
  const isBan = reason === 'ban';
  const state = isBan
    ? 'the source has banned this client'
    : 'the request budget (SOURCE_RATE) is spent';
  const seconds = Math.ceil(waitMs / 1000);
  return new RetryableError(
    `Cannot ask the source: ${state} for another ${seconds} s; work then ` +
      'continues by itself',
    {
      code: isBan ? 'SOURCE_BANNED' : 'SOURCE_RATE_LIMITED',
      retryAfterMs: Math.ceil(waitMs),
      meta: { waitMs },
    },
  );
}
