/** Defines jobs and the dependencies that every job receives. */
import type { z } from 'zod';
import type { Log } from '../logging/log.ts';
import type { SourceClock } from '../exports/planning/source-clock.ts';
import type { LedgerReading } from '../exports/reading/read-ledger.ts';
import type { ExportRequest } from '../exports/export-context.ts';
import type { VerdictWithEvidence } from '../errors/verdict.ts';
import type { Config } from '../config/environment.ts';
import type { LedgerQuery } from '../ledger/ledger-range.ts';
import type { JobData, QueueName } from '../queue/backend.ts';
import type { Queues } from '../queue/queues.ts';
import type { ListSize } from '../lists/list-size.ts';
import type { ListLatency } from '../source/list-latency.ts';
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
  /** `nightly`: new data, and a share of the rest. */
  readonly scope: 'nightly' | 'whole';
  /** The operator has accepted that missing objects are lost for good. */
  readonly isLossAccepted?: boolean;
  /** The report of a nightly run to compare with: its content, and where it was found. */
  readonly against?:
    | { readonly text: string; readonly where: string }
    | undefined;
}

/**
 * Exports a range of a ledger again, even if it is already covered, and waits until that
 * is done.
 */
export type AskAgain = (
  partyId: string,
  range: { readonly from: Micros; readonly to: Micros },
) => Promise<void>;

interface SyncOrder extends Omit<SyncRequest, 'isAudit' | 'pageSize'> {
  readonly full: boolean;
}

export interface ClockQuestion {
  readonly signal: AbortSignal;
  /** How long a reading of the source's clock may be reused. */
  readonly maxAgeMs?: number;
}

/**
 * Ledgers that are exported one after another. Those that returned no rows are recorded
 * together.
 */
export interface LeasedLedgers extends AsyncDisposable {
  export(request: ExportRequest, call: StageCall): Promise<VerdictWithEvidence>;
  /**
   * Records the ledgers without rows. The results that `export` returned for them become
   * true only with this call.
   * @returns the parties that could not be recorded, because another worker has taken
   *   them over
   */
  write(): Promise<readonly string[]>;
  /** Releases the leases of parties whose export has not begun. */
  releaseUnstarted(): Promise<void>;
}

/**
 * Called before a run is recorded as ended; it may change the verdict and the evidence.
 * If it fails, a run whose work succeeded is retried; any other run ends anyway.
 */
export type BeforeFinish = (
  run: Run,
  ended: VerdictWithEvidence,
  signal: AbortSignal,
) => Promise<VerdictWithEvidence>;

/**
 * The stages, already wired to their stores, so that jobs depend on the internals of
 * neither.
 */
