/** The composition root: builds everything a command needs in order, and takes it down last-in first-out. */
import { ProgressHints } from '../runs/progress/progress-hints.ts';
import type { JobDeps } from '../runs/job.ts';
import type { StatusStore } from '../api/http/ports.ts';
import type { Config } from '../config/environment.ts';
import { version } from '../core/version.ts';
import { RowPool } from '../export/read/row-pool.ts';
import { CostMeter } from '../source/observers.ts';
import { openSource, type SourceDeps } from '../source/source-client.ts';
import { Presence } from '../postgres/presence.ts';
import { shownUrl, sourceIdOf } from '../postgres/identity.ts';
import { readCompleteness } from '../runs/store/completeness.ts';
import { forgetHistory } from '../runs/store/history.ts';
import { NightlyPlans } from '../runs/store/nightly/nightly-plans.ts';
import { NightlyStore } from '../runs/store/nightly/nightly-store.ts';
import { RunStore } from '../runs/store/run-store.ts';
import { openBanStore } from '../source/store/source-state.ts';
import { WorkerRegistry } from '../worker/store/worker-registry.ts';
import { openPoster } from '../runs/report/post-report.ts';
import { RunCosts } from '../runs/run-costs.ts';
import type { MetricsRegistry } from '../worker/metrics/metrics-registry.ts';
import type { WorkMetrics } from '../worker/metrics/work-metrics.ts';
import { JobWorker } from '../worker/job-worker.ts';
import type { BaseOptions } from './base.ts';
import { openStatusSource } from './reader.ts';
import { openMetrics, openServices, type Services } from './services.ts';
import { composeStages } from './stages.ts';

export interface App extends Services, AsyncDisposable {
  readonly workers: WorkerRegistry;
  readonly jobs: JobDeps;
  /** This process's own workers; idle until started. */
  readonly jobWorker: JobWorker;
  /** How the mirror stands. */
  readonly status: StatusStore;
  /** All metrics of this process. */
  readonly metrics: () => MetricsRegistry;
}

export interface AppOptions extends BaseOptions {
  /** Default: the source client's own. */
  readonly sourceLimits?: SourceDeps['limits'] | undefined;
}

/**
 * @throws UnreachableError where a configured service stays away for a minute
 * @throws PermanentError where one is there but cannot be used
 */
export async function openApp(options: AppOptions): Promise<App> {
  await using stack = new AsyncDisposableStack();
  const services = await openServices(options, stack);
  const { config, warehouse, queues, log } = services;
  const jobs = openJobDeps(services, options.sourceLimits, stack);
  const workers = new WorkerRegistry(warehouse.db);
  const jobWorker = stack.use(
    new JobWorker({
      queues,
      workers,
      jobs,
      forget: async () => {
        const forgotten = await forgetHistory(warehouse.db, config.historyRetention);
        if (forgotten.runs + forgotten.nightlyLists > 0) log.info({ ...forgotten }, 'Old runs forgotten');
      },
      schedules: { nightly: jobs.schedule, audit: { pattern: config.auditSchedule, tz: config.scheduleTz } },
    }),
  );
  const owned = stack.move();
  return {
    ...services,
    workers,
    jobs,
    metrics: openMetrics(services),
    jobWorker,
    status: openStatusSource(warehouse, config),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

function openJobDeps(services: Services, limits: SourceDeps['limits'], stack: AsyncDisposableStack): JobDeps {
  const { config, log, warehouse, state, queues, workMetrics } = services;
  const { db } = warehouse;
  const { sourceUrl, sourceExportConcurrency } = config;
  const { nightlyParties, nightlyExportsMax, nightlyAuditShare, nightlyWindow } = config;
  const schedule = { pattern: config.schedule, tz: config.scheduleTz };
  const meter = new CostMeter(workMetrics);
  const sourceDeps = { rate: state, bans: openBanStore(db), observer: meter, log, limits };
  const source = sourceUrl && stack.use(openSource({ ...config, sourceUrl }, sourceDeps));
  const rowPool = stack.use(new RowPool());
  const { holder } = stack.use(new Presence(warehouse.pool));
  const asked = sourceUrl && { id: sourceIdOf(sourceUrl), url: shownUrl(sourceUrl) };
  return {
    db,
    stages: composeStages({ ...services, source, rowPool, holder }),
    runs: new RunStore(db, asked?.url, (ended) => workMetrics.onRun(ended)),
    source: asked,
    completeness: () => readCompleteness(db),
    nightly: new NightlyStore(db),
    plans: new NightlyPlans(db),
    queue: queues,
    progress: stack.use(new ProgressHints(state, (lines) => workMetrics.onProgress(lines))),
    costs: stack.use(new RunCosts({ meter, db, log })),
    notices: openNotices(config, workMetrics),
    nightlyParties,
    nightlyExportsMax,
    nightlyAuditShare,
    nightlyWindow,
    sourceExportConcurrency,
    schedule,
    log,
  };
}

/** Posts a notice to NOTIFY_URL, and counts when that is refused. */
function openNotices(config: Config, metrics: WorkMetrics): JobDeps['notices'] {
  const { notifyUrl, notifyOn: wanted, notifySecret: secret, notifyFormat: format } = config;
  if (notifyUrl === undefined) return undefined;
  const post = openPoster(notifyUrl, { version: version(), secret, format });
  return {
    wanted,
    post: async (notice) => {
      try {
        await post(notice);
      } catch (error) {
        metrics.onNotifyFailure();
        throw error;
      }
    },
  };
}
