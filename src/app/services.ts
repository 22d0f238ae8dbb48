/** What every process of the mirror works with, built in order. Whatever has no URL configured is embedded. */
import { join } from 'node:path';
import type { Probe } from '../api/http/ports.ts';
import type { Config } from '../config/environment.ts';
import type { Log } from '../core/log.ts';
import type { LakeDeps } from '../lake/build/build.ts';
import { LakeStore } from '../lake/store/lake-store.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import { openObjectStore } from '../objects/open-store.ts';
import { openPostgresBackend, openRedisBackend } from '../queue/redis-and-postgres.ts';
import { Queues } from '../queue/queues.ts';
import { nextScheduledMs } from '../runs/nightly/scheduled-times.ts';
import { RunLogs } from '../runs/run-logs.ts';
import { readRunFacts } from '../runs/store/run-facts.ts';
import { appendLines } from '../runs/store/run-log-store.ts';
import { SHUTDOWN_GRACE_MS } from '../worker/job-worker.ts';
import { MetricsRegistry } from '../worker/metrics/metrics-registry.ts';
import { addReadMetrics } from '../worker/metrics/read-metrics.ts';
import { WorkMetrics } from '../worker/metrics/work-metrics.ts';
import { openTracing } from '../worker/tracing.ts';
import { type Base, type BaseOptions, openBase, untilReachable } from './base.ts';
import { objectsAt, scratchDirOf } from './data-dir.ts';

export interface Services extends Base {
  readonly config: Config;
  /** Also keeps the lines of runs. */
  readonly log: Log;
  readonly store: ObjectStore;
  readonly lake: LakeDeps;
  readonly queues: Queues;
  readonly registry: MetricsRegistry;
  readonly workMetrics: WorkMetrics;
}

export async function openServices(options: BaseOptions, stack: AsyncDisposableStack): Promise<Services> {
  const { config } = options;
  const base = await openBase(options, stack);
  const { prefix, warehouse } = base;
  const registry = new MetricsRegistry();
  const workMetrics = new WorkMetrics(registry);
  const telemetry = stack.use(await openTracing(config.ambient, options.log))?.telemetry;
  const onError = (error: Error): void => options.log.debug({ err: error }, 'Redis connection failed');
  const backend = await untilReachable('queues', options, () =>
    config.redisUrl === undefined
      ? openPostgresBackend({ url: base.databaseUrl, telemetry })
      : openRedisBackend({ url: config.redisUrl.href, prefix, telemetry, onError }),
  );
  const onJob: WorkMetrics['onJob'] = (report) => workMetrics.onJob(report);
  const queues = new Queues({ backend, prefix, log: options.log, onJob });
  stack.defer(() => queues.close(SHUTDOWN_GRACE_MS));
  const log = stack.use(new RunLogs((lines) => appendLines(warehouse.db, lines))).tee(options.log);
  const store = stack.use(await openStore(options));
  const lake = {
    repository: new LakeStore(warehouse.pool),
    objects: store,
    scratchDir: scratchDirOf(config),
    retentionMs: config.lakeRetention,
  };
  return { ...base, config, log, store, lake, queues, registry, workMetrics };
}

/** Where objects and the lake are; nothing else has to run for them to be read. */
export async function openStore({
  config,
  reachableMaxMs,
}: Pick<BaseOptions, 'config' | 'reachableMaxMs'>): Promise<ObjectStore> {
  return openObjectStore({
    // Half of it: whoever waits shorter than a minute wants to hear why.
    patienceMs: reachableMaxMs === undefined ? undefined : reachableMaxMs / 2,
    url: objectsAt(config),
    spoolDir: join(config.dataDir, 'spool'),
    ambient: config.ambient,
  });
}

/** All metrics of this process. A command that ends soon asks for none of it, so the costly part is added at the first call. */
export function openMetrics(app: Services): () => MetricsRegistry {
  const { config, log, queues, registry, warehouse } = app;
  let isWhole = false;
  return () => {
    if (!isWhole) {
      const schedule = { pattern: config.schedule, tz: config.scheduleTz };
      addReadMetrics(registry, {
        queues,
        probes: storeProbes(app),
        dataDir: config.dataDir,
        readRuns: () => readRunFacts(warehouse.db),
        nextMs: () => nextScheduledMs(schedule, Date.now()),
        log,
      });
    }
    isWhole = true;
    return registry;
  };
}

/** Each store asked the smallest question there is: for readiness and for metrics. */
export function storeProbes({ warehouse, queues, store }: Services): readonly Probe[] {
  return [
    { name: 'database', check: () => warehouse.pool.query('select 1') },
    { name: 'queues', check: () => queues.counts('export') },
    { name: 'objects', check: (signal) => store.head('probe/readyz', signal) },
  ];
}
