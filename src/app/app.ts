/**
 * The composition root: builds everything that a command needs, in order, and closes it
 * in reverse order. A service without a configured URL is embedded.
 */
import { sharedLoad } from '../concurrency/shared-load.ts';
import { RowPool } from '../exports/download/row-pool.ts';
import { LakeStore } from '../lake/store/lake-store.ts';
import { shownUrl, sourceIdOf } from '../postgres/identity.ts';
import type { RotatingSecret } from '../network/rotating-secret.ts';
import { LivenessLock } from '../postgres/liveness-lock.ts';
import { Queues } from '../queue/queues.ts';
import { openPostgresBackend } from '../queue/postgres-backend.ts';
import { openRedisBackend } from '../queue/redis-backend.ts';
import type { JobDeps } from '../runs/job.ts';
import { ProgressHints } from '../runs/progress.ts';
import { openPoster } from '../runs/notices.ts';
import { RunCosts } from '../runs/store/run-costs.ts';
import { readCompleteness } from '../status/store/completeness.ts';
import { NightlyStore } from '../runs/store/nightly/nightly-store.ts';
import { readRunFacts } from '../runs/store/run-facts.ts';
import { appendLines, RunLogs } from '../runs/store/run-logs.ts';
import { RunStore } from '../runs/store/run-store.ts';
import { CostMeter } from '../source/cost-meter.ts';
import {
  openSource,
  type Source,
  type SourceCredentials,
  type SourceDeps,
} from '../source/source-client.ts';
import { openBanStore } from '../source/store/source-state.ts';
import { JobWorker, SHUTDOWN_GRACE_MS } from '../worker/job-worker.ts';
import {
  addReadMetrics,
  type Probe,
  WorkMetrics,
} from '../observability/metrics.ts';
import { WorkerRegistry } from '../observability/store/worker-registry.ts';
import { openMetricsPush } from '../observability/push-metrics.ts';
import { openTracing } from '../observability/tracing.ts';
import { OwnedStore } from '../storage/owned-store.ts';
import { postOptionsOf } from './test-notice.ts';
import {
  type BaseOptions,
  openBase,
  openStatusSource,
  untilReachable,
} from './base.ts';
import { openStore, scratchDirOf } from './data-dir.ts';
import { readNights } from './nights.ts';
import { openOwnership } from './ownership.ts';
import {
  hasSourceCredentials,
  type NeededSecret,
  openApiTokens,
  openSourceCredentials,
  requireAccepted,
} from './rotating-secrets.ts';
import { openSourceProof } from './source-proof.ts';
import { composeStages } from './stages.ts';

/** How long a check of the object store's credentials may take. */
const PROVE_STORE_MS = 30_000;

export interface AppOptions extends BaseOptions {
  /** The limits of the source client; by default, the client's own. */
  readonly sourceLimits?: SourceDeps['limits'] | undefined;
  /**
   * Delay, in milliseconds, before repeating a request that a different node of the
   * source may be able to answer. By default, retries back off.
   */
  readonly askAgainMs?: number | undefined;
}
export type App = Awaited<ReturnType<typeof build>> & AsyncDisposable;

/**
 * Opens everything that a command needs.
 * @throws UnreachableError if a configured service is unreachable for a minute
 * @throws PermanentError if a service is reachable but cannot be used
 */
export async function openApp(options: AppOptions): Promise<App> {
  await using stack = new AsyncDisposableStack();
  const app = await build(options, stack);
  const owned = stack.move();
  return { ...app, [Symbol.asyncDispose]: () => owned.disposeAsync() };
}

