/** Waiting that has an end: for an answer, or for what others hold. */
import { setTimeout as sleep } from 'node:timers/promises';

/**
 * The result of `work`, or after `limitMs` the error: a host that is gone says nothing for hours.
 * What is late is aborted, and left to itself.
 * @param late makes the error
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
  readonly stepMinMs?: number;
  readonly stepMaxMs?: number;
  readonly signal: AbortSignal;
}

const STEP_MIN_MS = 50;
const STEP_MAX_MS = 1_000;

/**
 * Asks again and again for what others hold, in growing steps.
 * @param late makes the error where `attempt` has given undefined for `waitMs`
 */
export async function waitFor<Value>(
  attempt: () => Promise<Value | undefined>,
  { waitMs, stepMinMs = STEP_MIN_MS, stepMaxMs = STEP_MAX_MS, signal }: WaitLimits,
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
