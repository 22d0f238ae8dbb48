/**
 * A double of the stages: the test says what each answers. Queues, runs and the
 * night's list are real.
 */
import type { JobDeps, Stages } from '../../src/runs/job.ts';
import type { ProgressLine } from '../../src/runs/progress.ts';
import { findListedParties } from '../../src/lists/store/list-state.ts';
import { handleJob } from '../../src/worker/job-worker.ts';
import { createLog } from '../../src/logging/log.ts';
import type { VerdictWithEvidence } from '../../src/errors/verdict.ts';
import { openPostgresBackend } from '../../src/queue/postgres-backend.ts';
import { QUEUE_NAMES } from '../../src/queue/backend.ts';
import { Queues } from '../../src/queue/queues.ts';
import { openWarehouse, type Warehouse } from '../../src/postgres/database.ts';
import type { Completeness } from '../../src/status/store/completeness.ts';
import { NightlyStore } from '../../src/runs/store/nightly/nightly-store.ts';
import { RunStore } from '../../src/runs/store/run-store.ts';
import { readingOf } from '../support/ledger-reading.ts';

export const COMPLETE: VerdictWithEvidence = {
  verdict: 'complete',
  evidence: {},
};
/** Every listed ledger is covered: stages that are doubles cover nothing. */
export const COVERED: Completeness = {
  listed: 3,
  configured: null,
  wanted: 3,
  covered: 3,
  neverAsked: 0,
  unlisted: 0,
  unlistedParties: [],
  removed: 0,
  removedParties: [],
  comparedSince: null,
  quarantined: 0,
  unreadLists: [],
  knownGaps: 0,
  unconfirmedGaps: 0,
  notLoaded: 0,
  isLoading: false,
  hasFailedVerify: false,
  coveredTo: '2033-05-18T03:31:20Z',
  openDoubts: 0,
};
const CLOCK = {
  seen: 2_000_000_000_000_000n,
  closedTo: 1_999_999_880_000_000n,
  from: 'source',
} as const;

export interface JobWorld extends AsyncDisposable {
  readonly deps: JobDeps;
  readonly queues: Queues;
  readonly warehouse: Warehouse;
  /** What the stages were asked, in order: `sync parties`, `export <party>`, … */
  readonly asked: readonly string[];
  /** Takes jobs from now on. */
  work(): void;
}

/** @param prefix keeps the queues of tests in one database apart */
export async function openJobWorld(
  databaseUrl: string,
  prefix: string,
  answers: Partial<Stages>,
  options: Partial<
    Pick<
      JobDeps,
      | 'nightlyParties'
      | 'nightlyExportsMax'
      | 'nightlyWindow'
      | 'source'
      | 'sourceAssets'
      | 'completeness'
    >
  > = {},
): Promise<JobWorld> {
  const log = createLog('silent');
  const warehouse = openWarehouse({
    url: databaseUrl,
    onIdleError: () => undefined,
  });
  const queues = new Queues({
    backend: await openPostgresBackend({ url: databaseUrl }),
    prefix,
    log,
  });
  const asked: string[] = [];
  const progress = new Map<string, readonly ProgressLine[]>();
  const stages: Stages = {
    sync: async (request, call) => {
      asked.push(`sync ${request.list}`);
      return (await answers.sync?.(request, call)) ?? COMPLETE;
    },
    listedParties: (given) => findListedParties(warehouse.db, given),
    lookUpParty: async () => COMPLETE,
    isListed: async () => true,
    estimateListSizes: async () => [],
    tryStore: async (signal) =>
      (await answers.tryStore?.(signal)) ?? { isWrittenOnce: true, detail: '' },
    readProofFile: async () => undefined,
    isOtherNetwork: async () => false,
    clock: async () => CLOCK,
    export: async (request, call) => {
      asked.push(`export ${request.partyId}`);
      return (await answers.export?.(request, call)) ?? COMPLETE;
    },
    leaseLedgers: async () => ({
      export: (request, call) => stages.export(request, call),
      write: async () => [],
      releaseUnstarted: async () => undefined,
      [Symbol.asyncDispose]: async () => undefined,
    }),
    openLedger: async () => readingOf(async function* () {}),
    load: async (request, call) => {
      asked.push('load');
      return (await answers.load?.(request, call)) ?? COMPLETE;
    },
    verify: async (request, call) => {
      asked.push('verify');
      return (await answers.verify?.(request, call)) ?? COMPLETE;
    },
    compareWithSource: async (night, call) =>
      answers.compareWithSource?.(night, call),
    readLatestStatement: async () => undefined,
    publishReport: async (run, ended, signal) =>
      (await answers.publishReport?.(run, ended, signal)) ?? ended,
    catchUpWithStore: async () => undefined,
    mergeSegments: async (runId, signal) =>
      (await answers.mergeSegments?.(runId, signal)) ?? {},
    tidy: async (signal) => answers.tidy?.(signal),
    isSourceThere: async (signal) =>
      (await answers.isSourceThere?.(signal)) ?? true,
    sourceLatency: async () =>
      (await answers.sourceLatency?.(new AbortController().signal)) ?? {
        lastMs: 1,
        medianMs: 1,
      },
  };
  const deps: JobDeps = {
    db: warehouse.db,
    stages,
    runs: new RunStore(warehouse.db, options.source?.url),
    nightly: new NightlyStore(warehouse.db),
    queue: queues,
    progress: {
      report: (runId, lines) => void progress.set(runId, lines),
      settle: async () => undefined,
      read: async (runId) => progress.get(runId) ?? [],
    },
    costs: {
      charge: (_runId, work) => work(),
      flush: async () => undefined,
      ofRun: async () => ({
        requests: { lists: 0, exports: 0 },
        retries: 0,
        failures: 0,
        bytes: 0,
        waitedMs: 0,
      }),
    },
    nightlyParties: options.nightlyParties ?? { kind: 'all' },
    nightlyExportsMax: options.nightlyExportsMax,
    nightlyAuditShare: 0,
    nightlyAuditWithin: 30 * 86_400_000,
    nightlyListRows: 1_000_000,
    nightlyWindow: options.nightlyWindow,
    schedule: { pattern: '0 2 * * *', tz: 'UTC' },
    sourceAssets: options.sourceAssets,
    sourceExportConcurrency: 1,
    source: options.source,
    completeness: options.completeness ?? (async () => COVERED),
    log,
  };
  return {
    deps,
    queues,
    warehouse,
    asked,
    work: () => {
      for (const queue of QUEUE_NAMES)
        queues.work(queue, 2, (job, signal) => handleJob(job, deps, signal));
    },
    [Symbol.asyncDispose]: async () => {
      await queues.close(2_000);
      await warehouse[Symbol.asyncDispose]();
    },
  };
}
