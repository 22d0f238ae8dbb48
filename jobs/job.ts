/** What a job is, and what every job is handed. */
import type { z } from 'zod';
import type { Log } from '../src/core/log.ts';
import type { Micros } from '../src/core/time.ts';
import type { SourceClock } from '../src/export/plan/source-clock.ts';
import type { Outcome } from '../src/core/verdict.ts';
import type { PartySelection } from '../src/config/settings.ts';
import type { JobData } from '../src/queue/backend.ts';
import type { NewJob, QueueName } from '../src/queue/queues.ts';
import type { ListLatency } from '../src/source/latency.ts';
import type { SourceCost } from '../src/source/ports.ts';
import type { NightlyStore } from '../src/runs/store/nightly-store.ts';
import type { RunStore } from '../src/runs/store/run-store.ts';
import type { ListName } from '../src/postgres/schema.ts';

/** One line of live progress: a bar where `total` is known. Counts are text so that none loses digits. */
export interface ProgressLine {
  readonly label: string;
  readonly done: string;
  readonly total?: string | undefined;
  readonly unit: 'rows' | 'bytes' | 'parties' | 'segments' | 'files';
  readonly note?: string | undefined;
  /** One piece of what another line counts: it ends without a word of its own. */
  readonly isPart?: boolean | undefined;
}

export type ReportProgress = (lines: readonly ProgressLine[]) => void;

export interface LedgerRange {
  readonly partyId: string;
  readonly assetId?: string | undefined;
  /** Whole seconds, half-open. */
  readonly from?: Micros | undefined;
  readonly to?: Micros | undefined;
}

export interface StageCall {
  readonly signal: AbortSignal;
  readonly onProgress: ReportProgress;
}

export interface ExportRequest extends LedgerRange {
  readonly runId: string;
  readonly clock: SourceClock;
}

/** The stages, composed with their stores; jobs know nothing of either's insides. */
export interface Stages {
  walk(
    request: { runId: string; list: ListName; full: boolean; acceptNewNetwork: boolean },
    call: StageCall,
  ): Promise<Outcome>;
  /** One party by filter: the evidence says whether the source lists it. */
  lookUpParty(partyId: string, signal: AbortSignal): Promise<Outcome>;
  clock(signal: AbortSignal): Promise<SourceClock>;
  export(request: ExportRequest, call: StageCall): Promise<Outcome>;
  /** The mirrored CSV of a ledger: one header, then the source's lines of every current segment in the range. */
  readLedger(range: LedgerRange, signal: AbortSignal): AsyncIterable<Buffer>;
  /** Brings every published segment that is not loaded yet into the warehouse, then the lake up to date. */
  load(request: { runId: string; rebuild: boolean }, call: StageCall): Promise<Outcome>;
  verify(request: { runId: string; deep: boolean }, call: StageCall): Promise<Outcome>;
  /** Finishes a rebuild of the manifest that was killed. To be done before the source is asked for entries. */
  resumeRebuild(signal: AbortSignal): Promise<void>;
  /** Records in the store what is covered: a lost database need not ask for it again. */
  recordCoverage(signal: AbortSignal): Promise<void>;
  /** Clears what dead processes left in the spool and in the store. */
  tidy(signal: AbortSignal): Promise<void>;
  /** Asks the source a small question and says how long it took, and how long such take as a rule. */
  sourceLatency(signal: AbortSignal): Promise<ListLatency>;
}

export interface JobDeps {
  readonly stages: Stages;
  readonly runs: RunStore;
  readonly nightly: NightlyStore;
  readonly queue: { add(queue: QueueName, jobs: readonly NewJob[]): Promise<void> };
  readonly progress: {
    report(runId: string, lines: readonly ProgressLine[]): void;
    /** Before a run's verdict is told: whoever reads it finds the last report. Never fails. */
    settle(runId: string): Promise<void>;
    read(runId: string): Promise<readonly ProgressLine[]>;
  };
  /** What is asked of the source, and for which run. */
  readonly costs: {
    /** Whatever `work` asks is charged to the run, and recorded before this returns. */
    charge<Result>(runId: string, work: () => Promise<Result>): Promise<Result>;
    /** Of the run and of those below it, over all processes; of one that was killed, its last seconds are missing. */
    ofRun(runId: string): Promise<SourceCost>;
  };
  /** Posts a report as JSON; absent where nobody is to be told. */
  readonly post?: ((report: Readonly<Record<string, unknown>>) => Promise<void>) | undefined;
  readonly nightlyParties: PartySelection;
  readonly nightlyExportsMax: number | undefined;
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
  readonly handle: (payload: Payload, deps: JobDeps, context: JobContext) => Promise<void>;
}

export const PRIORITY = { onDemand: 1, nightly: 10 } as const;
