/** Gauges of the mirror's state and freshness, from the same status as in the console. */
import type { Log } from '../logging/log.ts';
import { VERDICTS } from '../errors/verdict.ts';
import type { MirrorStatus } from '../status/status-summary.ts';
import { parseInstant } from '../time/time.ts';
import type { MetricsRegistry } from './metrics.ts';

interface Sample {
  readonly value: number | string | boolean;
  readonly labels?: Readonly<Record<string, string>>;
}

interface MirrorGauge {
  readonly name: string;
  readonly help: string;
  readonly labelNames?: readonly string[];
  readonly read: (status: MirrorStatus) => readonly Sample[];
}

const COVERAGE_STATES = ['listed', 'wanted', 'covered'] as const;

/** Two names for the same value: the first stays until 1.0 because dashboards use it. */
const AS_OF_NAMES = ['stream_as_of_seconds', 'stream_as_of_timestamp_seconds'];

const GAUGES: readonly MirrorGauge[] = [
  {
    name: 'whole',
    help: '1 if every list and the ledger of every listed party is proven complete',
    read: ({ whole }) => [{ value: whole }],
  },
  {
    name: 'complete',
    help: '1 if what is configured is proven complete',
    read: ({ complete }) => [{ value: complete }],
  },
  {
    name: 'open_doubts',
    help: 'Durable reasons not to say complete',
    read: ({ coverage }) => [{ value: coverage.openDoubts }],
  },
  {
    name: 'ledger_bytes',
    help: 'Plain CSV in the current segments',
    read: ({ ledger }) => [{ value: ledger.bytes }],
  },
  {
    name: 'ledger_set_aside',
    help: 'Ledgers whose export was quarantined',
    read: ({ ledger }) => [{ value: ledger.quarantined }],
  },
  {
    name: 'ledger_segments_not_loaded',
    help: 'Published segments that the warehouse does not hold yet',
    read: ({ ledger }) => [{ value: ledger.notLoaded }],
  },
  {
    name: 'runs_open',
    help: 'Runs queued or running',
    read: ({ openRuns }) => [{ value: openRuns }],
  },
  {
    name: 'ledgers',
    help: 'Ledgers listed, wanted by the configuration, and covered',
    labelNames: ['state'],
    read: ({ coverage }) =>
      COVERAGE_STATES.map((state) => ({
        value: coverage[state],
        labels: { state },
      })),
  },
  {
    name: 'stream_verdict',
    help: "1 for the verdict of the stream's last run",
    labelNames: ['stream', 'verdict'],
    read: ({ streams }) =>
      streams.flatMap((stream) =>
        VERDICTS.map((verdict) => ({
          value: verdict === stream.verdict,
          labels: { stream: stream.name, verdict },
        })),
      ),
  },
  {
    name: 'stream_rows',
    help: 'Rows mirrored',
    labelNames: ['stream'],
    read: ({ streams }) =>
      streams.map(({ name, rows }) => ({
        value: rows,
        labels: { stream: name },
      })),
  },
  ...AS_OF_NAMES.map((name) => ({
    name,
    help: 'The instant up to which it is mirrored, since 1970',
    labelNames: ['stream'],
    read: readAsOf,
  })),
];

/**
 * Returns how far each stream is proven, in seconds since 1970. A stream for which
 * nothing is proven has no sample, because 0 would mean 1970.
 */
function readAsOf({ streams }: MirrorStatus): readonly Sample[] {
  return streams.flatMap((stream): Sample[] => {
    const micros =
      stream.asOfTime === null ? undefined : parseInstant(stream.asOfTime);
    if (micros === undefined) return [];

    const seconds = Number(micros / 1_000n) / 1_000;
    return [{ value: seconds, labels: { stream: stream.name } }];
  });
}

/**
 * Adds the gauges to the registry. They are set on each scrape.
 * @param readStatus may reject; the other metrics of the process are still served
 */
export function addMirrorMetrics(
  registry: MetricsRegistry,
  readStatus: () => Promise<MirrorStatus>,
  log: Log,
): void {
  const gauges = GAUGES.map(({ name, help, labelNames = [], read }) => ({
    gauge: registry.gauge(name, help, ...labelNames),
    read,
  }));

  registry.beforeRead(async () => {
    try {
      const status = await readStatus();

      for (const { gauge, read } of gauges)
        for (const { value, labels = {} } of read(status))
          gauge.set(labels, Number(value));
    } catch (error) {
      log.warn({ err: error }, 'Metrics without the state of the mirror');
    }
  });
}
