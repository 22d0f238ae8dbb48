/** Serves the health of this process's worker on WORKER_HEALTH_PORT. */
import type { IncomingHttpHeaders } from 'node:http';
import { isAskedLocally, isLoopback } from '../../api/access/hosts.ts';
import {
  bearerOf,
  type ReadTokens,
  roleOfToken,
} from '../../api/access/tokens.ts';
import { startWorkerHealth } from '../../observability/worker-health.ts';
import type { App } from '../app.ts';

/**
 * Starts the server.
 * @throws PermanentError `WORKER_HEALTH_PORT_UNUSABLE`
 */
export function serveWorkerHealth(
  app: App,
  port: number,
): Promise<AsyncDisposable & { readonly port: number }> {
  const { config, jobWorker, log, neededSecrets } = app;

  return startWorkerHealth({
    port,
    host: config.apiHost,
    health: () => {
      const pulse = jobWorker.health();
      const isRefused = neededSecrets.some(
        ({ secret }) => secret.refusedForMs() !== undefined,
      );
      return { ...pulse, isHealthy: pulse.isHealthy && !isRefused };
    },
    metrics: async () => {
      const registry = await app.metrics();
      return registry.metrics();
    },
    maySeeMetrics: (headers) =>
      maySeeMetrics(config.apiHost, app.readTokens, headers),
    log,
  });
}

/**
 * Whether a request may read the metrics. The rule is the same as in the API: any valid
 * token or, if none is set, a request from this machine.
 */
function maySeeMetrics(
  apiHost: string,
  readTokens: ReadTokens | undefined,
  { host, authorization }: IncomingHttpHeaders,
): boolean {
  if (readTokens === undefined)
    return isLoopback(apiHost) && isAskedLocally(host);

  const token = bearerOf(authorization);
  return token !== undefined && roleOfToken(token, readTokens()) !== undefined;
}
