/** What a job is, and what every job is handed. */
import type { z } from 'zod';
import type { Log } from '../logging/log.ts';
import type { SourceClock } from '../exports/planning/source-clock.ts';
import type { LedgerReading } from '../exports/reading/read-ledger.ts';
import type { ExportRequest } from '../exports/request.ts';
import type { VerdictWithEvidence } from '../errors/verdict.ts';
import type { Config } from '../config/environment.ts';
import type { LedgerQuery } from '../ledger/ledger-range.ts';
import type { JobData, QueueName } from '../queue/backend.ts';
import type { Queues } from '../queue/queues.ts';
import type { ListLatency } from '../source/observers.ts';
import type { ProgressHints, ProgressLine } from './progress.ts';
import type { RunCosts } from './store/run-costs.ts';
import type { Notices } from './notices.ts';
import type { NightlyStore } from './store/nightly/nightly-store.ts';
import type { Database } from '../postgres/database.ts';
import type { Completeness } from '../status/store/completeness.ts';
import type { Run, RunStore } from './store/run-store.ts';
import type { SyncRequest } from '../lists/ports.ts';
import type { Micros } from '../time/time.ts';

export type ReportProgress = (lines: readonly ProgressLine[]) => void;

export interface StageCall {
  readonly signal: AbortSignal;
  readonly onProgress: ReportProgress;
}

export interface VerifyRequest {
  readonly runId: string;
  readonly deep: boolean;
  /** `nightly`: what is new, and a share of the rest. */
  readonly scope: 'nightly' | 'whole';
  /** A person has decided that missing objects are lost for good. */
  readonly isLossAccepted?: boolean;
  /** A report of a nightly run to compare with: its text, and where it was found. */
  readonly against?:
    | { readonly text: string; readonly where: string }
    | undefined;
}

/** Has a range of a ledger exported once more, whatever is covered, and waits for it. */
export type AskAgain = (
  partyId: string,
  range: { readonly from: Micros; readonly to: Micros },
) => Promise<void>;

interface SyncOrder extends Omit<SyncRequest, 'isAudit' | 'pageSize'> {
  readonly full: boolean;
}

export interface ClockQuestion {
  readonly signal: AbortSignal;
  /** One that this process read so lately will do. */
  readonly maxAgeMs?: number;
}

/**
 * Ledgers that are exported one after another; what brought no rows is written together.
 */
export interface LeasedLedgers extends AsyncDisposable {
  export(request: ExportRequest, call: StageCall): Promise<VerdictWithEvidence>;
  /**
   * What `export` said of a ledger without rows is true from here on, and not before.
   * @returns parties of which it is not: another has taken them over
   */
  write(): Promise<readonly string[]>;
  /** Releases the leases of parties whose export has not begun. */
  releaseUnstarted(): Promise<void>;
}

/**
 * What is said of a run before it is recorded as ended; it may change how that ends. What
 * cannot be said keeps no run from ending, save that it is tried again with work that
 * went well.
 */
export type BeforeFinish = (
  run: Run,
  ended: VerdictWithEvidence,
  signal: AbortSignal,
) => Promise<VerdictWithEvidence>;

