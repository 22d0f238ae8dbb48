/**
 * Converts the metrics of `/metrics` to OpenTelemetry's data model, under the same names,
 * and sends them as OTLP in protobuf. This module is loaded only if a collector is
 * configured.
 */
import { ValueType } from '@opentelemetry/api';
import { OTLPExporterBase } from '@opentelemetry/otlp-exporter-base';
import {
  convertLegacyHttpOptions,
  createOtlpHttpExportDelegate,
} from '@opentelemetry/otlp-exporter-base/node-http';
import {
  MetricsExporterMetricsHelper,
  ProtobufMetricsSerializer,
} from '@opentelemetry/otlp-transformer';
import { resourceFromAttributes } from '@opentelemetry/resources';
import {
  AggregationTemporality,
  DataPointType,
  type MetricData,
  type ResourceMetrics,
} from '@opentelemetry/sdk-metrics';
import { version } from '../version.ts';
import {
  agentOptions,
  type Collector,
  COLLECTOR_TIMEOUT_MS,
} from './collector.ts';

/** `ExportResultCode.SUCCESS` of `@opentelemetry/core`, which we do not depend on. */
const SUCCESS = 0;

interface Outcome {
  readonly code: number;
  readonly error?: Error;
}

/**
 * A sample from prom-client. Histogram samples say in `metricName` which series they
 * belong to (`_bucket`, `_sum` or `_count`).
 */
interface Sample {
  readonly value: number;
  readonly labels: Readonly<Partial<Record<string, string | number>>>;
  readonly metricName?: string;
}

/** A metric with its values, as prom-client's `getMetricsAsJSON` returns it. */
export interface ReadMetric {
  readonly name: string;
  readonly help: string;
  /** `counter`, `gauge` or `histogram`. */
  readonly type: unknown;
  readonly values: readonly Sample[];
}

/** The time that a data point covers, starting when the process started. */
interface Span {
  readonly startTime: [seconds: number, nanos: number];
  readonly endTime: [seconds: number, nanos: number];
}

/**
 * Sends the metrics once.
 * @throws Error if the collector does not accept them within a few seconds
 */
export async function sendMetrics(
  collector: Collector,
  metrics: ResourceMetrics,
): Promise<void> {
  const { url, headers } = collector;
  const sent = {
    url,
    headers,
    timeoutMillis: COLLECTOR_TIMEOUT_MS,
    ...agentOptions(collector),
  };
  const format = { 'Content-Type': 'application/x-protobuf' };
  const exporter = new OTLPExporterBase<ResourceMetrics>(
    createOtlpHttpExportDelegate(
      convertLegacyHttpOptions(sent, 'METRICS', 'v1/metrics', format),
      ProtobufMetricsSerializer,
      'otlp_http_metric_exporter',
      MetricsExporterMetricsHelper,
      undefined,
    ),
  );
  try {
    await new Promise<void>((resolve, reject) => {
      exporter.export(metrics, ({ error, code }: Outcome) => {
        if (code === SUCCESS) resolve();
        else reject(error ?? new Error('the collector took nothing'));
      });
    });
  } finally {
    await exporter.shutdown();
  }
}

/**
 * Converts the metrics to OpenTelemetry's data model.
 * @param startedMs when the process started counting, in milliseconds since 1970
 */
export function toResourceMetrics(
  { resource }: Pick<Collector, 'resource'>,
  metrics: readonly ReadMetric[],
  startedMs: number,
  nowMs: number,
): ResourceMetrics {
  const span = { startTime: toHrTime(startedMs), endTime: toHrTime(nowMs) };
  const scope = { name: 'ledger-mirror', version: version() };
  return {
    resource: resourceFromAttributes(resource),
    scopeMetrics: [
      { scope, metrics: metrics.map((metric) => toMetricData(metric, span)) },
    ],
  };
}

function toHrTime(ms: number): [seconds: number, nanos: number] {
  const seconds = Math.floor(ms / 1_000);
  return [seconds, Math.round((ms - seconds * 1_000) * 1_000_000)];
}

function toMetricData(
  { name, help: description, type, values }: ReadMetric,
  span: Span,
): MetricData {
  const common = {
    descriptor: { name, description, unit: '', valueType: ValueType.DOUBLE },
    aggregationTemporality: AggregationTemporality.CUMULATIVE,
  };
  if (type === 'histogram') {
    const dataPoints = groupBySeries(values).map(([labels, samples]) => ({
      ...span,
      attributes: toAttributes(labels),
      value: toHistogram(name, samples),
    }));
    return { ...common, dataPointType: DataPointType.HISTOGRAM, dataPoints };
  }
  const dataPoints = values.map(({ labels, value }) => ({
    ...span,
    attributes: toAttributes(labels),
    value,
  }));
  return type === 'counter'
    ? {
        ...common,
        dataPointType: DataPointType.SUM,
        isMonotonic: true,
        dataPoints,
      }
    : { ...common, dataPointType: DataPointType.GAUGE, dataPoints };
}

/**
 * Converts label values to strings, as in `/metrics`, where even an HTTP status is a
 * string.
 */
function toAttributes(labels: Sample['labels']): Record<string, string> {
  return Object.fromEntries(
    Object.entries(labels).map(([name, value]) => [name, `${value}`]),
  );
}

type Series = readonly [labels: Sample['labels'], samples: Sample[]];

/** Groups the samples of a histogram by their labels, ignoring the bucket bounds. */
function groupBySeries(values: readonly Sample[]): readonly Series[] {
  const series = new Map<string, Series>();
  for (const sample of values) {
    const { le: _bound, ...labels } = sample.labels;
    const key = JSON.stringify(labels);
    const known = series.get(key);
    if (known === undefined) series.set(key, [labels, [sample]]);
    else known[1].push(sample);
  }
  return [...series.values()];
}

/**
 * Converts the buckets: in Prometheus, a bucket counts all values up to its bound; in
 * OpenTelemetry, only those between two bounds.
 */
function toHistogram(name: string, samples: readonly Sample[]) {
  const buckets = samples.filter(({ labels }) => labels['le'] !== undefined);
  const sum = samples.find(({ metricName }) => metricName === `${name}_sum`);
  return {
    buckets: {
      // The last bound is +Inf, which OpenTelemetry omits.
      boundaries: buckets
        .slice(0, -1)
        .map(({ labels }) => Number(labels['le'])),
      counts: buckets.map(
        ({ value }, index) => value - (buckets[index - 1]?.value ?? 0),
      ),
    },
    sum: sum?.value ?? 0,
    count: buckets.at(-1)?.value ?? 0,
  };
}
