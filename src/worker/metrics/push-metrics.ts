/**
 * Metrics to an OpenTelemetry collector: those of `/metrics`, under the same names, as OTLP in JSON. Counts go on from
 * the process's start, so that one push that is lost costs nothing.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { errorLine } from '../../core/errors.ts';
import type { Log } from '../../core/log.ts';
import { version } from '../../core/version.ts';
import { type Collector, collectorFor, describeService } from '../collector.ts';
import type { MetricObject, MetricsRegistry } from './metrics-registry.ts';

const EVERY_MS = 60_000;
/** A collector that is away must not hold up the end of a command. */
const PUSH_TIMEOUT_MS = 5_000;
/** Of OTLP: each point counts from the start, not from the point before. */
const CUMULATIVE = 2;

/** @returns undefined where no collector is named; disposing it sends what was counted last */
export function openMetricsPush(
  ambient: Readonly<Record<string, string>>,
  registry: () => MetricsRegistry,
  log: Log,
): AsyncDisposable | undefined {
  const collector = collectorFor('metrics', ambient, log);
  if (collector === undefined) return undefined;
  const startedMs = Date.now();
  const resource = { attributes: toAttributes(describeService(ambient)) };
  const push = async (): Promise<void> => {
    try {
      const metrics = toOtlpMetrics(await registry().objects(), startedMs, Date.now());
      const scopeMetrics = [{ scope: { name: 'ledger-mirror', version: version() }, metrics }];
      await post(collector, JSON.stringify({ resourceMetrics: [{ resource, scopeMetrics }] }));
    } catch (error) {
      log.debug({ reason: errorLine(error) }, 'Metrics were not taken by the collector');
    }
  };
  const everyMs = Number(ambient['OTEL_METRIC_EXPORT_INTERVAL'] ?? EVERY_MS);
  const timer = setInterval(() => void push(), everyMs > 0 ? everyMs : EVERY_MS).unref();
  return {
    [Symbol.asyncDispose]: () => {
      clearInterval(timer);
      return Promise.race([push(), sleep(PUSH_TIMEOUT_MS, undefined, { ref: false })]);
    },
  };
}

async function post({ url, headers }: Collector, body: string): Promise<void> {
  const signal = AbortSignal.timeout(PUSH_TIMEOUT_MS);
  const response = await fetch(url, {
    method: 'POST',
    headers: { ...headers, 'content-type': 'application/json' },
    body,
    signal,
  });
  await response.body?.cancel();
  if (!response.ok) throw new Error(`status ${response.status}`);
}

type Point = Readonly<Record<string, unknown>>;

/** As the specification's JSON has it: 64-bit integers are text. */
export function toOtlpMetrics(
  objects: readonly MetricObject[],
  startedMs: number,
  nowMs: number,
): readonly Point[] {
  const times = { startTimeUnixNano: `${startedMs}000000`, timeUnixNano: `${nowMs}000000` };
  return objects.flatMap(({ name, help: description, type, values }): Point[] => {
    // prom-client declares an enum and gives its words.
    const kind = String(type);
    const one = (what: Point): Point[] => [{ name, description, ...what }];
    if (kind === 'histogram') {
      const dataPoints = toHistogramPoints(name, values, times);
      return one({ histogram: { aggregationTemporality: CUMULATIVE, dataPoints } });
    }
    const dataPoints = values.map(({ labels, value }) => ({
      ...times,
      attributes: toAttributes(labels),
      asDouble: value,
    }));
    if (kind !== 'counter') return one({ gauge: { dataPoints } });
    return one({ sum: { aggregationTemporality: CUMULATIVE, isMonotonic: true, dataPoints } });
  });
}

interface Buckets {
  readonly labels: Readonly<Partial<Record<string, string | number>>>;
  readonly bounds: number[];
  /** Up to each bound, and in all: Prometheus adds them up. */
  readonly upTo: number[];
  count: number;
  sum: number;
}

function toHistogramPoints(name: string, values: MetricObject['values'], times: Point): readonly Point[] {
  const series = new Map<string, Buckets>();
  for (const { labels, value, metricName } of values) {
    const { le, ...others } = labels;
    const key = JSON.stringify(others);
    const buckets = series.get(key) ?? { labels: others, bounds: [], upTo: [], count: 0, sum: 0 };
    series.set(key, buckets);
    if (metricName === `${name}_sum`) buckets.sum = value;
    else if (metricName === `${name}_count`) buckets.count = value;
    else if (le !== '+Inf') {
      buckets.bounds.push(Number(le));
      buckets.upTo.push(value);
    }
  }
  return [...series.values()].map(({ labels, bounds, upTo, count, sum }) => ({
    ...times,
    attributes: toAttributes(labels),
    count: String(count),
    sum,
    explicitBounds: bounds,
    bucketCounts: [...upTo, count].map((total, index) => String(total - (upTo[index - 1] ?? 0))),
  }));
}

function toAttributes(labels: Readonly<Partial<Record<string, string | number>>>): readonly Point[] {
  return Object.entries(labels).map(([key, value]) => ({ key, value: { stringValue: String(value) } }));
}
