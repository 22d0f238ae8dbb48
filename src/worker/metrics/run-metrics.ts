/**
 * Prometheus metrics of runs: those that end in this process are counted, how the last of each kind ended is read
 * from the mirror, so that every process tells the same.
 */
import type { Log } from '../../core/log.ts';
import { sharedLoad } from '../../core/shared-load.ts';
import { VERDICTS } from '../../core/verdict.ts';
import { RUN_KINDS } from '../../runs/run-schema.ts';
import type { RunFacts } from '../../runs/store/run-facts.ts';
import type { EndedRun } from '../../runs/store/run-store.ts';
import type { MetricsRegistry } from './metrics-registry.ts';

const RUN_SECONDS = [1, 5, 15, 60, 300, 900, 3_600, 7_200, 14_400, 28_800, 57_600];
/** However many scrape, the mirror is asked this often. */
const ASKED_MAX_AGE_MS = 5_000;

interface RunMetricsDeps {
  readonly read: () => Promise<RunFacts>;
  /** When the schedule's next nightly run is due, in milliseconds since 1970. */
  readonly nextMs: () => number;
  readonly log: Log;
}

export class RunMetrics {
  readonly #ended;
  readonly #seconds;
  readonly #notifyFailures;

  constructor(registry: MetricsRegistry, deps: RunMetricsDeps) {
    this.#ended = registry.counter('runs', 'Runs that ended in this process', 'kind', 'verdict');
    this.#seconds = registry.histogram(
      'run_duration_seconds',
      'How long they took, waiting included',
      RUN_SECONDS,
      'kind',
    );
    this.#notifyFailures = registry.counter('notify_failures', 'Reports that NOTIFY_URL did not take');
    // A counter that begins with its first event hides that event from a rate.
    for (const kind of RUN_KINDS) for (const verdict of VERDICTS) this.#ended.inc({ kind, verdict }, 0);
    addLastRuns(registry, deps);
  }

  onRun({ kind, verdict, durationMs }: EndedRun): void {
    this.#ended.inc({ kind, verdict });
    this.#seconds.observe({ kind }, durationMs / 1_000);
  }

  onNotifyFailure(): void {
    this.#notifyFailures.inc();
  }
}

function addLastRuns(registry: MetricsRegistry, { read, nextMs, log }: RunMetricsDeps): void {
  const lastSeconds = registry.gauge('run_last_duration_seconds', 'How long the last run took', 'kind');
  const lastComplete = registry.gauge(
    'last_success_timestamp_seconds',
    'When a run last ended complete, since 1970',
    'kind',
  );
  const next = registry.gauge(
    'next_scheduled_timestamp_seconds',
    'When the schedule starts the next run, since 1970',
    'kind',
  );
  const knownGaps = registry.gauge('known_gaps', 'Gaps of the lists that the source itself has');
  const update = async (): Promise<void> => {
    next.set({ kind: 'nightly' }, nextMs() / 1_000);
    try {
      const { kinds, gaps } = await read();
      knownGaps.set(gaps);
      for (const { kind, durationSeconds, completeAtSeconds } of kinds) {
        if (durationSeconds !== null) lastSeconds.set({ kind }, durationSeconds);
        if (completeAtSeconds !== null) lastComplete.set({ kind }, completeAtSeconds);
      }
    } catch (error) {
      // A mirror that cannot be read leaves the last values.
      log.debug({ err: error }, 'Metrics of runs not read');
    }
  };
  registry.beforeRead(sharedLoad(update, ASKED_MAX_AGE_MS));
}