async function build(options: AppOptions, stack: AsyncDisposableStack) {
  const services = await openServices(options, stack);
  const { config, log, warehouse, queues, store, work } = services;
  const asked = openAskedSource(services, options, stack);
  const jobs = openJobDeps(services, asked, options, stack);
  const neededSecrets = listNeededSecrets(services, asked);
  const workers = new WorkerRegistry(warehouse.db);
  const { historyRetention } = config;
  const schedules = {
    nightly: jobs.schedule,
    audit: { pattern: config.auditSchedule, tz: config.scheduleTz },
  };
  // Probes for readiness and metrics, each with the smallest possible request.
  const probes: readonly Probe[] = [
    {
      name: 'database',
      check: async () => {
        await warehouse.pool.query('select 1');
        // A connection that was opened before the secret changed may still work.
        requireAccepted(neededSecrets, 'database');
      },
    },
    {
      name: 'queues',
      check: async () => {
        await queues.probe();
        requireAccepted(neededSecrets, 'queues');
      },
    },
    {
      name: 'objects',
      check: async (signal) => {
        await store.head('probe/readyz', signal);
        requireAccepted(neededSecrets, 'objects');
      },
    },
  ];
  // Only the secrets are checked here: a source that is away for a night is normal.
  const sourceProbe: Probe = {
    name: 'source',
    check: async () => requireAccepted(neededSecrets, 'source'),
  };
  // The metrics cover the whole process. A short command does not need them, so the
  // expensive part is added on first use.
  const measured = {
    queues,
    probes,
    dataDir: config.dataDir,
    log,
    readRuns: () => readRunFacts(warehouse.db),
    readNights: () => readNights(warehouse.db, config),
  };
  const metrics = sharedLoad(async () => addReadMetrics(work, measured));
  let isServed = false;
  const push = openMetricsPush(config.ambient, log);
  // Runs at shutdown, after the last job but while the stores that it reads are still
  // open.
  stack.defer(async () => {
    if (push !== undefined && !isServed) await push(await metrics());
  });
  /** This process's own worker, which does nothing until it is started. */
  const jobWorker = stack.use(
    new JobWorker({ queues, workers, jobs, historyRetention, schedules }),
  );
  return {
    ...services,
    jobs,
    /** The schedules that this process was configured with. */
    schedules,
    workers,
    jobWorker,
    /**
     * The secrets whose refusal makes the process unhealthy or, if it cannot continue
     * without them, ends it.
     */
    neededSecrets,
    /**
     * Returns the API tokens that are currently valid; undefined if no token is required.
     */
    readTokens: openApiTokens(config, log),
    probes: [...probes, sourceProbe],
    /**
     * Returns the metrics for a caller that serves them. A process whose metrics are
     * served does not push them at shutdown.
     */
    metrics: () => {
      isServed = true;
      return metrics();
    },
    status: openStatusSource(warehouse, config),
  };
}

type Services = Awaited<ReturnType<typeof openServices>>;

async function openServices(options: AppOptions, stack: AsyncDisposableStack) {
  const { config } = options;
  const base = await openBase(options, stack);
  const { databaseUrl, login, redisLogin, prefix, warehouse } = base;
  const work = new WorkMetrics();
  const telemetry = stack.use(
    await openTracing(config.ambient, options.log),
  )?.telemetry;
  const onError = (error: Error): void =>
    options.log.debug({ err: error }, 'Redis connection failed');
  const backend = await untilReachable('queues', options, () =>
    config.redisUrl === undefined
      ? openPostgresBackend({ url: databaseUrl, login, telemetry })
      : openRedisBackend({
          url: config.redisUrl.href,
          login: redisLogin,
          prefix,
          telemetry,
          onError,
        }),
  );
  const queues = new Queues({
    backend,
    prefix,
    log: options.log,
    onJob: work.onJob,
  });
  stack.defer(() => queues.close(SHUTDOWN_GRACE_MS));
  // Lines that belong to a run are also stored in the database.
  const log = stack
    .use(new RunLogs((lines) => appendLines(warehouse.db, lines)))
    .tee(options.log);
  const anyStore = stack.use(await openStore({ ...options, mirror: prefix }));
  const catalog = { objects: anyStore, db: warehouse.db };
  const ownership = openOwnership(catalog);
  const store = new OwnedStore(anyStore, (signal) => ownership.require(signal));
  const lake = {
    repository: new LakeStore(warehouse.pool),
    objects: store,
    scratchDir: scratchDirOf(config),
    retentionMs: config.lakeRetention,
  };
  return { ...base, config, log, store, ownership, lake, queues, work };
}

