/**
 * Prometheus metrics of the work in this process: what the source was asked and what the work has done.
 * Names are stable and documented in docs/metrics.md; labels are of small fixed sets.
 */
import type { ProgressLine } from '../../runs/progress/progress-line.ts';
import { RateMeter } from '../../runs/progress/rate-meter.ts';
import { QUEUE_NAMES } from '../../queue/backend.ts';
import type { JobReport } from '../../queue/queue-worker.ts';
import type { RequestReport, SourceObserver, WaitReport } from '../../source/ports.ts';
import type { MetricsRegistry } from './metrics-registry.ts';

const REQUEST_SECONDS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300];
const JOB_SECONDS = [0.1, 0.5, 1, 5, 15, 60, 300, 1_800, 7_200, 28_800];
const ROUTES = ['parties', 'checkpoints', 'export'];
/** A task that was not heard of for this long is over. */
const TASK_KEPT_MS = 60_000;
/** Labels come from code, which names few; this keeps it so. */
const TASKS_MAX = 32;

interface Task extends Pick<ProgressLine, 'unit' | 'done' | 'total'> {
  readonly rate: RateMeter;
  readonly atMs: number;
}

export class WorkMetrics implements SourceObserver {
  readonly #requests;
  readonly #retries;
  readonly #bytes;
  readonly #waits;
  readonly #waited;
  readonly #requestSeconds;
  readonly #jobs;
  readonly #jobSeconds;
  readonly #tasks = new Map<string, Task>();

  constructor(registry: MetricsRegistry) {
    this.#requests = registry.counter('source_requests', 'Requests to the source', 'route', 'status');
    this.#retries = registry.counter(
      'source_retries',
      'Requests to the source that were sent again',
      'route',
    );
    this.#bytes = registry.counter('source_received_bytes', 'Bodies of the source, over the wire', 'route');
    this.#waits = registry.counter('source_waits', 'Waits before a request to the source', 'route', 'reason');
    this.#waited = registry.counter('source_wait_seconds', 'The same, in seconds', 'route', 'reason');
    this.#requestSeconds = registry.histogram(
      'source_request_seconds',
      'Requests to the source',
      REQUEST_SECONDS,
      'route',
    );
    this.#jobs = registry.counter('jobs', 'Deliveries of jobs that were worked', 'queue', 'outcome');
    this.#jobSeconds = registry.histogram('job_seconds', 'Deliveries of jobs', JOB_SECONDS, 'queue');
    this.#beginAtZero();
    this.#addTasks(registry);
  }

  onRequest(report: RequestReport): void {
    const { route, status = 'none', bytes, durationMs, attempt } = report;
    this.#requests.inc({ route, status });
    this.#bytes.inc({ route }, bytes);
    if (attempt > 1) this.#retries.inc({ route });
    this.#requestSeconds.observe({ route }, durationMs / 1_000);
  }

  onWait({ route, reason, waitMs }: WaitReport): void {
    if (waitMs <= 0) return;
    this.#waits.inc({ route, reason });
    this.#waited.inc({ route, reason }, waitMs / 1_000);
  }

  onJob({ queue, outcome, durationMs }: JobReport): void {
    this.#jobs.inc({ queue, outcome });
    this.#jobSeconds.observe({ queue }, durationMs / 1_000);
  }

  onProgress(lines: readonly ProgressLine[]): void {
    const atMs = performance.now();
    for (const { label, unit, done, total } of lines) {
      const known = this.#tasks.get(label);
      if (known === undefined && this.#tasks.size >= TASKS_MAX) continue;
      const rate = known?.rate ?? new RateMeter();
      rate.add(BigInt(done), atMs);
      this.#tasks.set(label, { unit, done, total, rate, atMs });
    }
  }

  /** A counter that begins with its first event hides that event from a rate. */
  #beginAtZero(): void {
    for (const route of ROUTES) {
      for (const counter of [this.#retries, this.#bytes]) counter.inc({ route }, 0);
      for (const reason of ['rate', 'ban', 'retry'])
        for (const counter of [this.#waits, this.#waited]) counter.inc({ route, reason }, 0);
    }
    for (const queue of QUEUE_NAMES)
      for (const outcome of ['done', 'failed']) this.#jobs.inc({ queue, outcome }, 0);
  }

  #addTasks(registry: MetricsRegistry): void {
    const labels = ['task', 'unit'];
    const finished = registry.gauge('progress_done', 'What a task in work has done', ...labels);
    const expected = registry.gauge('progress_expected', 'What it has to do, where that is known', ...labels);
    const perSecond = registry.gauge('progress_per_second', 'Its present rate', ...labels);
    registry.beforeRead(async () => {
      for (const gauge of [finished, expected, perSecond]) gauge.reset();
      for (const [task, { unit, done, total, rate, atMs }] of this.#tasks) {
        if (performance.now() - atMs > TASK_KEPT_MS) {
          this.#tasks.delete(task);
          continue;
        }
        finished.set({ task, unit }, Number(done));
        if (total !== undefined) expected.set({ task, unit }, Number(total));
        perSecond.set({ task, unit }, rate.perSecond);
      }
    });
  }
}
