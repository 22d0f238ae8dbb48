/** The health of this process's worker, listening on WORKER_HEALTH_PORT. */
import type { IncomingHttpHeaders } from 'node:http';
import { isAskedLocally, isLoopback } from '../../api/access/hosts.ts';
import { bearerOf, roleOfToken } from '../../api/access/tokens.ts';
import type { Config } from '../../config/environment.ts';
import { startWorkerHealth } from '../../observability/worker-health.ts';
import type { App } from '../app.ts';

/** @throws PermanentError `WORKER_HEALTH_PORT_UNUSABLE` */
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
    maySeeMetrics: (headers) => maySeeMetrics(config, headers),
    log,
  });
}

/**
 * The metrics are as open as those of the API: any token, or this machine if none is set.
 */
function maySeeMetrics(
  { apiToken, apiReadToken, apiHost }: Config,
  { host, authorization }: IncomingHttpHeaders,
): boolean {
  if (apiToken === undefined)
    return isLoopback(apiHost) && isAskedLocally(host);

  const token = bearerOf(authorization);
  const tokens = { write: apiToken, read: apiReadToken };
  return token !== undefined && roleOfToken(token, tokens) !== undefined;
}
