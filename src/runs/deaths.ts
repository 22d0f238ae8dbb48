/**
 * Deliveries that ended their process: an answer that no machine can take must not end it again and again.
 * A kill from outside looks the same, so only deaths in a row count, at the same place, of processes that
 * had lived long enough to get further.
 */
import { createHash } from 'node:crypto';
import type { JobDeps } from './job.ts';
import type { Run } from './store/run.ts';

/** So many processes may end over the same work. */
export const DEATHS_MAX = 3;
/** A process that was ended sooner proves nothing. */
const LIFE_MS_MIN = 3_000;

interface Deps extends Pick<JobDeps, 'runs'> {
  readonly progress: Pick<JobDeps['progress'], 'read'>;
}

/**
 * @param known the run as it was found, before this delivery started it
 * @returns how many processes in a row ended at this place, this one's predecessor included
 */
export async function countDeaths(known: Run, { runs, progress }: Deps): Promise<number> {
  // Whoever stops in order, or fails, gives the run back: it has no heartbeat then.
  if (known.state !== 'running' || known.heartbeatAt === null) return 0;
  const { deliveredAt: noted } = known.params;
  const deliveredAt = typeof noted === 'string' ? noted : (known.startedAt ?? known.queuedAt);
  const livedMs = Date.parse(known.heartbeatAt) - Date.parse(deliveredAt);
  const place = await hashProgress(known, progress);
  const before = known.params['diedAt'] === place ? Number(known.params['deaths'] ?? 0) : 0;
  const deaths = livedMs < LIFE_MS_MIN ? before : before + 1;
  await runs.keep(known.runId, { deaths, diedAt: place, deliveredAt: new Date().toISOString() });
  return deaths;
}

/** Short, and another as soon as the run got further. */
async function hashProgress({ runId }: Run, progress: Deps['progress']): Promise<string> {
  const lines = await progress.read(runId);
  return createHash('sha256').update(JSON.stringify(lines)).digest('hex').slice(0, 16);
}
