/** A worker's health for whoever restarts it (200 while jobs are taken, 503 otherwise), and its metrics. */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { Registry } from 'prom-client';
import { isAskedLocally, isLoopback } from '../../api/access/hosts.ts';
import { bearerOf, roleOfToken } from '../../api/access/keys.ts';
import { errorCode, PermanentError } from '../../core/errors.ts';
import type { App } from '../app.ts';

/** Node takes the two for each other where the first is the larger. */
const TIMEOUTS = { headersTimeout: 5_000, requestTimeout: 6_000, connectionsCheckingInterval: 1_000 };
const CONNECTIONS_MAX = 64;

export interface WorkerHealth extends AsyncDisposable {
  /** Where it listens: of the system's choice where 0 was asked for. */
  readonly port: number;
}

/**
 * Health at every path, open to everybody; metrics at `/metrics`, as open as those of the API.
 * @throws PermanentError `WORKER_HEALTH_PORT_UNUSABLE`
 */
export async function startWorkerHealth(app: App, port: number): Promise<WorkerHealth> {
  const { log } = app;
  const server = createServer(TIMEOUTS, (request, response) => {
    request.resume();
    const isMetrics = request.url?.split('?', 1)[0] === '/metrics';
    if (!isMetrics) sendHealth(app, response);
    else if (maySeeMetrics(app, request)) void sendMetrics(app, response);
    else response.writeHead(401, { 'www-authenticate': 'Bearer' }).end();
  });
  server.maxConnections = CONNECTIONS_MAX;
  server.listen(port, app.config.apiHost);
  try {
    await once(server, 'listening');
  } catch (error) {
    throw new PermanentError(
      `Cannot listen on port ${port}: ${errorCode(error)}; set WORKER_HEALTH_PORT to a free one`,
      {
        code: 'WORKER_HEALTH_PORT_UNUSABLE',
        meta: { port },
        cause: error,
      },
    );
  }
  const address = server.address();
  log.info({ address }, 'Worker health served');
  return {
    port: typeof address === 'object' && address !== null ? address.port : port,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

function sendHealth(app: App, response: ServerResponse): void {
  const { isHealthy, queues } = app.jobWorker.health();
  response.writeHead(isHealthy ? 200 : 503, {
    'content-type': 'application/json',
    'cache-control': 'no-store',
  });
  response.end(JSON.stringify({ status: isHealthy ? 'ok' : 'no jobs taken', queues }));
}

function maySeeMetrics({ config }: App, request: IncomingMessage): boolean {
  const { apiToken: write, apiReadToken: read, apiHost } = config;
  if (write === undefined) return isLoopback(apiHost) && isAskedLocally(request.headers.host);
  const token = bearerOf(request.headers.authorization);
  return token !== undefined && roleOfToken(token, { write, read }) !== undefined;
}

async function sendMetrics(app: App, response: ServerResponse): Promise<void> {
  try {
    const body = await app.meters().text();
    response.writeHead(200, {
      'content-type': Registry.PROMETHEUS_CONTENT_TYPE,
      'cache-control': 'no-store',
    });
    response.end(body);
  } catch (error) {
    app.log.warn({ err: error }, 'Metrics could not be told');
    response.writeHead(500).end();
  }
}