/** The stages, composed with their stores; jobs know nothing of either's insides. */
export interface Stages {
  sync(request: SyncOrder, call: StageCall): Promise<VerdictWithEvidence>;
  /** The listed parties that a whole or cut id may mean, the one that has it first. */
  listedParties(given: string): Promise<readonly string[]>;
  /** One party by filter: the evidence says whether the source lists it. */
  lookUpParty(
    partyId: string,
    signal: AbortSignal,
  ): Promise<VerdictWithEvidence>;
  /**
   * Whether a list was found to be of another network, or the source has a new address
   * and shows none of the parties that are held: until a sync settles it, no ledger is
   * asked for, since an empty answer would close it.
   */
  isOtherNetwork(signal: AbortSignal): Promise<boolean>;
  clock(question: ClockQuestion): Promise<SourceClock>;
  export(request: ExportRequest, call: StageCall): Promise<VerdictWithEvidence>;
  /** Leases those of the parties that nobody works on. */
  leaseLedgers(partyIds: readonly string[]): Promise<LeasedLedgers>;
  /**
   * A file of the log of nights, or a part of it.
   * @returns undefined if there is no such file
   */
  readProofFile(
    path: string,
    range: { readonly start: number; readonly end: number } | undefined,
    signal: AbortSignal,
  ): Promise<Buffer | undefined>;
  /**
   * Opens the mirrored CSV of a ledger: one header, then the source's lines of every
   * current segment in the range.
   * @throws PermanentError `LEDGER_NOT_MIRRORED` if a part of it is not known
   */
  openLedger(
    question: LedgerQuery,
    signal: AbortSignal,
  ): Promise<LedgerReading>;
  /**
   * Brings every published segment that is not loaded yet into the warehouse, then the
   * lake up to date.
   */
  load(
    request: { runId: string; rebuild: boolean },
    call: StageCall,
  ): Promise<VerdictWithEvidence>;
  verify(request: VerifyRequest, call: StageCall): Promise<VerdictWithEvidence>;
  /**
   * Compares a nightly run with what the source stated, if the source is a mirror.
   * Ledgers that differ are asked for again.
   * @param wanted the parties that the mirror is to hold; undefined: all
   * @returns undefined if the source serves no statements
   */
  compareWithSource(
    night: {
      readonly runId: string;
      readonly wanted: readonly string[] | undefined;
    },
    call: StageCall & { readonly askAgain: AskAgain },
  ): Promise<VerdictWithEvidence | undefined>;
  /**
   * The last statement of this mirror, with what proves it (docs/proof.md).
   * @param from the size of the log that the reader has; 0: none
   * @returns undefined before the first nightly run
   */
  readLatestStatement(
    from: number,
    signal: AbortSignal,
  ): Promise<string | undefined>;
  /**
   * Publishes the report of a nightly run that is about to end so. @returns how it ends,
   * by what was published
   */
  readonly publishReport: BeforeFinish;
  /**
   * Takes over what was published and the database has forgotten. To be done before the
   * source is asked for entries.
   * @param partyId whose ledger is to be asked for; absent: all
   */
  catchUpWithStore(signal: AbortSignal, partyId?: string): Promise<void>;
  /**
   * Tries the object store out: what it honours, in a line, and whether a second writer
   * of a key is told so by the store itself. @throws what it refuses, or UnreachableError
   */
  tryStore(
    signal: AbortSignal,
  ): Promise<{ readonly isWrittenOnce: boolean; readonly detail: string }>;
  /**
   * Merges closed segments of months that are over, as many as a night may; as evidence.
   */
  mergeSegments(
    runId: string,
    signal: AbortSignal,
  ): Promise<Readonly<Record<string, unknown>>>;
  /** Clears what dead processes left in the spool and in the store. */
  tidy(signal: AbortSignal): Promise<void>;
  /**
   * Asks the source a small question and says how long it took, and how long such take as
   * a rule.
   */
  sourceLatency(signal: AbortSignal): Promise<ListLatency>;
  /** Asks the source one small question, once: whether it answers at all. */
  isSourceThere(signal: AbortSignal): Promise<boolean>;
}

type NightlySetting =
  | 'nightlyParties'
  | 'nightlyExportsMax'
  | 'nightlyAuditShare'
  | 'nightlyAuditWithin'
  | 'nightlyListRows'
  | 'nightlyWindow';

export interface JobDeps extends Pick<
  Config,
  NightlySetting | 'sourceAssets' | 'sourceExportConcurrency'
> {
  readonly db: Database;
  readonly stages: Stages;
  readonly runs: RunStore;
  readonly nightly: NightlyStore;
  readonly queue: Pick<Queues, 'add' | 'holds' | 'open'>;
  /**
   * What this process asks; undefined where no SOURCE_URL is set. Jobs of another source
   * are refused.
   */
  readonly source: { readonly id: string; readonly url: string } | undefined;
  /**
   * Which ledgers are covered: by this, and nothing else, the mirror is called complete.
   */
  readonly completeness: () => Promise<Completeness>;
  readonly progress: Pick<ProgressHints, 'report' | 'settle' | 'read'>;
  /** What is asked of the source, and for which run. */
  readonly costs: Pick<RunCosts, 'charge' | 'ofRun' | 'flush'>;
  /** Absent where nobody is to be told. */
  readonly notices?: Notices | undefined;
  /** Of nightly runs: a cron pattern, and whose time it means. */
  readonly schedule: Readonly<Record<'pattern' | 'tz', string>>;
  readonly log: Log;
}

export interface JobContext {
  readonly signal: AbortSignal;
  /** When a scheduled job was due, in milliseconds since 1970. */
  readonly dueMs: number;
  readonly attempt: number;
}

export interface JobDefinition<Payload extends JobData = JobData> {
  readonly name: string;
  readonly queue: QueueName;
  /** Ids only: what a job works on lies in Postgres. */
  readonly payload: z.ZodType<Payload>;
  readonly handle: (
    payload: Payload,
    deps: JobDeps,
    context: JobContext,
  ) => Promise<void>;
}

/**
 * Parties of which nothing is expected share a job, and are leased together: the queue
 * would cost more than their requests.
 */
export const BATCH_MAX = 50;

export const PRIORITY = { onDemand: 1, nightly: 10 } as const;

/** The job's name and its queue, by the kind of a run. */
export const JOBS = {
  sync: { name: 'sync-list', queue: 'sync' },
  export: { name: 'export-party', queue: 'export' },
  load: { name: 'load-segments', queue: 'load' },
  nightly: { name: 'nightly', queue: 'nightly' },
  verify: { name: 'verify', queue: 'load' },
} as const satisfies Readonly<
  Record<string, { name: string; queue: QueueName }>
>;
