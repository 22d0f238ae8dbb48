/**
 * The facts about the mirror's state. The status, the console, the API and the metrics
 * all draw the same conclusion from them (status-summary.ts). Times are RFC 3339; numbers
 * that may exceed 2^53 are decimal strings.
 */
import type { Verdict } from '../errors/verdict.ts';
import type { NightFacts, RecordedNights } from './night-facts.ts';
import type { Completeness } from './store/completeness.ts';

export type ListName = 'parties' | 'checkpoints';

/** The state of one of the mirror's three streams after the last run that read it. */
export interface StreamStatus {
  readonly name: ListName | 'ledger';
  /** The verdict of the last run that ended; null before the first. */
  readonly verdict: Verdict | null;
  /** When that run ended. */
  readonly checkedAt: string | null;
  /** The source's block up to which a list is proven complete; a decimal string. */
  readonly asOfBlock: string | null;
  /**
   * The instant up to which everything in the stream is proven; null while any part of
   * it is unproven.
   */
  readonly asOfTime: string | null;
  /** Distinct rows of a list, or entries of the ledgers; a decimal string. */
  readonly rows: string;
}

/** A reason to doubt a list, or ledgers, that no later run has resolved. */
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
  /** Whether an audit has confirmed that the source does not serve the rows. */
  readonly isConfirmed: boolean;
}

/** The open doubts and known gaps of one list, and when it was last audited. */
export interface ListFacts {
  readonly list: ListName;
  readonly doubts: readonly OpenDoubt[];
  readonly gaps: readonly KnownGap[];
  /** When the whole list was last read; null before the first complete reading. */
  readonly lastAuditAt: string | null;
}

/** The current segments; all counts are decimal strings. */
export interface LedgerFacts {
  readonly segments: string;
  /** Size of the segments as plain CSV, in bytes. */
  readonly bytes: string;
  /** Parties that have at least one segment. */
  readonly parties: string;
  /** Segments that are published but not yet loaded into the warehouse. */
  readonly notLoaded: string;
  /** Ledgers whose export failed so often that nightly runs request them less often. */
  readonly quarantined: string;
}

/** The log of nightly runs that this mirror signs. */
export interface ProofFacts {
  /** The key with which anyone can verify the log: `<name>+<hash>+<key>`. */
  readonly publicKey: string;
  /** The number of nightly runs in the log. */
  readonly nights: number;
}

/** The last verification that an operator requested. */
export interface LastVerify {
  readonly verdict: Verdict;
  readonly at: string;
  readonly runId: string;
}

/** The workers, and the nightly runs that the schedule starts. */
export interface WorkFacts {
  /** The number of long-running worker processes; commands do not count. */
  readonly workers: number;
  /** Former name of `nights.nextAt`, kept for compatibility. */
  readonly nextSlot: string | null;
  /** Former name of `nights.missedAt`, kept for compatibility. */
  readonly missedSlot: string | null;
  /** The schedules in force, as readable text; null if no worker is running. */
  readonly schedule: string | null;
  /**
   * Schedules configured on other workers that differ from those in force; no worker
   * follows them.
   */
  readonly otherSchedules: string[];
}

/**
 * The facts recorded in the mirror's tables. One statement reads the facts, and another
 * the coverage.
 */
export interface StoredFacts {
  /**
   * The address of the source that the mirror was read from; null before the first
   * reading.
   */
  readonly sourceUrl: string | null;
  /** The epoch of the source's chain, which increases when the chain restarts. */
  readonly epoch: number;
  readonly streams: StreamStatus[];
  readonly ledger: LedgerFacts;
  readonly coverage: Completeness;
  /** Gaps of both lists in this epoch; a decimal string. */
  readonly knownGaps: string;
  /** Runs that are queued or running; a decimal string. */
  readonly openRuns: string;
  /**
   * The id of the nightly run that is queued or running; null if there is no such run.
   */
  readonly openNightlyRun: string | null;
  /**
   * Since when and why the nightly run has been waiting for the source; null if it is not
   * waiting.
   */
  readonly awaitedSource: {
    readonly since: string;
    readonly reason: string;
  } | null;
  readonly lastVerify: LastVerify | null;
  /** The log of nightly runs; null until a nightly run has signed a statement. */
  readonly proof: ProofFacts | null;
  /** Reasons to doubt ledgers that no later nightly run has resolved. */
  readonly ledgerDoubts: readonly OpenDoubt[];
  readonly recordedNights: RecordedNights;
}

export interface MirrorFacts extends Omit<StoredFacts, 'recordedNights'> {
  readonly nights: NightFacts;
  readonly lists: ListFacts[];
  readonly work: WorkFacts;
  /**
   * What decides between two writers of the same commit of the lake: `database` if the
   * object store would accept both.
   */
  readonly lakeCommitsDecidedBy: 'store' | 'database';
}

/**
 * Reads the facts. The composition root assembles this reader from the stores of several
 * rooms.
 */
export interface FactsReader {
  facts(): Promise<MirrorFacts>;
}
