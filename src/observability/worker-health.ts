/**
 * A small HTTP server in each worker, for the supervisor that restarts it and for
 * Prometheus. Every path returns 200 while the worker is taking jobs and 503 otherwise,
 * except `/metrics`, which returns the metrics of the process.
 */
import type { IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fastify } from 'fastify';
import { Registry } from 'prom-client';
import { errorCode, PermanentError } from '../errors/errors.ts';
import type { Log } from '../logging/log.ts';

// Node swaps the two limits if the first is larger than the second.
const HEADERS_TIMEOUT_MS = 5_000;
const REQUEST_TIMEOUT_MS = 6_000;

const CONNECTIONS_CHECK_MS = 1_000;
const CONNECTIONS_MAX = 64;

interface WorkerHealth {
  readonly isHealthy: boolean;
  /** The state of each queue, for the supervisor. */
  readonly queues: readonly unknown[];
}

export interface WorkerHealthOptions {
  /** The port to listen on; 0 lets the system choose one. */
  readonly port: number;
  readonly host: string;
  /** Returns the state of the worker. Every client may read it. */
  readonly health: () => WorkerHealth;
  /** Returns the metrics in Prometheus text format. */
  readonly metrics: () => Promise<string>;
  /** Decides whether a request may read the metrics. */
  readonly maySeeMetrics: (headers: IncomingHttpHeaders) => boolean;
  readonly log: Log;
}

/**
 * Starts the server.
 * @returns the `port` that it listens on
 * @throws PermanentError `WORKER_HEALTH_PORT_UNUSABLE` if the port cannot be opened
 */
export async function startWorkerHealth(
  options: WorkerHealthOptions,
): Promise<AsyncDisposable & { readonly port: number }> {
  const { log, port, host } = options;
  const server = openServer(options);

  try {
    await server.listen({ port, host });
  } catch (error) {
    const message =
      `Cannot listen on port ${port}: ${errorCode(error)}; set WORKER_HEALTH_PORT ` +
      'to a free one';
    throw new PermanentError(message, {
      code: 'WORKER_HEALTH_PORT_UNUSABLE',
      meta: { port },
      cause: error,
    });
  }

  const address = server.server.address() as AddressInfo;
  log.info({ address }, 'Worker health served');
  return { port: address.port, [Symbol.asyncDispose]: () => server.close() };
}

function openServer({
  health,
  metrics,
  maySeeMetrics,
  log,
}: WorkerHealthOptions) {
  const server = fastify({
    requestTimeout: REQUEST_TIMEOUT_MS,
    http: {
      headersTimeout: HEADERS_TIMEOUT_MS,
      connectionsCheckingInterval: CONNECTIONS_CHECK_MS,
    },
    forceCloseConnections: true,
  });
  server.server.maxConnections = CONNECTIONS_MAX;

  server.addHook('onRequest', async (_request, reply) => {
    reply.header('cache-control', 'no-store');
  });

  server.get('/metrics', async ({ headers }, reply) => {
    if (!maySeeMetrics(headers))
      return reply.code(401).header('www-authenticate', 'Bearer').send();

    return reply.type(Registry.PROMETHEUS_CONTENT_TYPE).send(await metrics());
  });

  server.setNotFoundHandler((_request, reply) => {
    const { isHealthy, queues } = health();
    return reply
      .code(isHealthy ? 200 : 503)
      .send({ status: isHealthy ? 'ok' : 'no jobs taken', queues });
  });

  server.setErrorHandler((error, _request, reply) => {
    log.warn({ err: error }, 'Metrics could not be read');
    return reply.code(500).send();
  });

  return server;
}
