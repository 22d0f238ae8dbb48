/**
 * Limits how much of a nightly run's window one ledger may use while others wait for
 * its slot, so that one slow response costs only that share and not the whole night.
 * Everything that the ledger has published is kept. After the others, the ledger gets
 * another turn without a limit.
 */
import { TIMER_MAX_MS } from '../../concurrency/timeouts.ts';
import { RetryableError } from '../../errors/errors.ts';
import type { JobDeps } from '../job.ts';

interface ShareRequest {
  readonly runId: string;
  readonly partyId: string;
  readonly shareMs: number;
}

export class LedgerShare implements Disposable {
  readonly #used = new AbortController();
  readonly #timer: NodeJS.Timeout;
  readonly #request: ShareRequest;
  readonly #deps: Pick<JobDeps, 'nightly' | 'log'>;
  /** Aborted when the run stops, or when the share is used up. */
  readonly signal: AbortSignal;

  constructor(
    request: ShareRequest,
    deps: Pick<JobDeps, 'nightly' | 'log'>,
    signal: AbortSignal,
  ) {
    this.#request = request;
    this.#deps = deps;
    this.signal = AbortSignal.any([signal, this.#used.signal]);
    const limitMs = Math.min(request.shareMs, TIMER_MAX_MS);
    this.#timer = setTimeout(() => void this.#end(), limitMs).unref();
  }

  /** Why the ledger's turn is over; undefined while it lasts. */
  get usedUp(): unknown {
    return this.#used.signal.aborted ? this.#used.signal.reason : undefined;
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
  }

  /**
   * Ends the turn if another ledger is waiting for the slot and this one has not had to
   * wait yet.
   */
  async #end(): Promise<void> {
    const { runId, partyId, shareMs } = this.#request;
    const { nightly, log } = this.#deps;
    try {
      const { turns, isOtherWaiting } = await nightly.turnsOf(runId, partyId);
      if (turns > 0 || !isOtherWaiting) return;
    } catch (error) {
      // The export itself uses the same database, and will report the problem.
      log.debug(
        { err: error, runId, partyId },
        'The share of a ledger could not be checked',
      );
      return;
    }
    const error = new RetryableError(
      `Cannot export ${partyId} in one turn: it has used its share of the nightly ` +
        'window, and others are waiting; it is queued again behind them',
      { code: 'SHARE_USED', meta: { partyId, shareMs } },
    );
    this.#used.abort(error);
  }
}
