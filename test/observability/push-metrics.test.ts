/** Metrics that are pushed to an OpenTelemetry collector: what is sent, and when nothing is. */
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { JsonMetricsSerializer } from '@opentelemetry/otlp-transformer';
import { expect, test } from 'vitest';
import { createLog, type Log } from '../../src/logging/log.ts';
import { MetricsRegistry } from '../../src/observability/metrics.ts';
import { toResourceMetrics } from '../../src/observability/otlp-metrics.ts';
import { openMetricsPush } from '../../src/observability/push-metrics.ts';

const RESOURCE = { 'service.name': 'mirror' };

test('metrics are pushed as OpenTelemetry has them, under the names of /metrics', async () => {
  const registry = new MetricsRegistry();
  registry.counter('runs', 'Runs', 'kind').inc({ kind: 'nightly' }, 2);
  registry.gauge('whole', 'Whole').set(1);
  const seconds = registry.histogram('run_seconds', 'Time', [1, 5], 'kind');
  for (const value of [0.5, 0.25, 3, 70])
    seconds.observe({ kind: 'nightly' }, value);
  seconds.observe({ kind: 'sync' }, 5);
  const metrics = toResourceMetrics(
    { resource: RESOURCE },
    await registry.getMetricsAsJSON(),
    1_500,
    2_250,
  );
  const bytes = JsonMetricsSerializer.serializeRequest(metrics);
  const sent = JSON.parse(Buffer.from(bytes ?? []).toString()) as {
    resourceMetrics: [{ scopeMetrics: [{ metrics: unknown[] }] }];
  };
  const point = (kind: string) => ({
    attributes: [{ key: 'kind', value: { stringValue: kind } }],
    startTimeUnixNano: '1500000000',
    timeUnixNano: '2250000000',
  });
  expect(sent.resourceMetrics[0]).toMatchObject({
    resource: {
      attributes: [{ key: 'service.name', value: { stringValue: 'mirror' } }],
    },
  });
  expect(sent.resourceMetrics[0].scopeMetrics[0].metrics).toMatchObject([
    {
      name: 'ledger_mirror_runs_total',
      description: 'Runs',
      sum: {
        aggregationTemporality: 2,
        isMonotonic: true,
        dataPoints: [{ ...point('nightly'), asDouble: 2 }],
      },
    },
    { name: 'ledger_mirror_whole', gauge: { dataPoints: [{ asDouble: 1 }] } },
    {
      name: 'ledger_mirror_run_seconds',
      histogram: {
        aggregationTemporality: 2,
        dataPoints: [
          {
            ...point('nightly'),
            count: 4,
            sum: 73.75,
            explicitBounds: [1, 5],
            bucketCounts: [2, 1, 1],
          },
          { ...point('sync'), count: 1, sum: 5, bucketCounts: [0, 1, 0] },
        ],
      },
    },
  ]);
});

test('metrics are brought up to date before they are pushed', async () => {
  const registry = new MetricsRegistry();
  const gauge = registry.gauge('now', 'Now');
  registry.beforeRead(() => gauge.set(7));
  const [read] = await registry.getMetricsAsJSON();
  expect(read?.values).toMatchObject([{ value: 7 }]);
});

test('a push is protobuf, with the headers of the environment', async () => {
  await using collector = await startCollector();
  const registry = new MetricsRegistry();
  registry.counter('runs', 'Runs').inc();
  const push = openMetricsPush(
    {
      OTEL_EXPORTER_OTLP_ENDPOINT: `${collector.url}/`,
      OTEL_EXPORTER_OTLP_HEADERS: 'x-tenant=a%20mirror',
      OTEL_EXPORTER_OTLP_PROTOCOL: 'http/protobuf',
    },
    createLog('silent'),
  );
  await push?.(registry);
  expect(collector.received).toMatchObject([
    {
      path: '/v1/metrics',
      headers: {
        'content-type': 'application/x-protobuf',
        'x-tenant': 'a mirror',
      },
    },
  ]);
  expect(collector.received[0]?.body).toContain('ledger_mirror_runs_total');
});

test('a collector that refuses or is away costs a warning and no error', async () => {
  await using collector = await startCollector(400);
  for (const endpoint of [collector.url, 'http://127.0.0.1:1']) {
    const { log, warnings } = recordWarnings();
    const ambient = { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint };
    await openMetricsPush(ambient, log)?.(new MetricsRegistry());
    expect(warnings).toEqual([
      'The collector did not accept the metrics of this process',
    ]);
  }
}, 20_000);

test.each([
  ['OTEL_EXPORTER_OTLP_PROTOCOL', 'grpc'],
  ['OTEL_EXPORTER_OTLP_METRICS_PROTOCOL', 'http/json'],
] as const)('%s %s is refused with what to set', (name, protocol) => {
  const { log, warnings } = recordWarnings();
  const ambient = {
    OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c',
    [name]: protocol,
  };
  expect(openMetricsPush(ambient, log)).toBeUndefined();
  expect(warnings).toEqual([
    `Metrics are not sent: ${name} is ${protocol}; set OTEL_EXPORTER_OTLP_METRICS_PROTOCOL to ` +
      'http/protobuf, or OTEL_METRICS_EXPORTER to none',
  ]);
});

test.each([
  ['no collector', {}],
  [
    'metrics left out',
    { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c', OTEL_METRICS_EXPORTER: 'none' },
  ],
  [
    'all of it off',
    { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c', OTEL_SDK_DISABLED: 'true' },
  ],
  ['what is no URL', { OTEL_EXPORTER_OTLP_ENDPOINT: 'collector' }],
] as const)('no metrics are pushed with %s', (_what, ambient) => {
  expect(openMetricsPush(ambient, createLog('silent'))).toBeUndefined();
});

/** A log of which the texts of the warnings are kept. */
function recordWarnings(): { log: Log; warnings: string[] } {
  const warnings: string[] = [];
  const write = (line: string) => {
    warnings.push((JSON.parse(line) as { msg: string }).msg);
  };
  return { log: createLog('warn', { write }), warnings };
}

interface Received {
  readonly path: string | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

async function startCollector(status = 200) {
  const received: Received[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const body = Buffer.concat(chunks).toString('latin1');
      received.push({ path: request.url, headers: request.headers, body });
      response.writeHead(status).end();
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    received,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      server.close();
    },
  };
}
