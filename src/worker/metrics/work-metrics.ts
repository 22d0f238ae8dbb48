/**
 * Prometheus metrics of the work in this process: what the source was asked, what jobs and runs came to.
 * Names are stable and documented in docs/metrics.md; labels are of small fixed sets.
 */
import { VERDICTS } from '../../core/verdict.ts';
import { QUEUE_NAMES } from '../../queue/backend.ts';
import type { JobReport } from '../../queue/queue-worker.ts';
import type { ProgressLine } from '../../runs/progress/progress-line.ts';
import { RateMeter } from '../../runs/progress/rate-meter.ts';
import { RUN_KINDS } from '../../runs/run-schema.ts';
import type { EndedRun } from '../../runs/store/run-store.ts';
import type { RequestReport, SourceObserver, WaitReport } from '../../source/ports.ts';
import type { MetricsRegistry } from './metrics-registry.ts';

const REQUEST_SECONDS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300];
const JOB_SECONDS = [0.1, 0.5, 1, 5, 15, 60, 300, 1_800, 7_200, 28_800];
const RUN_SECONDS = [1, 5, 15, 60, 300, 900, 3_600, 7_200, 14_400, 28_800, 57_600];
/** A task that was not heard of for this long is over. */
const TASK_KEPT_MS = 60_000;

interface Task extends Pick<ProgressLine, 'unit' | 'done' | 'total'> {
  readonly rate: RateMeter;
  readonly atMs: number;
}

export class WorkMetrics implements SourceObserver {
  readonly #meters: ReturnType<typeof openMeters>;
  readonly #tasks = new Map<string, Task>();

  constructor(registry: MetricsRegistry) {
    this.#meters = openMeters(registry);
    showTasks(registry, this.#tasks);
  }

  onRequest(report: RequestReport): void {
    const { route, status = 'none', bytes, durationMs, attempt } = report;
    this.#meters.requests.inc({ route, status });
    this.#meters.bytes.inc({ route }, bytes);
    if (attempt > 1) this.#meters.retries.inc({ route });
    this.#meters.requestSeconds.observe({ route }, durationMs / 1_000);
  }

  onWait({ route, reason, waitMs }: WaitReport): void {
    if (waitMs <= 0) return;
    this.#meters.waits.inc({ route, reason });
    this.#meters.waited.inc({ route, reason }, waitMs / 1_000);
  }

  onJob({ queue, outcome, durationMs }: JobReport): void {
    this.#meters.jobs.inc({ queue, outcome });
    this.#meters.jobSeconds.observe({ queue }, durationMs / 1_000);
  }

  onRun({ kind, verdict, durationMs }: EndedRun): void {
    this.#meters.runs.inc({ kind, verdict });
    this.#meters.runSeconds.observe({ kind }, durationMs / 1_000);
  }

  onNotifyFailure(): void {
    this.#meters.notifyFailures.inc();
  }

  onProgress(lines: readonly ProgressLine[]): void {
    const atMs = performance.now();
    for (const { label, unit, done, total } of lines) {
      const rate = this.#tasks.get(label)?.rate ?? new RateMeter();
      rate.add(BigInt(done), atMs);
      this.#tasks.set(label, { unit, done, total, rate, atMs });
    }
  }
}

function openMeters(registry: MetricsRegistry) {
  const asked = 'Requests to the source';
  const meters = {
    requests: registry.counter('source_requests', asked, 'route', 'status'),
    retries: registry.counter('source_retries', 'Requests that were sent again', 'route'),
    bytes: registry.counter('source_received_bytes', 'Bodies of the source, over the wire', 'route'),
    waits: registry.counter('source_waits', 'Waits before a request to the source', 'route', 'reason'),
    waited: registry.counter('source_wait_seconds', 'The same, in seconds', 'route', 'reason'),
    requestSeconds: registry.histogram('source_request_seconds', asked, REQUEST_SECONDS, 'route'),
    jobs: registry.counter('jobs', 'Deliveries of jobs that were worked', 'queue', 'outcome'),
    jobSeconds: registry.histogram('job_seconds', 'Deliveries of jobs', JOB_SECONDS, 'queue'),
    runs: registry.counter('runs', 'Runs that ended in this process', 'kind', 'verdict'),
    runSeconds: registry.histogram('run_duration_seconds', 'Runs, waiting included', RUN_SECONDS, 'kind'),
    notifyFailures: registry.counter('notify_failures', 'Reports that NOTIFY_URL did not take'),
  };
  // A counter that begins with its first event hides that event from a rate.
  for (const route of ['parties', 'checkpoints', 'export']) {
    for (const counter of [meters.retries, meters.bytes]) counter.inc({ route }, 0);
    for (const reason of ['rate', 'ban', 'retry'])
      for (const counter of [meters.waits, meters.waited]) counter.inc({ route, reason }, 0);
  }
  for (const queue of QUEUE_NAMES)
    for (const outcome of ['done', 'failed']) meters.jobs.inc({ queue, outcome }, 0);
  for (const kind of RUN_KINDS) for (const verdict of VERDICTS) meters.runs.inc({ kind, verdict }, 0);
  return meters;
}

function showTasks(registry: MetricsRegistry, tasks: Map<string, Task>): void {
  const labels = ['task', 'unit'];
  const finished = registry.gauge('progress_done', 'What a task in work has done', ...labels);
  const expected = registry.gauge('progress_expected', 'What it has to do, where that is known', ...labels);
  const perSecond = registry.gauge('progress_per_second', 'Its present rate', ...labels);
  registry.beforeRead(async () => {
    for (const gauge of [finished, expected, perSecond]) gauge.reset();
    for (const [task, { unit, done, total, rate, atMs }] of tasks) {
      if (performance.now() - atMs > TASK_KEPT_MS) {
        tasks.delete(task);
        continue;
      }
      finished.set({ task, unit }, Number(done));
      if (total !== undefined) expected.set({ task, unit }, Number(total));
      perSecond.set({ task, unit }, rate.perSecond);
    }
  });
}
