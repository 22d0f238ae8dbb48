/** The read API and console over this mirror, listening. */
import { statfs } from 'node:fs/promises';
import { addQueueBoard } from '../../api/console/queue-board.ts';
import type { ConsoleParts, Upkeep } from '../../api/console/ports.ts';
import {
  buildServer,
  listen,
  type Listening,
} from '../../api/server/server.ts';
import { shownSettings } from '../../config/secrets.ts';
import { sharedLoad } from '../../concurrency/shared-load.ts';
import { openRows } from '../../postgres/rows.ts';
import { QUEUE_NAMES } from '../../queue/backend.ts';
import { describeNightly } from '../../runs/nightly/nightly-preview.ts';
import { nextScheduledMs } from '../../time/scheduled-times.ts';
import type { App } from '../app.ts';
import { openConsoleLake } from './console-lake.ts';

/** However many look. */
const UPKEEP_MAX_AGE_MS = 5_000;

/**
 * @throws UsageError if others could reach it and there is no API_TOKEN
 * @throws PermanentError `API_PORT_UNUSABLE`
 */
export async function startApi(app: App): Promise<Listening> {
  const { config, jobs, log, queues, warehouse } = app;
  const server = await buildServer(
    {
      rows: openRows(warehouse.pool),
      jobs,
      isAttended: (url) => app.workers.anyAlive(url),
      status: app.status,
      console: openConsole(app),
      probes: app.probes,
      metrics: await app.metrics(),
      log,
    },
    config,
  );
  // Without a token nobody is known, so nobody may change what is queued.
  addQueueBoard(server, queues, {
    isReadOnly: config.apiToken === undefined,
    basePath: config.apiBasePath ?? '',
  });
  return listen(server, {
    host: config.apiHost,
    port: config.apiPort,
    token: config.apiToken,
  });
}

/** The console's parts: its lake, what a run would ask, and what needs looking after. */
function openConsole(app: App): ConsoleParts {
  const { config, jobs } = app;
  return {
    lake: openConsoleLake(config),
    settings: shownSettings(config),
    nextNightlyRun: () => nextTime(app, config.schedule),
    preview: () => describeNightly(jobs, config),
    upkeep: sharedLoad(() => measureUpkeep(app), UPKEEP_MAX_AGE_MS),
  };
}

/** Null where no source is set, so that nothing is scheduled. */
function nextTime(
  { config: { sourceUrl, scheduleTz: tz } }: App,
  pattern: string,
): string | null {
  if (sourceUrl === undefined) return null;
  return new Date(nextScheduledMs({ pattern, tz }, Date.now())).toISOString();
}

/** A part that is away is left out. */
async function measureUpkeep(app: App): Promise<Upkeep> {
  const { config, queues } = app;
  const [depths, disk] = await Promise.all([
    Promise.all(QUEUE_NAMES.map((queue) => queues.depth(queue))).catch(
      () => undefined,
    ),
    statfs(config.dataDir, { bigint: true }).catch(() => undefined),
  ]);
  // What is delayed are the schedules themselves.
  const waiting = depths?.map(
    ({ jobs }) => (jobs['waiting'] ?? 0) + (jobs['prioritized'] ?? 0),
  );
  return {
    jobsWaiting: waiting?.reduce((sum, jobs) => sum + jobs, 0) ?? null,
    oldestSeconds: Math.round(
      Math.max(0, ...(depths ?? []).map(({ oldestMs }) => oldestMs)) / 1_000,
    ),
    nextAudit: nextTime(app, config.auditSchedule),
    diskFreeBytes:
      disk === undefined ? null : (disk.bavail * disk.bsize).toString(),
    diskBytes:
      disk === undefined ? null : (disk.blocks * disk.bsize).toString(),
  };
}
