/**
 * What the exports of a nightly run have met in this process: whether a failure concerns
 * one ledger, or all of them.
 */
import { errorCode } from '../../errors/errors.ts';
import { attributeFault, isRefusal } from '../../errors/faults.ts';

const COMMON_FAULTS_MAX = 3;
/**
 * A source that refuses so many ledgers and answers none refuses everybody. One that
 * answers others has refused these alone.
 */
const REFUSALS_MAX = 50;

export class MetFaults {
  /** Failures in a row of different ledgers that every other ledger would meet as well. */
  #inARow = 0;
  /** Refusals in a row. */
  #refusals = 0;
  /** The source has answered at least one of them. */
  #hasAnswered = false;
  /** Ledgers whose exports met no answer, since one was answered last. */
  readonly #unanswered = new Set<string>();

  /** A run that stopped for common faults keeps its count. */
  get isCommon(): boolean {
    return (
      this.#inARow >= COMMON_FAULTS_MAX ||
      (!this.#hasAnswered && this.#refusals >= REFUSALS_MAX)
    );
  }

  /** Whether the export answers nobody, though the lists may be answered. */
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
   * A fault of the source or of the mirror, three times in a row, concerns all: the rest
   * is left to another night. A refusal concerns all only if nobody was answered.
   * @returns why no more ledgers are to be asked for, if that is so
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
    return `${times} ledgers in a row failed of the ${fault}: ${errorCode(error)}`;
  }
}

/** The runs of this process that are remembered. */
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

/** For a stop that could not be written down: it is counted anew. */
export function forgetFaults(runId: string): void {
  byRun.delete(runId);
}
