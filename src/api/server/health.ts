/**
 * `/healthz` reports that the process is running. `/readyz` reports whether it can do its
 * work, by actually trying each part. `/metrics` has Prometheus metrics of the API and of
 * the mirror's freshness. Metric names are stable and documented in docs/metrics.md;
 * label values come from small fixed sets, and are never a URL, a key or a party.
 */
import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import { sharedLoad } from '../../concurrency/shared-load.ts';
import type { Log } from '../../logging/log.ts';
import {
  isAnswered,
  type MetricsRegistry,
  type Probe,
} from '../../observability/metrics.ts';
import { addMirrorMetrics } from '../../observability/mirror-metrics.ts';
import type { MirrorStatus } from '../../status/status-summary.ts';
import { openRoutes } from '../kit/routes.ts';
import type { ApiDeps } from './ports.ts';

/**
 * How long a `/readyz` result is reused. The route is open to every client, so repeated
 * requests must be cheap.
 */
const PROBED_MAX_AGE_MS = 1_000;

const ALIVE = z.object({ status: z.string() });
const LIVENESS = {
  summary: 'The process lives',
  response: { 200: ALIVE },
  hasHead: true,
};
const READY = z.object({
  ready: z.boolean(),
  parts: z.record(z.string(), z.enum(['ok', 'failed'])),
});
const READINESS = {
  summary: 'The process can do its work',
  response: { 200: READY, 503: READY },
  hasHead: true,
};
const METRICS = { summary: 'Prometheus metrics', produces: ['text/plain'] };

const SECONDS = [
  0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300,
];
/** Path prefix of the console's files, which all count as one route in the metrics. */
const ASSETS = '/assets/';

/** Whether each part of the process can do its work, keyed by the part's name. */
type Readiness = z.infer<typeof READY>;

/**
 * Adds the health routes and the metrics, and counts every request. The health routes are
 * open to every client, so they reveal only which part is failing.
 * @param status reads the status that the gauges show
 */
export function addHealth(
  server: FastifyInstance,
  { probes, metrics: registry, log }: ApiDeps,
  status: () => Promise<MirrorStatus>,
): void {
  addMirrorMetrics(registry, status, log);
  countRequests(server, registry);

  const readReadiness = sharedLoad(
    () => tryParts(probes, log),
    PROBED_MAX_AGE_MS,
  );
  const add = openRoutes(server, 'health');
  add('GET /healthz', LIVENESS, () => ({ status: 'ok' }));
  add('GET /readyz', READINESS, async (_request, reply) => {
    const readiness = await readReadiness();
    return reply.code(readiness.ready ? 200 : 503).send(readiness);
  });
  add('GET /metrics', METRICS, async (_request, reply) =>
    reply
      .header('content-type', registry.contentType)
      .send(await registry.metrics()),
  );
}

async function tryParts(
  probes: readonly Probe[],
  log: Log,
): Promise<Readiness> {
  const tried = await Promise.all(
    probes.map(async (probe): Promise<[string, 'ok' | 'failed']> => {
      const warn = (error: unknown): void =>
        log.warn({ err: error, part: probe.name }, 'Part is not ready');
      const isReady = await isAnswered((signal) => probe.check(signal), warn);
      return [probe.name, isReady ? 'ok' : 'failed'];
    }),
  );
  return {
    ready: tried.every(([, result]) => result === 'ok'),
    parts: Object.fromEntries(tried),
  };
}

function countRequests(
  server: FastifyInstance,
  registry: MetricsRegistry,
): void {
  const requests = registry.counter(
    'http_requests',
    'Requests answered',
    'route',
    'method',
    'status',
  );
  const duration = registry.histogram(
    'http_request_seconds',
    'From the request to the end of its answer',
    SECONDS,
    'route',
  );
  server.addHook('onResponse', async ({ routeOptions, method }, reply) => {
    const url = routeOptions.url ?? 'none';
    const route = url.startsWith(ASSETS) ? `${ASSETS}*` : url;
    requests.inc({ route, method, status: reply.statusCode });
    duration.observe({ route }, reply.elapsedTime / 1_000);
  });
}
