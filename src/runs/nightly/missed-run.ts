/** Whether the schedule is kept; apart, so that looking loads no queue. */
import type { JobDeps } from '../job.ts';
import { lastScheduledMs, type Schedule } from './schedule.ts';

/** The queue may be this late before a scheduled time counts as missed. */
export const LATE_MS = 2 * 60_000;
/**
 * The last scheduled time, in milliseconds since 1970, for which no run was started, was still going then, or came
 * after it. A mirror that was made after it has missed nothing.
 */
export async function missedScheduledMs(
  schedule: Schedule,
  deps: Pick<JobDeps, 'scheduled'>,
  nowMs: number,
): Promise<number | undefined> {
  const dueMs = lastScheduledMs(schedule, nowMs);
  if (nowMs - dueMs < LATE_MS) return undefined;
  const scheduledAt = new Date(dueMs).toISOString();
  if (await deps.scheduled.hasRunSince(scheduledAt)) return undefined;
  const { runs } = await deps.scheduled.failedSince(scheduledAt);
  return runs > 0 ? undefined : dueMs;
}
