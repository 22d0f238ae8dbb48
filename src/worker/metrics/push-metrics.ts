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
  const sent = { ...headers, 'content-type': 'application/json' };
  const response = await fetch(url, { method: 'POST', headers: sent, body, signal });
  await response.body?.cancel();
  if (!response.ok) throw new Error(`status ${response.status}`);
}

type Labels = Readonly<Partial<Record<string, string | number>>>;
type Point = Readonly<Record<string, unknown>>;

/** As the specification's JSON has it: 64-bit integers are text. */
export function toOtlpMetrics(
  objects: readonly MetricObject[],
  startedMs: number,
  nowMs: number,
): readonly Point[] {
  const times = { startTimeUnixNano: `${startedMs}000000`, timeUnixNano: `${nowMs}000000` };
  const toPoint = (labels: Labels, values: Point): Point => ({
    ...times,
    attributes: toAttributes(labels),
    ...values,
  });
  return objects.map(({ name, help: description, type, values }) => {
    // prom-client declares an enum and gives its words.
    const kind = String(type);
    const dataPoints =
      kind === 'histogram'
        ? groupBySeries(values).map(([labels, series]) => toPoint(labels, readHistogram(name, series)))
        : values.map(({ labels, value }) => toPoint(labels, { asDouble: value }));
    const counted = { aggregationTemporality: CUMULATIVE, dataPoints };
    if (kind === 'histogram') return { name, description, histogram: counted };
    if (kind === 'counter') return { name, description, sum: { ...counted, isMonotonic: true } };
    return { name, description, gauge: { dataPoints } };
  });
}

type Samples = MetricObject['values'];

/** The samples of a histogram by their labels. */
function groupBySeries(values: Samples): readonly (readonly [Labels, Samples])[] {
  const series = new Map<string, [Labels, Samples]>();
  for (const sample of values) {
    const { le: _le, ...labels } = sample.labels;
    const key = JSON.stringify(labels);
    const known = series.get(key);
    if (known === undefined) series.set(key, [labels, [sample]]);
    else known[1].push(sample);
  }
  return [...series.values()];
}

/** Prometheus adds buckets up, the last being all; OTLP counts each by itself. */
function readHistogram(name: string, samples: Samples): Point {
  const upTo = samples.filter(({ labels }) => labels['le'] !== undefined);
  return {
    count: String(upTo.at(-1)?.value ?? 0),
    sum: samples.find(({ metricName }) => metricName === `${name}_sum`)?.value,
    explicitBounds: upTo.slice(0, -1).map(({ labels }) => Number(labels['le'])),
    bucketCounts: upTo.map(({ value }, index) => String(value - (upTo[index - 1]?.value ?? 0))),
  };
}

function toAttributes(labels: Labels): readonly Point[] {
  return Object.entries(labels).map(([key, value]) => ({ key, value: { stringValue: String(value) } }));
}
