/** What an operator looks after beside the runs: queues, the next audit, the disk. A part that is away is left out. */
import { statfs } from 'node:fs/promises';
import type { Upkeep } from '../../api/console/console-ports.ts';
import { sharedLoad } from '../../core/shared-load.ts';
import { QUEUE_NAMES } from '../../queue/queues.ts';
import { nextScheduledMs } from '../../runs/nightly/schedule.ts';
import type { App } from '../app.ts';

/** However many look. */
const MAX_AGE_MS = 5_000;

export function openUpkeep({ config, queues }: Pick<App, 'config' | 'queues'>): () => Promise<Upkeep> {
  const { sourceUrl, auditSchedule: pattern, scheduleTz: tz, dataDir } = config;
  const measure = async (): Promise<Upkeep> => {
    const [depths, disk] = await Promise.all([
      Promise.all(QUEUE_NAMES.map((queue) => queues.depth(queue))).catch(() => undefined),
      statfs(dataDir, { bigint: true }).catch(() => undefined),
    ]);
    // What is delayed are the schedules themselves.
    const waiting = depths?.map(({ jobs }) => (jobs['waiting'] ?? 0) + (jobs['prioritized'] ?? 0));
    return {
      jobsWaiting: waiting?.reduce((sum, jobs) => sum + jobs, 0) ?? null,
      oldestSeconds: Math.round(Math.max(0, ...(depths ?? []).map(({ oldestMs }) => oldestMs)) / 1_000),
      nextAudit:
        sourceUrl === undefined ? null : new Date(nextScheduledMs({ pattern, tz }, Date.now())).toISOString(),
      diskFreeBytes: disk === undefined ? null : (disk.bavail * disk.bsize).toString(),
      diskBytes: disk === undefined ? null : (disk.blocks * disk.bsize).toString(),
    };
  };
  return sharedLoad(measure, MAX_AGE_MS);
}
