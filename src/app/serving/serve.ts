/** Starts the read API and the console for this mirror. */
import { statfs } from 'node:fs/promises';
import { addQueueBoard } from '../../api/console/queue-board.ts';
import type { LakeQueries } from '../../api/console/lake-queries.ts';
import type { ConsoleParts, Upkeep } from '../../api/console/ports.ts';
import {
  buildServer,
  listen,
  type Listening,
} from '../../api/server/server.ts';
import { knownAssets } from '../../config/environment.ts';
import { shownSettings } from '../../config/secrets.ts';
import { sharedLoad } from '../../concurrency/shared-load.ts';
import { openRows } from '../../postgres/api-rows.ts';
import { QUEUE_NAMES } from '../../queue/backend.ts';
import {
  describeNightly,
  type FirstRunPreview,
  previewFirstRun,
} from '../../runs/nightly/nightly-preview.ts';
import type { App } from '../app.ts';
import { testNotices } from '../test-notice.ts';
import { openConsoleLake } from './console-lake.ts';

/** How long the measurements are cached, regardless of how many clients read them. */
const UPKEEP_MAX_AGE_MS = 5_000;
/** How long the result of a test notice is reused, so that a double click sends one. */
const NOTICE_MAX_AGE_MS = 1_000;
/**
 * How long a preview of the source's lists is reused. Several people who press the button
 * within that time cost the source four requests in total, and not four each.
 */
const LOOK_MAX_AGE_MS = 60_000;
/** A source that needs longer for four pages should be examined with `doctor`. */
const LOOK_TIMEOUT_MS = 45_000;

/**
 * Starts listening.
 * @throws UsageError if other machines could reach it and API_TOKEN is not set
 * @throws PermanentError `API_PORT_UNUSABLE`
 */
export async function startApi(app: App): Promise<Listening> {
  const { config, jobs, log, queues, warehouse } = app;
  const lake = openConsoleLake(config);
  const server = await buildServer(
    {
      rows: openRows(warehouse.pool),
      jobs,
      isAttended: (url) => app.workers.anyAlive(url),
      status: app.status,
      console: openConsole(app, lake),
      probes: app.probes,
      metrics: await app.metrics(),
      log,
    },
    { ...config, readTokens: app.readTokens },
  );
  server.addHook('onClose', () => lake[Symbol.asyncDispose]());
  // Without a token, clients are not authenticated, so nobody may change the queues.
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

/**
 * Builds the console's parts: the lake, a preview of the next run's requests, and the
 * figures that an operator monitors.
 */
function openConsole(app: App, lake: LakeQueries): ConsoleParts {
  const { config, jobs } = app;
  return {
    lake,
    settings: shownSettings(config),
    assets: knownAssets(config),
    preview: () => describeNightly(jobs, config),
    look: sharedLoad(() => lookFirst(app), LOOK_MAX_AGE_MS),
    // Requests within a second of each other share one notice.
    testNotices: sharedLoad(() => testNotices(config), NOTICE_MAX_AGE_MS),
    upkeep: sharedLoad(() => measureUpkeep(app), UPKEEP_MAX_AGE_MS),
  };
}

/** Requests both ends of each list from the source, and estimates the first run. */
async function lookFirst({ config, jobs }: App): Promise<FirstRunPreview> {
  const signal = AbortSignal.timeout(LOOK_TIMEOUT_MS);
  const sizes = await jobs.stages.estimateListSizes(signal);
  return previewFirstRun(sizes, jobs, config);
}

/** Measures queues and disk. Unreachable parts are omitted. */
async function measureUpkeep(app: App): Promise<Upkeep> {
  const { config, queues } = app;
  const [depths, disk] = await Promise.all([
    Promise.all(QUEUE_NAMES.map((queue) => queues.depth(queue))).catch(
      () => undefined,
    ),
    statfs(config.dataDir, { bigint: true }).catch(() => undefined),
  ]);
  // Delayed jobs are the schedules themselves, so they do not count as waiting.
  const waiting = depths?.map(
    ({ jobs }) => (jobs['waiting'] ?? 0) + (jobs['prioritized'] ?? 0),
  );
  return {
    jobsWaiting: waiting?.reduce((sum, jobs) => sum + jobs, 0) ?? null,
    oldestSeconds: Math.round(
      Math.max(0, ...(depths ?? []).map(({ oldestMs }) => oldestMs)) / 1_000,
    ),
    diskFreeBytes:
      disk === undefined ? null : (disk.bavail * disk.bsize).toString(),
    diskBytes:
      disk === undefined ? null : (disk.blocks * disk.bsize).toString(),
  };
}
