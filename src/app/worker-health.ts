/** A worker's health for whoever restarts it: 200 while jobs are taken, 503 otherwise. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import { errorCode, PermanentError } from '../core/errors.ts';
import type { App } from './app.ts';

const REQUEST_TIMEOUT_MS = 5_000;

/** @throws PermanentError `WORKER_HEALTH_PORT_UNUSABLE` */
export async function startWorkerHealth(app: App, port: number): Promise<AsyncDisposable> {
  const server = createServer((request, response) => {
    request.resume();
    const { isHealthy, queues } = app.workForce.health();
    response.writeHead(isHealthy ? 200 : 503, {
      'content-type': 'application/json',
      'cache-control': 'no-store',
    });
    response.end(JSON.stringify({ status: isHealthy ? 'ok' : 'no jobs taken', queues }));
  });
  server.requestTimeout = REQUEST_TIMEOUT_MS;
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
  app.log.info({ address: server.address() }, 'Worker health served');
  return {
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}
