/** Metrics as an OpenTelemetry collector gets them, on a real socket. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Counter, Gauge, Histogram } from 'prom-client';
import { describe, expect, onTestFinished, test } from 'vitest';
import { createLog } from '../../../src/core/log.ts';
import { MetricsRegistry } from '../../../src/worker/metrics/metrics-registry.ts';
import { toOtlpMetrics, openMetricsPush } from '../../../src/worker/metrics/push-metrics.ts';

const LOG = createLog('silent');

function metrics(): MetricsRegistry {
  const registry = new MetricsRegistry();
  const registers = [registry];
  new Counter({ name: 'jobs_total', help: 'Jobs', labelNames: ['queue'], registers }).inc({ queue: 'a' }, 3);
  new Gauge({ name: 'free', help: 'Free', registers }).set(0.5);
  const took = new Histogram({
    name: 'took',
    help: 'Took',
    buckets: [1, 5],
    labelNames: ['queue'],
    registers,
  });
  for (const seconds of [0.5, 0.75, 4, 60]) took.observe({ queue: 'a' }, seconds);
  return registry;
}

test('counters, gauges and histograms are what the specification calls sums, gauges and histograms', async () => {
  const times = { startTimeUnixNano: '1000000000', timeUnixNano: '2000000000' };
  const attributes = [{ key: 'queue', value: { stringValue: 'a' } }];
  expect(toOtlpMetrics(await metrics().objects(), 1_000, 2_000)).toEqual([
    {
      name: 'jobs_total',
      description: 'Jobs',
      sum: {
        aggregationTemporality: 2,
        isMonotonic: true,
        dataPoints: [{ ...times, attributes, asDouble: 3 }],
      },
    },
    {
      name: 'free',
      description: 'Free',
      gauge: { dataPoints: [{ ...times, attributes: [], asDouble: 0.5 }] },
    },
    {
      name: 'took',
      description: 'Took',
      histogram: {
        aggregationTemporality: 2,
        dataPoints: [
          {
            ...times,
            attributes,
            count: '4',
            sum: 65.25,
            explicitBounds: [1, 5],
            bucketCounts: ['2', '1', '1'],
          },
        ],
      },
    },
  ]);
});

describe('a process that ends', () => {
  test('ends as it would without a collector where that refuses', async () => {
    let asked = 0;
    const server = createServer((request, response) => {
      asked += 1;
      request.resume();
      response.writeHead(503).end();
    }).listen(0, '127.0.0.1');
    onTestFinished(() => void server.close());
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const push = openMetricsPush({ OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}` }, metrics, LOG);
    await push?.[Symbol.asyncDispose]();
    expect(asked).toBe(1);
  });

  test.each([
    ['no collector', {}],
    ['metrics left out', { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c', OTEL_METRICS_EXPORTER: 'none' }],
    ['all of it off', { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c', OTEL_SDK_DISABLED: 'true' }],
    ['what is no URL', { OTEL_EXPORTER_OTLP_ENDPOINT: 'collector' }],
  ] as const)('sends nothing with %s', (_what, ambient) => {
    expect(openMetricsPush(ambient, metrics, LOG)).toBeUndefined();
  });
});
