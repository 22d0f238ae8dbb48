/** Steps of a store's trial: each named, each with an end. */
import { UnreachableError } from '../core/errors.ts';
import { within } from '../core/waiting.ts';

export type Step = <Result>(what: string, work: (signal: AbortSignal) => Promise<Result>) => Promise<Result>;

export const STEP_MAX_MS = 60_000;

/** @returns runs a step; one that outlasts `stepMaxMs` ends in UnreachableError, and is left to itself */
export function trialSteps(url: string, signal: AbortSignal, stepMaxMs: number): Step {
  return async (what, work) => {
    signal.throwIfAborted();
    return within(
      stepMaxMs,
      (limit) => work(AbortSignal.any([signal, limit])),
      () =>
        new UnreachableError(
          `Cannot ${what} in ${url}: no answer within ${stepMaxMs / 1000} s; check that the store is up, and what lies in between`,
          { code: 'OBJECT_STORE_UNREACHABLE', meta: { step: what, attempts: 1 } },
        ),
    );
  };
}
