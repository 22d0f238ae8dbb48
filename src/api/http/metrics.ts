/**
 * Prometheus metrics of the API and of the mirror's freshness. Names are stable and documented in
 * docs/metrics.md; labels are of small fixed sets, never a URL, a key or a party.
 */
import type { FastifyInstance } from 'fastify';
import type { Log } from '../../core/log.ts';
import { parseInstant } from '../../core/time.ts';
import { VERDICTS } from '../../core/verdict.ts';
import type { MirrorStatus } from '../mirror/glance.ts';
import type { MetricsRegistry } from '../../worker/metrics/metrics-registry.ts';
import { describeRoute } from './schemas.ts';

const SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];
/** One series for all files of the console. */
const ASSETS = '/assets/';
/** Metrics of one number each, with what they say. */
const NUMBERS: Readonly<Record<string, readonly [string, (status: MirrorStatus) => number]>> = {
  whole: [
    '1 where every list and the ledger of every listed party is proven complete',
    ({ whole }) => Number(whole),
  ],
  complete: ['1 where what is configured is proven complete', ({ complete }) => Number(complete)],
  open_doubts: ['Durable reasons not to say complete', ({ coverage }) => coverage.openDoubts],
  ledger_bytes: ['Plain CSV in the current segments', ({ ledger }) => Number(ledger.bytes)],
  ledger_set_aside: ['Ledgers whose export was quarantined', ({ ledger }) => Number(ledger.quarantined)],
  ledger_segments_not_loaded: [
    'Published segments that the warehouse does not hold yet',
    ({ ledger }) => Number(ledger.notLoaded),
  ],
  runs_open: ['Runs queued or running', ({ openRuns }) => Number(openRuns)],
};

/** Adds `/metrics` and counts every request. */
export function addMetrics(
  server: FastifyInstance,
  status: () => Promise<MirrorStatus>,
  registry: MetricsRegistry,
  log: Log,
): void {
  countRequests(server, registry);
  const show = addMirrorGauges(registry);
  registry.beforeRead(async () => {
    try {
      show(await status());
    } catch (error) {
      // A mirror that cannot be read must still be seen: its own metrics go on.
      log.warn({ err: error }, 'Metrics without the state of the mirror');
    }
  });
  server.get(
    '/metrics',
    describeRoute('health', 'Prometheus metrics', { produces: ['text/plain'] }),
    async (_request, reply) =>
      reply.header('content-type', registry.contentType).send(await registry.metrics()),
  );
}

function countRequests(server: FastifyInstance, registry: MetricsRegistry): void {
  const requests = registry.counter('http_requests', 'Requests answered', 'route', 'method', 'status');
  const duration = registry.histogram(
    'http_request_seconds',
    'From the request to the end of its answer',
    SECONDS,
    'route',
  );
  server.addHook('onResponse', (request, reply, done) => {
    const named = request.routeOptions.url ?? 'none';
    const route = named.startsWith(ASSETS) ? `${ASSETS}*` : named;
    requests.inc({ route, method: request.method, status: reply.statusCode });
    duration.observe({ route }, reply.elapsedTime / 1_000);
    done();
  });
}

function addMirrorGauges(registry: MetricsRegistry): (status: MirrorStatus) => void {
  const numbers = Object.entries(NUMBERS).map(([name, [help, read]]) => ({
    gauge: registry.gauge(name, help),
    read,
  }));
  const ledgers = registry.gauge(
    'ledgers',
    'Ledgers listed, wanted by the configuration, and covered',
    'state',
  );
  const verdict = registry.gauge(
    'stream_verdict',
    "1 for the verdict of the stream's last run",
    'stream',
    'verdict',
  );
  const rows = registry.gauge('stream_rows', 'Rows mirrored', 'stream');
  const asOf = ['stream_as_of_seconds', 'stream_as_of_timestamp_seconds'].map((name) =>
    registry.gauge(name, 'The instant up to which it is mirrored, since 1970', 'stream'),
  );
  return (status) => {
    for (const { gauge, read } of numbers) gauge.set(read(status));
    for (const state of ['listed', 'wanted', 'covered'] as const)
      ledgers.set({ state }, status.coverage[state]);
    for (const { name: stream, asOfTime, ...last } of status.streams) {
      for (const name of VERDICTS) verdict.set({ stream, verdict: name }, Number(last.verdict === name));
      rows.set({ stream }, Number(last.rows));
      const time = asOfTime === null ? undefined : parseInstant(asOfTime);
      if (time === undefined) continue;
      for (const gauge of asOf) gauge.set({ stream }, Number(time / 1_000n) / 1_000);
    }
  };
}
