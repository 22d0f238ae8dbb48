/**
 * What is known of the mirror: the facts from which the status, the console, the API and
 * the metrics draw the same conclusion (status-summary.ts). Times are RFC 3339; numbers
 * that may exceed 2^53 are decimal text.
 */
import type { Verdict } from '../errors/verdict.ts';
import type { Completeness } from './store/completeness.ts';

export type ListName = 'parties' | 'checkpoints';

/** How one of the mirror's three streams stands after the last run that read it. */
export interface StreamStatus {
  readonly name: ListName | 'ledger';
  /** The verdict of the last run that ended; null before the first. */
  readonly verdict: Verdict | null;
  /** When that run ended. */
  readonly checkedAt: string | null;
  /** The source's block that a list is proven up to; decimal text. */
  readonly asOfBlock: string | null;
  /** Everything in the stream is proven up to this instant; null while a part is not. */
  readonly asOfTime: string | null;
  /** Distinct rows of a list, entries of the ledger; decimal text. */
  readonly rows: string;
}

/** A reason to doubt a list, or ledgers, that no later run has overcome. */
export interface OpenDoubt {
  readonly code: string;
  readonly message: string;
  /** When the doubt was opened. */
  readonly since: string;
}

/** Rows that the source stopped serving before the mirror had read them. */
export interface KnownGap {
  /** Key of the last row before the gap. */
  readonly belowKey: string;
  /** Key of the first row after the gap. */
  readonly aboveKey: string;
  readonly foundAt: string;
  /** True if an audit has found that the source does not serve the rows. */
  readonly isConfirmed: boolean;
}

/** What speaks against a list. */
export interface ListFacts {
  readonly list: ListName;
  readonly doubts: readonly OpenDoubt[];
  readonly gaps: readonly KnownGap[];
  /** When the whole list was last read; null before the first complete reading. */
  readonly lastAuditAt: string | null;
}

/** The current segments; all counts are decimal text. */
export interface LedgerFacts {
  readonly segments: string;
  /** Bytes of plain CSV. */
  readonly bytes: string;
  /** Parties that have a segment. */
  readonly parties: string;
  /** Segments that are published and not loaded into the warehouse yet. */
  readonly notLoaded: string;
  /** Ledgers whose export failed so often that nightly runs ask for it less. */
  readonly quarantined: string;
}

/** The log of nights that this mirror signs. */
export interface ProofFacts {
  /** The key that anybody checks it with: `<name>+<hash>+<key>`. */
  readonly publicKey: string;
  /** How many nights are in it. */
  readonly nights: number;
}

/** The last verification that somebody ordered. */
export interface LastVerify {
  readonly verdict: Verdict;
  readonly at: string;
  readonly runId: string;
}

/** The workers, and the nightly runs of the schedule. */
export interface WorkFacts {
  /** Long-lived processes that work jobs. */
  readonly workers: number;
  /** The next scheduled time; null if no worker is there to begin it. */
  readonly nextSlot: string | null;
  /** The scheduled time of a nightly run that never began; a worker makes it up. */
  readonly missedSlot: string | null;
  /** The schedules in force, for people; null if no worker is running. */
  readonly schedule: string | null;
  /** Schedules of other workers that differ from those in force; nobody keeps them. */
  readonly otherSchedules: string[];
}

/** What the mirror's tables record, read in one statement each for facts and coverage. */
export interface StoredFacts {
  /** The address that the mirror was read from; null before the first reading. */
  readonly sourceUrl: string | null;
  /** Counts up when the source's chain starts again. */
  readonly epoch: number;
  readonly streams: StreamStatus[];
  readonly ledger: LedgerFacts;
  readonly coverage: Completeness;
  /** Gaps of both lists in this epoch; decimal text. */
  readonly knownGaps: string;
  /** Runs that are queued or running; decimal text. */
  readonly openRuns: string;
  /** The id of the nightly run that is queued or running. */
  readonly openNightlyRun: string | null;
  /** Since when, and why, the nightly run waits for the source; null if it does not. */
  readonly awaitedSource: {
    readonly since: string;
    readonly reason: string;
  } | null;
  readonly lastVerify: LastVerify | null;
  /** null until a nightly run has signed a statement. */
  readonly proof: ProofFacts | null;
  /** Reasons to doubt ledgers that no later nightly run has overcome. */
  readonly ledgerDoubts: readonly OpenDoubt[];
}

export interface MirrorFacts extends StoredFacts {
  readonly lists: ListFacts[];
  readonly work: WorkFacts;
  /**
   * `database` if the object store would let two writers put the same commit of the lake.
   */
  readonly lakeCommitsDecidedBy: 'store' | 'database';
}

/** Reads the facts; the composition root makes it from the stores of several rooms. */
export interface FactsReader {
  facts(): Promise<MirrorFacts>;
}
