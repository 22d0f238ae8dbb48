/**
 * The composition root: builds everything a command needs from the configuration, in order, and takes it
 * down last-in first-out. Whatever has no URL configured is embedded.
 */
import { join } from 'node:path';
import { ProgressHints } from '../runs/progress-hints.ts';
import type { JobDeps } from '../runs/job.ts';
import type { StatusStore } from '../api/http/ports.ts';
import type { Config } from '../config/environment.ts';
import { UsageError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { version } from '../core/version.ts';
import { RowPool } from '../export/read/row-pool.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import { openObjectStore } from '../objects/open-store.ts';
import { openPostgresBackend } from '../queue/postgres-backend.ts';
import type { QueueBackend } from '../queue/backend.ts';
import { Queues } from '../queue/queues.ts';
import { openRedisBackend } from '../queue/redis-backend.ts';
import { CostMeter } from '../source/cost-meter.ts';
import { openSource, type SourceDeps } from '../source/source-client.ts';
import type { ResumeState } from '../state/resume-state.ts';
import { CostStore } from '../runs/store/cost-store.ts';
import type { Warehouse } from '../postgres/database.ts';
import { Presence } from '../postgres/presence.ts';
import { type Identity, shownUrl, sourceIdOf } from '../postgres/identity.ts';
import { readCompleteness } from '../runs/store/completeness.ts';
import { forgetHistory } from '../runs/store/history.ts';
import { NightlyPlans } from '../runs/store/nightly/nightly-plans.ts';
import { NightlyStore } from '../runs/store/nightly/nightly-store.ts';
import { RunLogs } from '../runs/run-logs.ts';
import { RunLogStore } from '../runs/store/run-log-store.ts';
import { RunStore } from '../runs/store/run-store.ts';
import { ScheduledRuns } from '../runs/store/nightly/scheduled-runs.ts';
import { openBanStore } from '../source/store/source-state.ts';
import { WorkerRegistry } from '../worker/store/worker-registry.ts';
import { posterTo } from '../runs/report/post-report.ts';
import { type BaseOptions, openBase } from './base.ts';
import { untilReachable } from './reachable.ts';
import { RunCosts } from '../runs/run-costs.ts';
import { RunMetrics } from '../worker/run-metrics.ts';
import { readRunFacts } from '../runs/store/run-facts.ts';
import { nextScheduledMs, type Schedule } from '../runs/nightly/schedule.ts';
import { objectsAt } from './data-dir.ts';
import { composeStages } from './stages.ts';
import { openStatusSource } from './status-source.ts';
import type { Meters } from '../worker/meters.ts';
import { openMeters } from './open-meters.ts';
import { openTracing, type Tracing } from '../worker/tracing.ts';
import { WorkMetrics } from '../worker/work-metrics.ts';
import { SHUTDOWN_GRACE_MS, JobWorker } from '../worker/job-worker.ts';

export interface App extends AsyncDisposable {
  readonly config: Config;
  readonly log: Log;
  readonly warehouse: Warehouse;
  readonly databaseUrl: string;
  readonly identity: Identity;
  readonly store: ObjectStore;
  readonly state: ResumeState;
  readonly queues: Queues;
  readonly workers: WorkerRegistry;
  readonly runLogs: RunLogStore;
  readonly jobs: JobDeps;
  /** This process's own workers; idle until started. */
  readonly jobWorker: JobWorker;
  /** How the mirror stands. */
  readonly status: StatusStore;
  /** What the work in this process did and cost. */
  readonly metrics: WorkMetrics;
  /** All metrics of this process. */
  readonly meters: () => Meters;
  /** The names of the migrations that were run now. */
  readonly migrated: readonly string[];
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
  const { config } = options;
  await using stack = new AsyncDisposableStack();
  const services = await openServices(options, stack);
  const { warehouse, queues, metrics } = services;
  const { db } = warehouse;
  const runLogs = new RunLogStore(db);
  const log = stack.use(new RunLogs(runLogs)).tee(options.log);
  const store = stack.use(await openStore(options));
  const schedule = { pattern: config.schedule, tz: config.scheduleTz };
  const runMetrics = openRunMetrics(warehouse, schedule, log);
  const meters = openMeters({ config, log, warehouse, queues, store }, [metrics, runMetrics], stack);
  const jobs = openJobDeps({ options, services, runMetrics, schedule, log, store }, stack);
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
  const owned = stack.move();
  return {
    ...services,
    config,
    log,
    store,
    runLogs,
    workers,
    jobs,
    meters,
    jobWorker,
    status: openStatusSource(warehouse, config),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

interface JobParts {
  readonly options: AppOptions;
  readonly services: Services;
  readonly runMetrics: RunMetrics;
  readonly schedule: Schedule;
  readonly log: Log;
  readonly store: ObjectStore;
}

function openJobDeps(parts: JobParts, stack: AsyncDisposableStack): JobDeps {
  const { options, services, runMetrics, schedule, log, store } = parts;
  const { warehouse, state, queues, metrics } = services;
  const { db } = warehouse;
  const { config, sourceLimits: limits } = options;
  const { sourceUrl, nightlyParties, nightlyExportsMax, nightlyAuditShare } = config;
  const meter = new CostMeter(metrics);
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
    stages: composeStages({ config, log, warehouse, store, state, source, rowPool, holder }),
    runs: new RunStore(db, asked?.url, (ended) => runMetrics.onRun(ended)),
    source: asked,
    completeness: () => readCompleteness(db),
    nightly: new NightlyStore(db),
    plans: new NightlyPlans(db),
    scheduled: new ScheduledRuns(db),
    queue: queues,
    progress: stack.use(new ProgressHints(state, (lines) => metrics.onProgress(lines))),
    costs: stack.use(new RunCosts({ meter, store: new CostStore(db), log })),
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

function openRunMetrics({ db }: Warehouse, schedule: Schedule, log: Log): RunMetrics {
  return new RunMetrics({
    read: () => readRunFacts(db),
    nextMs: () => nextScheduledMs(schedule, Date.now()),
    log,
  });
}

/** Posts a notice to NOTIFY_URL, and counts when that is refused. */
function openNotices(
  { notifyUrl, notifyOn: wanted, notifySecret: secret, notifyFormat: format }: Config,
  metrics: RunMetrics,
): JobDeps['notices'] {
  if (notifyUrl === undefined) return undefined;
  const post = posterTo(notifyUrl, { version: version(), secret, format });
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

type Services = Pick<
  App,
  'warehouse' | 'databaseUrl' | 'identity' | 'state' | 'queues' | 'metrics' | 'migrated'
>;

async function openServices(options: AppOptions, stack: AsyncDisposableStack): Promise<Services> {
  const { config, log } = options;
  const { prefix, ...base } = await openBase(options, stack);
  const metrics = new WorkMetrics();
  const tracing = await openTracing(config.ambient, log);
  if (tracing !== undefined) stack.use(tracing);
  const backend = await untilReachable('queues', options, () =>
    openBackend(options, base.databaseUrl, prefix, tracing),
  );
  const queues = new Queues({ backend, prefix, log, onJob: (report) => metrics.onJob(report) });
  stack.defer(() => queues.close(SHUTDOWN_GRACE_MS));
  return { ...base, queues, metrics };
}

/** @throws UsageError where SOURCE_URL is not set */
export function needSource(config: Config): URL {
  if (config.sourceUrl !== undefined) return config.sourceUrl;
  throw new UsageError([
    'SOURCE_URL: not set, and this command asks the source; give the URL of the query service',
  ]);
}

async function openBackend(
  { config, log }: AppOptions,
  databaseUrl: string,
  prefix: string,
  tracing: Tracing | undefined,
): Promise<QueueBackend> {
  const telemetry = tracing?.telemetry;
  if (config.redisUrl === undefined) return openPostgresBackend({ url: databaseUrl, telemetry });
  return openRedisBackend({
    url: config.redisUrl.href,
    prefix,
    telemetry,
    onError: (error) => log.debug({ err: error }, 'Redis connection failed'),
  });
}
