/**
 * The composition root: builds everything a command needs from the configuration, in order, and takes it
 * down last-in first-out. Whatever has no URL configured is embedded.
 */
import { join } from 'node:path';
import { ProgressHints } from '../runs/progress/progress-hints.ts';
import type { JobDeps } from '../runs/job.ts';
import type { StatusStore } from '../api/http/ports.ts';
import type { Config } from '../config/environment.ts';
import { version } from '../core/version.ts';
import { RowPool } from '../export/read/row-pool.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import { openObjectStore } from '../objects/open-store.ts';
import { openPostgresBackend, openRedisBackend } from '../queue/backends.ts';
import { Queues } from '../queue/queues.ts';
import { CostMeter } from '../source/cost-meter.ts';
import { openSource, type SourceDeps } from '../source/source-client.ts';
import { Presence } from '../postgres/presence.ts';
import { shownUrl, sourceIdOf } from '../postgres/identity.ts';
import { readCompleteness } from '../runs/store/completeness.ts';
import { forgetHistory } from '../runs/store/history.ts';
import { NightlyPlans } from '../runs/store/nightly/nightly-plans.ts';
import { NightlyStore } from '../runs/store/nightly/nightly-store.ts';
import { RunLogs } from '../runs/run-logs.ts';
import { appendLines } from '../runs/store/run-log-store.ts';
import { RunStore } from '../runs/store/run-store.ts';
import { openBanStore } from '../source/store/source-state.ts';
import { WorkerRegistry } from '../worker/store/worker-registry.ts';
import { openPoster } from '../runs/report/post-report.ts';
import { type BaseOptions, openBase } from './base.ts';
import { untilReachable } from './reachable.ts';
import { RunCosts } from '../runs/run-costs.ts';
import { MetricsRegistry } from '../worker/metrics/metrics-registry.ts';
import { RunMetrics } from '../worker/metrics/run-metrics.ts';
import { readRunFacts } from '../runs/store/run-facts.ts';
import { nextScheduledMs, type Schedule } from '../runs/nightly/schedule.ts';
import { objectsAt } from './data-dir.ts';
import { composeStages } from './stages.ts';
import { openStatusSource } from './status-source.ts';
import { openMetrics } from './open-metrics.ts';
import { openTracing } from '../worker/tracing.ts';
import { WorkMetrics } from '../worker/metrics/work-metrics.ts';
import { SHUTDOWN_GRACE_MS, JobWorker } from '../worker/job-worker.ts';

type Services = Awaited<ReturnType<typeof openServices>>;

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
  const { config, registry, warehouse, queues, log } = services;
  const { db } = warehouse;
  const schedule = { pattern: config.schedule, tz: config.scheduleTz };
  const runMetrics = new RunMetrics(registry, {
    read: () => readRunFacts(db),
    nextMs: () => nextScheduledMs(schedule, Date.now()),
    log,
  });
  const metrics = openMetrics(services, registry, stack);
  const jobs = openJobDeps(services, { runMetrics, schedule, limits: options.sourceLimits }, stack);
  const workers = new WorkerRegistry(db);
  const jobWorker = new JobWorker({
    queues,
    workers,
    jobs,
    forget: async () => {
      const forgotten = await forgetHistory(db, config.historyRetention);
      if (forgotten.runs + forgotten.nightlyLists > 0) log.info({ ...forgotten }, 'Old runs forgotten');
    },
    schedules: { nightly: schedule, audit: { pattern: config.auditSchedule, tz: config.scheduleTz } },
  });
  stack.use(jobWorker);
  const status = openStatusSource(warehouse, config);
  const owned = stack.move();
  return {
    ...services,
    workers,
    jobs,
    metrics,
    jobWorker,
    status,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

async function openServices(options: AppOptions, stack: AsyncDisposableStack) {
  const { config } = options;
  const { prefix, ...base } = await openBase(options, stack);
  const registry = new MetricsRegistry();
  const workMetrics = new WorkMetrics(registry);
  const tracing = await openTracing(config.ambient, options.log);
  if (tracing !== undefined) stack.use(tracing);
  const telemetry = tracing?.telemetry;
  const onError = (error: Error): void => options.log.debug({ err: error }, 'Redis connection failed');
  const backend = await untilReachable('queues', options, () =>
    config.redisUrl === undefined
      ? openPostgresBackend({ url: base.databaseUrl, telemetry })
      : openRedisBackend({ url: config.redisUrl.href, prefix, telemetry, onError }),
  );
  const queues = new Queues({
    backend,
    prefix,
    log: options.log,
    onJob: (report) => workMetrics.onJob(report),
  });
  stack.defer(() => queues.close(SHUTDOWN_GRACE_MS));
  const log = stack.use(new RunLogs((lines) => appendLines(base.warehouse.db, lines))).tee(options.log);
  const store = stack.use(await openStore(options));
  return { ...base, config, log, store, queues, registry, workMetrics };
}

function openJobDeps(
  services: Services,
  {
    runMetrics,
    schedule,
    limits,
  }: { runMetrics: RunMetrics; schedule: Schedule; limits: SourceDeps['limits'] },
  stack: AsyncDisposableStack,
): JobDeps {
  const { config, log, warehouse, state, queues, workMetrics } = services;
  const { db } = warehouse;
  const { sourceUrl, nightlyParties, nightlyExportsMax, nightlyAuditShare } = config;
  const meter = new CostMeter(workMetrics);
  const source =
    sourceUrl &&
    stack.use(
      openSource(
        { ...config, sourceUrl },
        { rate: state, bans: openBanStore(db), observer: meter, log, limits },
      ),
    );
  const rowPool = stack.use(new RowPool());
  const { holder } = stack.use(new Presence(warehouse.pool));
  const asked = sourceUrl && { id: sourceIdOf(sourceUrl), url: shownUrl(sourceUrl) };
  return {
    db,
    stages: composeStages({ ...services, source, rowPool, holder }),
    runs: new RunStore(db, asked?.url, (ended) => runMetrics.onRun(ended)),
    source: asked,
    completeness: () => readCompleteness(db),
    nightly: new NightlyStore(db),
    plans: new NightlyPlans(db),
    queue: queues,
    progress: stack.use(new ProgressHints(state, (lines) => workMetrics.onProgress(lines))),
    costs: stack.use(new RunCosts({ meter, db, log })),
    notices: openNotices(config, runMetrics),
    nightlyParties,
    nightlyExportsMax,
    nightlyAuditShare,
    nightlyWindowMs: config.nightlyWindow,
    schedule,
    exportConcurrency: config.sourceExportConcurrency,
    log,
  };
}

/** Posts a notice to NOTIFY_URL, and counts when that is refused. */
function openNotices(
  { notifyUrl, notifyOn: wanted, notifySecret: secret, notifyFormat: format }: Config,
  metrics: RunMetrics,
): JobDeps['notices'] {
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

/** Where objects and the lake are; nothing else has to run for them to be read. */
export async function openStore({
  config,
  reachableMaxMs,
}: Pick<AppOptions, 'config' | 'reachableMaxMs'>): Promise<ObjectStore> {
  return openObjectStore({
    // Half of it: whoever waits shorter than a minute wants to hear why.
    patienceMs: reachableMaxMs === undefined ? undefined : reachableMaxMs / 2,
    url: objectsAt(config),
    spoolDir: join(config.dataDir, 'spool'),
    ambient: config.ambient,
  });
}
