/**
 * Prometheus metrics of the API and of the mirror's freshness. Names are stable and documented in
 * docs/metrics.md; labels are of small fixed sets, never a URL, a key or a party.
 */
import type { FastifyInstance } from 'fastify';
import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { Log } from '../../core/log.ts';
import { parseInstant } from '../../core/time.ts';
import type { MirrorStatus } from '../mirror/glance.ts';
import type { ProcessMeters } from './ports.ts';

const PREFIX = 'ledger_mirror_';
const SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];
/** One series for all files of the console. */
const ASSETS = '/assets/';
const VERDICTS = ['complete', 'incomplete', 'suspicious', 'failed'] as const;

/** Adds `/metrics` and counts every request. */
export function addMetrics(
  server: FastifyInstance,
  status: () => Promise<MirrorStatus>,
  meters: ProcessMeters,
  log: Log,
): void {
  const registry = new Registry();
  countRequests(server, registry);
  const show = mirrorGauges(registry);
  meters.add({
    collect: async () => {
      try {
        show(await status());
      } catch (error) {
        // A mirror that cannot be read must still be seen: its own metrics go on.
        log.warn({ err: error }, 'Metrics without the state of the mirror');
      }
      return registry;
    },
  });
  server.get(
    '/metrics',
    { schema: { tags: ['health'], summary: 'Prometheus metrics', produces: ['text/plain'] } },
    async (_request, reply) => reply.header('content-type', registry.contentType).send(await meters.text()),
  );
}

function countRequests(server: FastifyInstance, registry: Registry): void {
  const labelNames = ['route', 'method', 'status'] as const;
  const requests = new Counter({
    name: `${PREFIX}http_requests_total`,
    help: 'Requests answered',
    labelNames,
    registers: [registry],
  });
  const duration = new Histogram({
    name: `${PREFIX}http_request_seconds`,
    help: 'From the request to the end of its answer',
    labelNames: ['route'],
    buckets: SECONDS,
    registers: [registry],
  });
  server.addHook('onResponse', (request, reply, done) => {
    const named = request.routeOptions.url ?? 'none';
    const route = named.startsWith(ASSETS) ? `${ASSETS}*` : named;
    requests.inc({ route, method: request.method, status: reply.statusCode });
    duration.observe({ route }, reply.elapsedTime / 1_000);
    done();
  });
}

function mirrorGauges(registry: Registry): (status: MirrorStatus) => void {
  const gauge = (name: string, help: string, labelNames: readonly string[] = []): Gauge =>
    new Gauge({ name: `${PREFIX}${name}`, help, labelNames: [...labelNames], registers: [registry] });
  const whole = gauge('whole', '1 where every list and the ledger of every listed party is proven complete');
  const complete = gauge('complete', '1 where what is configured is proven complete');
  const ledgers = gauge('ledgers', 'Ledgers listed, wanted by the configuration, and covered', ['state']);
  const doubts = gauge('open_doubts', 'Durable reasons not to say complete');
  const verdict = gauge('stream_verdict', "1 for the verdict of the stream's last run", [
    'stream',
    'verdict',
  ]);
  const rows = gauge('stream_rows', 'Rows mirrored', ['stream']);
  const asOf = gauge('stream_as_of_seconds', 'The instant up to which it is mirrored, since 1970', [
    'stream',
  ]);
  const asOfTimestamp = gauge(
    'stream_as_of_timestamp_seconds',
    'The instant up to which it is mirrored, since 1970',
    ['stream'],
  );
  const bytes = gauge('ledger_bytes', 'Plain CSV in the current segments');
  const quarantined = gauge('ledger_set_aside', 'Ledgers whose export was quarantined');
  const notLoaded = gauge(
    'ledger_segments_not_loaded',
    'Published segments that the warehouse does not hold yet',
  );
  const open = gauge('runs_open', 'Runs queued or running');
  return (status) => {
    whole.set(status.whole ? 1 : 0);
    complete.set(status.complete ? 1 : 0);
    for (const state of ['listed', 'wanted', 'covered'] as const)
      ledgers.set({ state }, status.coverage[state]);
    doubts.set(status.coverage.openDoubts);
    for (const stream of status.streams) {
      for (const name of VERDICTS) {
        verdict.set({ stream: stream.name, verdict: name }, stream.verdict === name ? 1 : 0);
      }
      rows.set({ stream: stream.name }, Number(stream.rows));
      const time = stream.asOfTime === null ? undefined : parseInstant(stream.asOfTime);
      if (time === undefined) continue;
      const seconds = Number(time / 1_000n) / 1_000;
      for (const shown of [asOf, asOfTimestamp]) shown.set({ stream: stream.name }, seconds);
    }
    bytes.set(Number(status.ledger.bytes));
    quarantined.set(Number(status.ledger.quarantined));
    notLoaded.set(Number(status.ledger.notLoaded));
    open.set(Number(status.openRuns));
  };
}
