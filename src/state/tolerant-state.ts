/** While the store is unreachable, work goes on without hints. */
import { isRetryable } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { rateScheduleOf, reserveNext, wholeMs } from './rate-schedule.ts';
import type { ResumeState } from './resume-state.ts';

/** In an outage the store is tried this often, so that not every call pays its timeout. */
const ASK_AGAIN_MS = 1_000;
/** Without the store workers cannot share the rate: each takes this part of it. */
const RATE_SHARE = 4;

interface ToleranceOptions {
  readonly log: Pick<Log, 'info' | 'warn'>;
  /** A clock that never goes back, in milliseconds. */
  readonly nowMs?: () => number;
}

/**
 * `inner`, but in an outage `get` knows nothing, `set` does nothing, and `reserve` paces
 * this process alone at a quarter of the rate. Each outage is logged once, and its end. What the
 * store refuses for good is still thrown.
 */
export function tolerateOutages(
  inner: ResumeState,
  { log, nowMs = () => performance.now() }: ToleranceOptions,
): ResumeState {
  const dueTimes = new Map<string, number>();
  let awaySinceMs: number | undefined;
  let askAgainAtMs = 0;
  const ask = async <Answer>(call: () => Promise<Answer>, instead: () => Answer): Promise<Answer> => {
    if (awaySinceMs !== undefined && nowMs() < askAgainAtMs) return instead();
    // In an outage one caller tries the store; the others do not wait for it.
    askAgainAtMs = nowMs() + ASK_AGAIN_MS;
    try {
      const answer = await call();
      if (awaySinceMs !== undefined) {
        log.info({ awayMs: Math.round(nowMs() - awaySinceMs) }, 'Resume state is back');
        awaySinceMs = undefined;
        dueTimes.clear();
      }
      return answer;
    } catch (error) {
      if (!isRetryable(error)) throw error;
      askAgainAtMs = nowMs() + ASK_AGAIN_MS;
      if (awaySinceMs === undefined)
        log.warn({ err: error }, 'Resume state is away, work goes on without it');
      awaySinceMs ??= nowMs();
      return instead();
    }
  };
  const reserveAlone = (budget: string, ratePerSecond: number): { waitMs: number } => {
    const schedule = { ...rateScheduleOf(ratePerSecond / RATE_SHARE), burst: 0 };
    const { dueAt, waitMicros } = reserveNext(dueTimes.get(budget), nowMs() * 1000, schedule);
    dueTimes.set(budget, dueAt);
    return { waitMs: wholeMs(waitMicros) };
  };
  const nothing = (): undefined => undefined;
  return {
    get: (key) => ask(() => inner.get(key), nothing),
    set: (...entry) => ask(() => inner.set(...entry), nothing),
    reserve: (...wanted) =>
      ask(
        () => inner.reserve(...wanted),
        () => reserveAlone(...wanted),
      ),
    close: () => inner.close(),
  };
}
