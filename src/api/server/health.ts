/**
 * `/healthz`: the process lives. `/readyz`: it can do its work, each part tried for real. `/metrics`: Prometheus metrics
 * of the API and of the mirror's freshness. Names are stable and documented in docs/metrics.md; labels are of small
 * fixed sets, never a URL, a key or a party.
 */
import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import { sharedLoad } from '../../concurrency/shared-load.ts';
import { addMirrorMetrics } from '../../observability/mirror-metrics.ts';
import { isAnswered, type Probe } from '../../observability/metrics.ts';
import type { MirrorStatus } from '../../status/status-summary.ts';
import type { ApiDeps } from './ports.ts';
import { openRoutes } from '../kit/routes.ts';

/** Anybody may ask, so asking often must cost nothing. */
const PROBED_MAX_AGE_MS = 1_000;

const ALIVE = z.object({ status: z.string() });
const LIVENESS = { summary: 'The process lives', response: { 200: ALIVE } };
const READY = z.object({
  ready: z.boolean(),
  parts: z.record(z.string(), z.enum(['ok', 'failed'])),
});
const READINESS = {
  summary: 'The process can do its work',
  response: { 200: READY, 503: READY },
};
const METRICS = { summary: 'Prometheus metrics', produces: ['text/plain'] };

const SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];
/** One series for all files of the console. */
const ASSETS = '/assets/';

/**
 * Adds the routes, and counts every request. Health is open to everybody, so it tells no more than which part fails.
 * @param status what the gauges tell of
 */
export function addHealth(
  server: FastifyInstance,
  { probes, metrics: registry, log }: ApiDeps,
  status: () => Promise<MirrorStatus>,
): void {
  const tryOut = async (probe: Probe) => {
    const tell = (error: unknown) =>
      log.warn({ err: error, part: probe.name }, 'Part is not ready');
    const isReady = await isAnswered((signal) => probe.check(signal), tell);
    return [probe.name, isReady ? 'ok' : 'failed'] as const;
  };
  const readiness = sharedLoad(async () => {
    const results = await Promise.all(probes.map(tryOut));
    return {
      ready: results.every(([, result]) => result === 'ok'),
      parts: Object.fromEntries(results),
    };
  }, PROBED_MAX_AGE_MS);
  addMirrorMetrics(registry, status, log);
  const requests = registry.counter(
    'http_requests',
    'Requests answered',
    'route',
    'method',
    'status',
  );
  const help = 'From the request to the end of its answer';
  const duration = registry.histogram('http_request_seconds', help, SECONDS, 'route');
  server.addHook('onResponse', async ({ routeOptions, method }, reply) => {
    const named = routeOptions.url ?? 'none';
    const route = named.startsWith(ASSETS) ? `${ASSETS}*` : named;
    requests.inc({ route, method, status: reply.statusCode });
    duration.observe({ route }, reply.elapsedTime / 1_000);
  });
  const add = openRoutes(server, 'health');
  add('GET /healthz', LIVENESS, () => ({ status: 'ok' }));
  add('GET /readyz', READINESS, async (_request, reply) => {
    const found = await readiness();
    return reply.code(found.ready ? 200 : 503).send(found);
  });
  add('GET /metrics', METRICS, async (_request, reply) =>
    reply.header('content-type', registry.contentType).send(await registry.metrics()),
  );
}
