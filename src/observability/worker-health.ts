/** A worker's health for whoever restarts it (200 while jobs are taken, 503 otherwise), and its metrics. */
import type { IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fastify } from 'fastify';
import { Registry } from 'prom-client';
import { isAskedLocally, isLoopback } from '../api/access/hosts.ts';
import { bearerOf, roleOfToken } from '../api/access/tokens.ts';
import { errorCode, PermanentError } from '../errors/errors.ts';
import type { App } from '../app/app.ts';

/** Node takes the two for each other where the first is the larger. */
const HEADERS_TIMEOUT_MS = 5_000;
const REQUEST_TIMEOUT_MS = 6_000;
const CONNECTIONS_CHECK_MS = 1_000;
const CONNECTIONS_MAX = 64;

/**
 * Health at every path, open to everybody; metrics at `/metrics`, as open as those of the API.
 * @returns `port`: of the system's choice where 0 was asked for
 * @throws PermanentError `WORKER_HEALTH_PORT_UNUSABLE`
 */
export async function startWorkerHealth(
  app: App,
  port: number,
): Promise<AsyncDisposable & { readonly port: number }> {
  const server = fastify({
    requestTimeout: REQUEST_TIMEOUT_MS,
    http: {
      headersTimeout: HEADERS_TIMEOUT_MS,
      connectionsCheckingInterval: CONNECTIONS_CHECK_MS,
    },
    forceCloseConnections: true,
  });
  server.server.maxConnections = CONNECTIONS_MAX;
  server.addHook(
    'onRequest',
    async (_request, reply) => void reply.header('cache-control', 'no-store'),
  );
  server.get('/metrics', async ({ headers }, reply) => {
    if (!maySeeMetrics(app, headers))
      return reply.code(401).header('www-authenticate', 'Bearer').send();
    return reply
      .type(Registry.PROMETHEUS_CONTENT_TYPE)
      .send(await (await app.metrics()).metrics());
  });
  server.setNotFoundHandler((_request, reply) => {
    const { isHealthy, queues } = app.jobWorker.health();
    return reply
      .code(isHealthy ? 200 : 503)
      .send({ status: isHealthy ? 'ok' : 'no jobs taken', queues });
  });
  server.setErrorHandler((error, _request, reply) => {
    app.log.warn({ err: error }, 'Metrics could not be told');
    return reply.code(500).send();
  });
  try {
    await server.listen({ port, host: app.config.apiHost });
  } catch (error) {
    const message = `Cannot listen on port ${port}: ${errorCode(error)}; set WORKER_HEALTH_PORT to a free one`;
    throw new PermanentError(message, {
      code: 'WORKER_HEALTH_PORT_UNUSABLE',
      meta: { port },
      cause: error,
    });
  }
  const address = server.server.address() as AddressInfo;
  app.log.info({ address }, 'Worker health served');
  return { port: address.port, [Symbol.asyncDispose]: () => server.close() };
}

function maySeeMetrics(
  { config }: App,
  { host, authorization }: IncomingHttpHeaders,
): boolean {
  const { apiToken: write, apiReadToken: read, apiHost } = config;
  if (write === undefined) return isLoopback(apiHost) && isAskedLocally(host);
  const token = bearerOf(authorization);
  return token !== undefined && roleOfToken(token, { write, read }) !== undefined;
}
