/**
 * Limits how much of a nightly run's window may be spent on reading one list. A list
 * whose pages arrive very slowly uses up its share; the exports then proceed with the
 * known parties, and the next sync resumes where this one stopped.
 */
import { TIMER_MAX_MS } from '../../concurrency/timeouts.ts';
import { errorLine, RetryableError } from '../../errors/errors.ts';
import type { VerdictWithEvidence } from '../../errors/verdict.ts';
import type { JobDeps, StageCall } from '../job.ts';
import { knowsParties } from '../store/nightly/nightly-plan.ts';
import type { Run } from '../store/run-store.ts';
import { describeError } from '../work-run.ts';
import { fixNightWindow } from './night-window.ts';

const LIST_SHARE = 1 / 4;
/** The share while the mirror knows no party, when there is nothing else to do. */
const FIRST_SHARE = 1 / 2;
/** Minimum time for a list, even if the window lasts only minutes, as in trials. */
const SHARE_MIN_MS = 30_000;

/** Computes how long a nightly run may read a list. */
export async function openListShare(
  night: Run,
  list: 'parties' | 'checkpoints',
  deps: JobDeps,
): Promise<ListShare> {
  const { startedMs, untilMs } = await fixNightWindow(night, deps);
  const windowMs = untilMs - startedMs;
  const isFirst = list === 'parties' && !(await knowsParties(deps.db));
  const shareMs = windowMs * (isFirst ? FIRST_SHARE : LIST_SHARE);
  const leastMs = Math.min(SHARE_MIN_MS, windowMs / 2);
  return new ListShare(list, Math.max(shareMs, leastMs), deps);
}

export class ListShare {
  readonly #list: string;
  readonly #log: JobDeps['log'];
  /**
   * What remains of the share. Only reading counts, not time during which the source is
   * unavailable.
   */
  #leftMs: number;

  constructor(list: string, shareMs: number, { log }: Pick<JobDeps, 'log'>) {
    this.#list = list;
    this.#leftMs = shareMs;
    this.#log = log;
  }

  /**
   * Reads the list until the share is used up.
   * @returns `incomplete` with the reason if that happens
   * @throws whatever `read` throws
   */
  async spend(
    call: StageCall,
    read: (call: StageCall) => Promise<VerdictWithEvidence>,
  ): Promise<VerdictWithEvidence> {
    const used = new AbortController();
    const signal = AbortSignal.any([call.signal, used.signal]);
    const beganMs = performance.now();
    const timer = setTimeout(
      () => used.abort(this.#usedUp()),
      Math.min(this.#leftMs, TIMER_MAX_MS),
    );
    try {
      return await read({ ...call, signal });
    } catch (error) {
      if (!used.signal.aborted || call.signal.aborted) throw error;
      const reason: unknown = used.signal.reason;
      this.#log.warn(
        { list: this.#list, reason: errorLine(reason) },
        'A list has used its share of the nightly window',
      );
      return {
        verdict: 'incomplete',
        evidence: { error: describeError(reason) },
      };
    } finally {
      clearTimeout(timer);
      this.#leftMs -= performance.now() - beganMs;
    }
  }

  #usedUp(): RetryableError {
    return new RetryableError(
      `Cannot read the list of ${this.#list} to its end in this nightly ` +
        'run: it has used its share of the window, and the exports are ' +
        'waiting; the next sync continues where it was',
      { code: 'SHARE_USED', meta: { list: this.#list } },
    );
  }
}
