/**
 * Counts the faults that the exports of a nightly run encounter in this process, to tell
 * whether a failure affects one ledger or all of them.
 */
import { errorCode } from '../../errors/errors.ts';
import { attributeFault, isRefusal } from '../../errors/faults.ts';

const COMMON_FAULTS_MAX = 3;
/**
 * If the source refuses this many ledgers and answers none, it is taken to refuse every
 * ledger. If it answers any, the refusals concern only the refused ledgers.
 */
const REFUSALS_MAX = 50;

export class MetFaults {
  /**
   * Consecutive failures of different ledgers, of a kind that would affect every other
   * ledger as well.
   */
  #inARow = 0;
  /** Consecutive refusals. */
  #refusals = 0;
  /** Whether the source has answered the export of any ledger. */
  #hasAnswered = false;
  /** Ledgers whose export got no response, counted since the last export that got one. */
  readonly #unanswered = new Set<string>();

  /**
   * Whether the faults affect every ledger. A run that stopped for that reason keeps its
   * count.
   */
  get isCommon(): boolean {
    return (
      this.#inARow >= COMMON_FAULTS_MAX ||
      (!this.#hasAnswered && this.#refusals >= REFUSALS_MAX)
    );
  }

  /**
   * Whether the export endpoint answers for no ledger, even if the lists still respond.
   */
  get isExportAway(): boolean {
    return this.#unanswered.size >= COMMON_FAULTS_MAX;
  }

  countAnswer(): void {
    this.#unanswered.clear();
    if (this.isCommon) return;
    this.#inARow = 0;
    this.#refusals = 0;
    this.#hasAnswered = true;
  }

  countUnanswered(partyId: string): void {
    this.#unanswered.add(partyId);
  }

  /**
   * Counts a failure. Three consecutive faults of the source or of the mirror are taken
   * to affect all ledgers, so the rest is left to another night. Refusals are treated in
   * the same way, but only if the source has answered for no ledger.
   * @returns the reason to request no more ledgers, if there is one
   */
  countFailure(error: unknown): string | undefined {
    const fault = attributeFault(error);
    if (isRefusal(error)) {
      this.#refusals += 1;
    } else {
      const isCommon = fault === 'source' || fault === 'mirror';
      this.#inARow = isCommon ? this.#inARow + 1 : 0;
    }
    if (!this.isCommon) return undefined;

    const times = isRefusal(error) ? this.#refusals : this.#inARow;
    return (
      `${times} ledgers in a row failed because of the ${fault}: ` +
      errorCode(error)
    );
  }
}

/** Maximum number of runs whose faults this process remembers. */
const RUNS_MAX = 16;

const byRun = new Map<string, MetFaults>();

export function metFaults(runId: string): MetFaults {
  const known = byRun.get(runId);
  if (known !== undefined) return known;

  const met = new MetFaults();
  byRun.set(runId, met);
  const [oldest] = byRun.keys();
  if (byRun.size > RUNS_MAX && oldest !== undefined) byRun.delete(oldest);
  return met;
}

/**
 * Clears the faults counted for a run, so that counting starts over. Called if the
 * database could not record that the run was stopped.
 */
export function forgetFaults(runId: string): void {
  byRun.delete(runId);
}