export interface Stages {
  sync(request: SyncOrder, call: StageCall): Promise<VerdictWithEvidence>;
  /**
   * Returns the listed parties that match a full or abbreviated id; an exact match comes
   * first.
   */
  listedParties(given: string): Promise<readonly string[]>;
  /**
   * Looks up one party with the source's filter. The evidence says whether the source
   * lists it.
   */
  lookUpParty(
    partyId: string,
    signal: AbortSignal,
  ): Promise<VerdictWithEvidence>;
  /**
   * Whether the source lists a party. A source that refuses the id because of its form
   * does not list it. Nothing is stored.
   */
  isListed(partyId: string, signal: AbortSignal): Promise<boolean>;
  /**
   * Whether a list was found to belong to another network, or the source has a new
   * address and lists none of the stored parties. Until a sync settles that, no ledger is
   * requested, because an empty response would close its range.
   */
  isOtherNetwork(signal: AbortSignal): Promise<boolean>;
  clock(question: ClockQuestion): Promise<SourceClock>;
  export(request: ExportRequest, call: StageCall): Promise<VerdictWithEvidence>;
  /** Leases those parties that no other worker has leased. */
  leaseLedgers(partyIds: readonly string[]): Promise<LeasedLedgers>;
  /**
   * Reads a file of the proof log, or part of it.
   * @returns undefined if there is no such file
   */
  readProofFile(
    path: string,
    range: { readonly start: number; readonly end: number } | undefined,
    signal: AbortSignal,
  ): Promise<Buffer | undefined>;
  /**
   * Opens the mirrored CSV of a ledger: a single header, then the source's lines from
   * every current segment in the range.
   * @throws PermanentError `LEDGER_NOT_MIRRORED` if the mirror lacks part of the range
   */
  openLedger(
    question: LedgerQuery,
    signal: AbortSignal,
  ): Promise<LedgerReading>;
  /**
   * Loads every published segment that is not yet in the warehouse, then updates the
   * lake.
   */
  load(
    request: { runId: string; rebuild: boolean },
    call: StageCall,
  ): Promise<VerdictWithEvidence>;
  verify(request: VerifyRequest, call: StageCall): Promise<VerdictWithEvidence>;
  /**
   * Compares a nightly run with the source's statements, if the source is itself a
   * mirror. Ledgers that differ are requested again.
   * @param wanted the parties that the mirror is configured to hold; undefined means
   *   all
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
   * Returns this mirror's last statement, with its proof (docs/proof.md).
   * @param from the size of the log that the reader already has; 0 if none
   * @returns undefined before the first nightly run
   */
  readLatestStatement(
    from: number,
    signal: AbortSignal,
  ): Promise<string | undefined>;
  /**
   * Publishes the report of a nightly run that is about to end with this verdict.
   * @returns the verdict and evidence to end the run with, after publishing
   */
  readonly publishReport: BeforeFinish;
  /**
   * Registers published objects that are missing from the database. Must be called before
   * entries are requested from the source.
   * @param partyId the party whose ledger will be requested; undefined means all
   */
  catchUpWithStore(signal: AbortSignal, partyId?: string): Promise<void>;
  /**
   * Tests the object store.
   * @returns the features it supports, in one line, and whether the store itself rejects
   *   a second writer of a key
   * @throws the store's error if it refuses an operation, or UnreachableError
   */
  tryStore(
    signal: AbortSignal,
  ): Promise<{ readonly isWrittenOnce: boolean; readonly detail: string }>;
  /**
   * Merges closed segments of past months, up to the limit for one night.
   * @returns evidence
   */
  mergeSegments(
    runId: string,
    signal: AbortSignal,
  ): Promise<Readonly<Record<string, unknown>>>;
  /** Removes what crashed processes left in the spool and in the store. */
  tidy(signal: AbortSignal): Promise<void>;
  /**
   * Sends the source a small request.
   * @returns how long it took, and how long such requests usually take
   */
  sourceLatency(signal: AbortSignal): Promise<ListLatency>;
  /** Estimates the size of each list from two requests, one at each end. */
  estimateListSizes(signal: AbortSignal): Promise<readonly ListSize[]>;
  /**
   * Sends the source one small request, without retries.
   * @returns whether it responds at all
   */
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
   * The source that this process uses; undefined if SOURCE_URL is not set. Jobs for
   * another source are refused.
   */
  readonly source: { readonly id: string; readonly url: string } | undefined;
  /**
   * Reads which ledgers are covered. This alone decides whether the mirror is called
   * complete.
   */
  readonly completeness: () => Promise<Completeness>;
  readonly progress: Pick<ProgressHints, 'report' | 'settle' | 'read'>;
  /** Counts the requests to the source, for each run. */
  readonly costs: Pick<RunCosts, 'charge' | 'ofRun' | 'flush'>;
  /** Undefined if no notices are configured. */
  readonly notices?: Notices | undefined;
  /** When nightly runs begin: a cron pattern and its time zone. */
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
  /** Contains only ids; the data that a job works on is in Postgres. */
  readonly payload: z.ZodType<Payload>;
  readonly handle: (
    payload: Payload,
    deps: JobDeps,
    context: JobContext,
  ) => Promise<void>;
}

/**
 * Maximum number of parties per job. Parties that are not expected to have new entries
 * share a job and a lease, because queueing each separately would cost more than its
 * request.
 */
export const BATCH_MAX = 50;

export const PRIORITY = { onDemand: 1, nightly: 10 } as const;

/** Job name and queue for each kind of run. */
export const JOBS = {
  sync: { name: 'sync-list', queue: 'sync' },
  export: { name: 'export-party', queue: 'export' },
  load: { name: 'load-segments', queue: 'load' },
  nightly: { name: 'nightly', queue: 'nightly' },
  verify: { name: 'verify', queue: 'load' },
} as const satisfies Readonly<
  Record<string, { name: string; queue: QueueName }>
>;
