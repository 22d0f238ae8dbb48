/** The read API and console over this mirror, listening. */
import { openSessionStore } from '../../api/access/store/session-store.ts';
import { listen, type Listening } from '../../api/http/listen.ts';
import { buildServer } from '../../api/http/server.ts';
import { openRows } from '../../postgres/rows.ts';
import { version } from '../../core/version.ts';
import { ReadStore } from '../../api/service/store/read-store.ts';
import type { App } from '../app.ts';
import { storeProbes } from '../services.ts';
import { consoleParts } from './console-parts.ts';
import { RunStarts } from '../../api/mirror/runs.ts';
import { ExportOrders } from '../../api/mirror/exports.ts';
import { addQueueBoard } from '../../api/console/queue-board.ts';

/**
 * @throws UsageError where others could reach it and there is no API_TOKEN
 * @throws PermanentError `API_PORT_UNUSABLE`
 */
export async function startApi(app: App): Promise<Listening> {
  const { config, jobs, log, queues, warehouse } = app;
  const server = await buildServer(
    {
      lists: new ReadStore(openRows(warehouse.pool)),
      ledger: { read: (question, signal) => jobs.stages.readLedger(question, signal) },
      status: app.status,
      runs: new RunStarts(jobs, (url) => app.workers.anyAlive(url)),
      jobs: new ExportOrders(jobs),
      console: consoleParts(app),
      probes: storeProbes(app),
      metrics: app.metrics(),
      sessions: openSessionStore(warehouse.db),
      log,
    },
    {
      token: config.apiToken,
      readToken: config.apiReadToken,
      hosts: [...(config.apiHosts ?? []), config.apiHost.toLowerCase()],
      version: version(),
    },
  );
  // Without a token nobody is known, so nobody may change what is queued.
  addQueueBoard(server, queues, config.apiToken === undefined);
  return listen(server, { host: config.apiHost, port: config.apiPort, token: config.apiToken });
}
