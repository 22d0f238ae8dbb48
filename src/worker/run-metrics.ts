/**
 * Prometheus metrics of runs: those that end in this process are counted, how the last of each kind ended is read
 * from the mirror, so that every process tells the same.
 */
import type { Registry } from 'prom-client';
import type { Log } from '../core/log.ts';
import { sharedLoad } from '../core/shared-load.ts';
import type { Verdict } from '../core/verdict.ts';
import { RUN_KINDS } from '../runs/run-document.ts';
import type { RunFacts } from '../runs/store/run-facts.ts';
import type { EndedRun } from '../runs/store/run-store.ts';
import type { MetricsSource } from './meters.ts';
import { PrefixedRegistry } from './prefixed-registry.ts';

const VERDICTS: readonly Verdict[] = ['complete', 'incomplete', 'suspicious', 'failed'];
const RUN_SECONDS = [1, 5, 15, 60, 300, 900, 3_600, 7_200, 14_400, 28_800, 57_600];
/** However many scrape, the mirror is asked this often. */
const ASKED_MAX_AGE_MS = 5_000;

interface RunMetricsDeps {
  readonly read: () => Promise<RunFacts>;
  /** When the schedule's next nightly run is due, in milliseconds since 1970. */
  readonly nextMs: () => number;
  readonly log: Log;
}

export class RunMetrics implements MetricsSource {
  readonly #deps: RunMetricsDeps;
  readonly #registry = new PrefixedRegistry();
  readonly #ended = this.#registry.counter('runs', 'Runs that ended in this process', 'kind', 'verdict');
  readonly #seconds = this.#registry.histogram(
    'run_duration_seconds',
    'How long they took, waiting included',
    RUN_SECONDS,
    'kind',
  );
  readonly #notifyFailures = this.#registry.counter(
    'notify_failures',
    'Reports that NOTIFY_URL did not take',
  );
  readonly #lastSeconds = this.#registry.gauge(
    'run_last_duration_seconds',
    'How long the last run took',
    'kind',
  );
  readonly #lastComplete = this.#registry.gauge(
    'last_success_timestamp_seconds',
    'When a run last ended complete, since 1970',
    'kind',
  );
  readonly #next = this.#registry.gauge(
    'next_scheduled_timestamp_seconds',
    'When the schedule starts the next run, since 1970',
    'kind',
  );
  readonly #gaps = this.#registry.gauge('known_gaps', 'Gaps of the lists that the source itself has');
  readonly #ask = sharedLoad(() => this.#read(), ASKED_MAX_AGE_MS);

  constructor(deps: RunMetricsDeps) {
    this.#deps = deps;
    // A counter that begins with its first event hides that event from a rate.
    for (const kind of RUN_KINDS) for (const verdict of VERDICTS) this.#ended.inc({ kind, verdict }, 0);
  }

  onRun({ kind, verdict, durationMs }: EndedRun): void {
    this.#ended.inc({ kind, verdict });
    this.#seconds.observe({ kind }, durationMs / 1_000);
  }

  onNotifyFailure(): void {
    this.#notifyFailures.inc();
  }

  async collect(): Promise<Registry> {
    await this.#ask();
    return this.#registry;
  }

  /** A mirror that cannot be read leaves the last values. */
  async #read(): Promise<void> {
    this.#next.set({ kind: 'nightly' }, this.#deps.nextMs() / 1_000);
    try {
      const { kinds, gaps } = await this.#deps.read();
      this.#gaps.set(gaps);
      for (const { kind, durationSeconds, completeAtSeconds } of kinds) {
        if (durationSeconds !== null) this.#lastSeconds.set({ kind }, durationSeconds);
        if (completeAtSeconds !== null) this.#lastComplete.set({ kind }, completeAtSeconds);
      }
    } catch (error) {
      this.#deps.log.debug({ err: error }, 'Metrics of runs not read');
    }
  }
}
