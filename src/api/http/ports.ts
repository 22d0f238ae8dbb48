/** What the read API needs from the rest of the mirror. */
import type { Registry } from 'prom-client';
import type { Completeness } from '../../runs/store/completeness.ts';
import type { RunKind } from '../../postgres/schema.ts';
import type { RunDocument } from '../../runs/run-document.ts';
import type { RunLinePage } from '../../runs/store/run-log-store.ts';
import type { Verdict } from '../../core/verdict.ts';

export interface StreamStatus {
  readonly name: 'parties' | 'checkpoints' | 'ledger';
  /** Of the last run that ended; null where none has. */
  readonly verdict: Verdict | null;
  readonly checkedAt: string | null;
  /** Decimal text; the source's block that the stream is proven up to. */
  readonly asOfBlock: string | null;
  readonly asOfTime: string | null;
  /** Decimal text: distinct rows of a list, entries of the ledger's current segments. */
  readonly rows: string;
}

/** How the work stands. Times are RFC 3339. */
export interface WorkFacts {
  /** Long-lived processes that work jobs. */
  readonly workers: number;
  /** Null where nobody is there to begin it. */
  readonly nextSlot: string | null;
  /** A scheduled nightly run that never began; a worker makes it up within a minute. */
  readonly missedSlot: string | null;
}

/** What is known against a list. Times are RFC 3339. */
export interface ListFacts {
  readonly list: 'parties' | 'checkpoints';
  readonly doubts: readonly { readonly code: string; readonly message: string; readonly since: string }[];
  readonly gaps: readonly {
    readonly belowKey: string;
    readonly aboveKey: string;
    readonly foundAt: string;
    /** An audit has found that the source does not serve the rows. */
    readonly isConfirmed: boolean;
  }[];
  /** When the list was last read from its oldest row on; null before the first complete reading. */
  readonly lastAuditAt: string | null;
}

/** Everything the console's first glance needs, in one consistent reading. */
export interface MirrorFacts {
  readonly sourceUrl: string | null;
  readonly epoch: number;
  readonly streams: readonly StreamStatus[];
  /** Decimal texts. */
  readonly ledger: {
    readonly segments: string;
    readonly bytes: string;
    readonly parties: string;
    readonly notLoaded: string;
    readonly quarantined: string;
  };
  /** Which ledgers are covered: the one reading that every sentence about completeness goes by. */
  readonly coverage: Completeness;
  readonly knownGaps: string;
  /** Both lists; absent where nobody asks for them. */
  readonly lists?: readonly ListFacts[];
  readonly openRuns: string;
  /** Of the last verification that somebody ordered; null where none was. */
  readonly lastVerify: { readonly verdict: Verdict; readonly at: string; readonly runId: string } | null;
  /** Absent where only the stores were asked. */
  readonly work?: WorkFacts;
  /** Who decides the lake's commits: the database where the object store would let two writers put one. */
  readonly lakeCommitsDecidedBy?: 'store' | 'database';
}

export interface RunsQuestion {
  readonly kind?: RunKind | undefined;
  /** Runs queued before this one. */
  readonly before?: string | undefined;
  readonly rowsMax: number;
}

export interface StatusStore {
  facts(): Promise<MirrorFacts>;
  /** Newest first. */
  runs(question: RunsQuestion): Promise<readonly RunDocument[]>;
  run(runId: string): Promise<RunDocument | undefined>;
  /** A page of a run's log lines, oldest first; `after` is `next` of the page before. */
  logs(runId: string, rowsMax: number, after: string): Promise<RunLinePage>;
}

/** One thing that must work for this process to do its work. */
export interface Probe {
  readonly name: string;
  /** Rejects where it does not work. */
  check(signal: AbortSignal): Promise<unknown>;
}

/** The metrics of the whole process: the API's own are added to them, and all are told at `/metrics`. */
export interface ProcessMeters {
  add(source: { collect(): Promise<Registry> }): void;
  text(): Promise<string>;
}