/** The source that this process queries, with its credentials and a cost meter. */
interface AskedSource {
  /** Undefined if no source is configured. */
  readonly source: Source | undefined;
  readonly credentials: RotatingSecret<SourceCredentials>;
  /** Adds up what the requests cost. */
  readonly meter: CostMeter;
}

function openAskedSource(
  { config, log, warehouse, state, work }: Services,
  { sourceLimits: limits }: AppOptions,
  stack: AsyncDisposableStack,
): AskedSource {
  const { sourceUrl } = config;
  const meter = new CostMeter(work);
  const credentials = openSourceCredentials(config);
  const deps = {
    rate: state,
    bans: openBanStore(warehouse.db),
    observer: meter,
    log,
    limits,
    credentials,
  };
  const source =
    sourceUrl && stack.use(openSource({ ...config, sourceUrl }, deps));
  return { source, credentials, meter };
}

function listNeededSecrets(
  services: Services,
  { source, credentials }: AskedSource,
): readonly NeededSecret[] {
  const { config, login, redisLogin, queues, store, warehouse } = services;
  const needed: NeededSecret[] = [];
  if (login !== undefined) {
    const what = `the database at ${config.databaseUrl?.place ?? ''}`;
    const prove = () => warehouse.proveLogin();
    needed.push({ secret: login, part: 'database', what, prove });
  }
  if (redisLogin !== undefined) {
    const what = `Redis at ${config.redisUrl?.host ?? ''}`;
    const prove = () => queues.proveLogin();
    needed.push({ secret: redisLogin, part: 'queues', what, prove });
  }
  if (store.secret !== undefined) {
    const prove = async (): Promise<void> => {
      await store.head('probe/readyz', AbortSignal.timeout(PROVE_STORE_MS));
    };
    const what = `the object store ${store.url}`;
    needed.push({ secret: store.secret, part: 'objects', what, prove });
  }
  if (source !== undefined && hasSourceCredentials(config)) {
    const what = `the source at ${config.sourceUrl?.host ?? ''}`;
    const prove = openSourceProof(source.lists, credentials);
    needed.push({ secret: credentials, part: 'source', what, prove });
  }
  return needed;
}

function openJobDeps(
  services: Services,
  { source, meter }: AskedSource,
  { askAgainMs }: AppOptions,
  stack: AsyncDisposableStack,
): JobDeps {
  const { config, log, warehouse, state, queues, work } = services;
  const { db } = warehouse;
  const { sourceUrl, sourceAssets, sourceExportConcurrency } = config;
  const {
    nightlyParties,
    nightlyExportsMax,
    nightlyAuditShare,
    nightlyAuditWithin,
    nightlyWindow,
    nightlyListRows,
  } = config;
  const rowPool = stack.use(new RowPool());
  const { holder } = stack.use(new LivenessLock(warehouse.pool));
  const asked = sourceUrl && {
    id: sourceIdOf(sourceUrl),
    url: shownUrl(sourceUrl),
  };
  const { notifyUrl, notifyOn: wanted } = config;
  const posting = {
    ...postOptionsOf(config),
    onFailure: work.onNotifyFailure,
  };
  return {
    db,
    stages: composeStages({ ...services, source, rowPool, holder, askAgainMs }),
    runs: new RunStore(db, asked?.url, work.onRun),
    source: asked,
    completeness: () => readCompleteness(db),
    nightly: new NightlyStore(db),
    queue: queues,
    progress: stack.use(new ProgressHints(state, work.onProgress)),
    costs: stack.use(new RunCosts({ meter, db, log })),
    notices: notifyUrl && { wanted, post: openPoster(notifyUrl, posting) },
    nightlyParties,
    nightlyExportsMax,
    nightlyAuditShare,
    nightlyAuditWithin,
    nightlyWindow,
    nightlyListRows,
    sourceAssets,
    sourceExportConcurrency,
    schedule: { pattern: config.schedule, tz: config.scheduleTz },
    log,
  };
}
