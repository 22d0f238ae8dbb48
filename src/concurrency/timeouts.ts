/** Timeouts for calls, and polling with a timeout. */
import { setTimeout as sleep } from 'node:timers/promises';

/** The longest delay that Node's timers support. A longer one would fire immediately. */
export const TIMER_MAX_MS = 2 ** 31 - 1;

/**
 * Returns the result of `work`, or throws if it takes longer than `limitMs`, because a
 * call to an unreachable host may hang for hours. Late work is aborted but not awaited.
 * @param late creates the error to throw
 */
export async function withTimeout<Result>(
  limitMs: number,
  work: (signal: AbortSignal) => Promise<Result>,
  late: () => Error,
): Promise<Result> {
  const limit = new AbortController();
  const over = Promise.withResolvers<never>();
  const timer = setTimeout(() => {
    const error = late();
    over.reject(error);
    limit.abort(error);
  }, limitMs).unref();
  try {
    return await Promise.race([work(limit.signal), over.promise]);
  } finally {
    clearTimeout(timer);
  }
}

export interface WaitLimits {
  readonly waitMs: number;
  /** The first delay; each further delay is twice as long, up to `stepMaxMs`. */
  readonly stepMinMs?: number;
  readonly stepMaxMs?: number;
  readonly signal: AbortSignal;
}

const STEP_MIN_MS = 50;
const STEP_MAX_MS = 1_000;

/**
 * Calls `attempt` with exponential backoff until it returns a value.
 * @param late creates the error to throw when `attempt` has returned undefined for
 *   `waitMs`
 */
export async function waitFor<Value>(
  attempt: () => Promise<Value | undefined>,
  {
    waitMs,
    stepMinMs = STEP_MIN_MS,
    stepMaxMs = STEP_MAX_MS,
    signal,
  }: WaitLimits,
  late: () => Error,
): Promise<Value> {
  const startedMs = performance.now();
  for (let stepMs = stepMinMs; ; stepMs = Math.min(stepMs * 2, stepMaxMs)) {
    signal.throwIfAborted();
    const value = await attempt();
    if (value !== undefined) return value;
    if (performance.now() - startedMs > waitMs) throw late();
    await sleep(stepMs * (0.5 + Math.random()), undefined, { signal });
  }
}
