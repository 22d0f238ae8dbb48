/** The read API and console over this mirror, listening. */
import { join } from 'node:path';
import { listen, type Listening } from '../api/listen.ts';
import type { Probe } from '../api/ports.ts';
import { buildServer } from '../api/server.ts';
import { version } from '../core/version.ts';
import { ReadStore } from '../warehouse/read-store.ts';
import type { App } from './app.ts';
import { Downloads } from './downloads.ts';
import { openExportOrders } from './export-orders.ts';

/**
 * @throws UsageError where others could reach it and there is no API_TOKEN
 * @throws PermanentError `API_PORT_UNUSABLE`
 */
export async function startApi(app: App): Promise<Listening> {
  const { config, jobs, log, warehouse } = app;
  const server = await buildServer(
    {
      lists: new ReadStore(warehouse.pool),
      ledger: { read: (question, signal) => jobs.stages.readLedger(question, signal) },
      status: app.status,
      jobs: openExportOrders(jobs, new Downloads(join(config.dataDir, 'downloads'))),
      probes: probesOf(app),
      metrics: [],
      log,
    },
    { token: config.apiToken, version: version() },
  );
  return listen(server, { host: config.apiHost, port: config.apiPort, token: config.apiToken });
}

function probesOf(app: App): readonly Probe[] {
  return [
    {
      name: 'database',
      check: async () => {
        await app.warehouse.pool.query('select 1');
      },
    },
    {
      name: 'queues',
      check: async () => {
        await app.queues.counts('export');
      },
    },
    {
      name: 'objects',
      check: async (signal) => {
        await app.store.head('probe/readyz', signal);
      },
    },
  ];
}
