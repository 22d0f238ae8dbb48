/**
 * The gate before every request: the rate limit of all workers, a ban, and the budget
 * that the source reports.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { RetryableError } from '../errors/errors.ts';
import { sharedLoad } from '../concurrency/shared-load.ts';
import { nowMicros, type Micros } from '../time/time.ts';
import type {
  BanStore,
  Clock,
  RateState,
  Route,
  SourceObserver,
  WaitReason,
} from './ports.ts';

/** For a longer wait the job goes back to the queue with its resume point. */
export const WAIT_MAX_MS = 5 * 60_000;
const BAN_CACHE_MS = 1_000;
const BUDGET = 'source';
/**
 * While requests follow one upon another, the turns of so much time are reserved
 * together.
 */
const TOGETHER_MS = 250;

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

export interface RateLimiter {
  /**
   * Waits until one request may be sent.
   * @throws RetryableError `SOURCE_BANNED` or `SOURCE_RATE_LIMITED` with `retryAfterMs`,
   *   where that would take longer than five minutes
   */
  pass(route: Route, signal: AbortSignal): Promise<void>;
  /** The source says that its own budget is spent for so long. */
  quiet(forMs: number): void;
  /** All workers wait for its end: a request during a ban lengthens it. */
  ban(forMs: number): Promise<void>;
}

export function openRateLimiter(
  ratePerSecond: number,
  deps: RateDeps,
): RateLimiter {
  const { bans, clock, observer } = deps;
  const storedBan = sharedLoad(() => bans.get(), BAN_CACHE_MS);
  const nextTurn = openTurns(ratePerSecond, deps);
  let bannedUntil: Micros = 0n;
  let quietUntilMs = 0;

  async function wait(
    route: Route,
    reason: WaitReason,
    waitMs: number,
    signal: AbortSignal,
  ): Promise<void> {
    if (waitMs <= 0) return;
    if (waitMs > WAIT_MAX_MS) throw tooLong(reason, waitMs);
    observer.onWait({ route, reason, waitMs });
    await clock.sleep(waitMs, signal);
  }

  async function banMs(): Promise<number> {
    const stored = (await storedBan()) ?? 0n;
    return (
      Number((stored > bannedUntil ? stored : bannedUntil) - nowMicros()) / 1000
    );
  }

  return {
    async pass(route, signal) {
      signal.throwIfAborted();
      await wait(route, 'ban', await banMs(), signal);
      await wait(route, 'rate', quietUntilMs - clock.nowMs(), signal);
      await wait(route, 'rate', await nextTurn(), signal);
    },
    quiet(forMs) {
      quietUntilMs = Math.max(quietUntilMs, clock.nowMs() + forMs);
    },
    async ban(forMs) {
      bannedUntil = nowMicros() + BigInt(Math.ceil(forMs)) * 1000n;
      await bans.set(bannedUntil);
    },
  };
}

/**
 * The turns of this process in the budget of all. Asked for one by one; while each is
 * used in time, for twice as many at once, so that a fast night does not ask the store as
 * often as the source. One that is not used is lost.
 * @returns asks how long to wait until the next
 */
function openTurns(
  ratePerSecond: number,
  { rate, clock }: RateDeps,
): () => Promise<number> {
  const intervalMs = 1_000 / ratePerSecond;
  const togetherMax = Math.max(1, Math.floor(TOGETHER_MS / intervalMs));
  let left = 0;
  let nextMs = 0;
  let together = 0;
  let reserving: Promise<void> | undefined;

  async function reserve(nowMs: number): Promise<void> {
    const wasUsed = left === 0 && nowMs - nextMs <= TOGETHER_MS;
    together = wasUsed ? Math.min(Math.max(1, together * 2), togetherMax) : 1;
    // One turn of a slower budget is as many of this one.
    const { waitMs } = await rate.reserve(BUDGET, ratePerSecond / together);
    nextMs = clock.nowMs() + waitMs;
    left = together;
  }

  return async () => {
    for (;;) {
      const nowMs = clock.nowMs();
      if (left > 0 && nowMs - nextMs <= TOGETHER_MS) {
        const waitMs = Math.max(0, nextMs - nowMs);
        left -= 1;
        nextMs += intervalMs;
        return waitMs;
      }
      // Requests that arrive while more slots are reserved share them, if they suffice.
      reserving ??= reserve(nowMs).finally(() => {
        reserving = undefined;
      });
      await reserving;
    }
  };
}

function tooLong(reason: WaitReason, waitMs: number): RetryableError {
  const isBan = reason === 'ban';
  const state = isBan
    ? 'the source has banned this client'
    : 'the request budget (SOURCE_RATE) is spent';
  return new RetryableError(
    `Cannot ask the source: ${state} for another ${Math.ceil(waitMs / 1000)} s; ` +
      'the work goes on by itself then',
    {
      code: isBan ? 'SOURCE_BANNED' : 'SOURCE_RATE_LIMITED',
      retryAfterMs: Math.ceil(waitMs),
      meta: { waitMs },
    },
  );
}
