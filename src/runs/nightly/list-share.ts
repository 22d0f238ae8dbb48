/**
 * What the reading of one list may take of a nightly run's window: a list that drips, page
 * after page, costs its share, and the exports go on with the parties that are known. The
 * next sync goes on where this one was.
 */
import { errorLine, RetryableError } from '../../errors/errors.ts';
import type { VerdictWithEvidence } from '../../errors/verdict.ts';
import type { JobDeps, StageCall } from '../job.ts';
import { knowsParties } from '../store/nightly/nightly-plan.ts';
import type { Run } from '../store/run-store.ts';
import { describeError } from '../work-run.ts';
import { readNightWindow } from './night-window.ts';

const LIST_SHARE = 1 / 4;
/** The share of a mirror that knows no party: there is nothing else to do. */
const FIRST_SHARE = 1 / 2;
/** Windows of minutes, as in trials, leave a short list this long. */
const SHARE_MIN_MS = 30_000;
/** Node's timers take no more. */
const TIMER_MAX_MS = 2 ** 31 - 1;

/** Reads what a list of a nightly run may take. */
export async function openListShare(
  night: Run,
  list: 'parties' | 'checkpoints',
  deps: JobDeps,
): Promise<ListShare> {
  const { startedMs, untilMs } = await readNightWindow(night, deps);
  const windowMs = untilMs - startedMs;
  const isFirst = list === 'parties' && !(await knowsParties(deps.db));
  const shareMs = windowMs * (isFirst ? FIRST_SHARE : LIST_SHARE);
  const leastMs = Math.min(SHARE_MIN_MS, windowMs / 2);
  return new ListShare(list, Math.max(shareMs, leastMs), deps);
}

export class ListShare {
  readonly #list: string;
  readonly #log: JobDeps['log'];
  /** Only the reading counts: the time for which the source is away does not. */
  #leftMs: number;

  constructor(list: string, shareMs: number, { log }: Pick<JobDeps, 'log'>) {
    this.#list = list;
    this.#leftMs = shareMs;
    this.#log = log;
  }

  /**
   * Reads the list until the share is used up.
   * @returns `incomplete` with the reason if that happens
   * @throws as `read`
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
      `Cannot read the list of ${this.#list} to its end in this nightly run: it has ` +
        'used its share of the window, and the exports wait; the next sync goes on ' +
        'where it was',
      { code: 'SHARE_USED', meta: { list: this.#list } },
    );
  }
}
