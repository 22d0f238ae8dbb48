/** Whether a schedule that the queue's store holds is the one that is wanted. Pure. */
import { nextScheduledMs, type Schedule } from '../time/scheduled-times.ts';

/** A scheduled job that is not taken this long after it was due counts as lost. */
const SCHEDULE_LATE_MS = 60_000;

/** What the store holds of a schedule; times in milliseconds since 1970. */
export interface HeldSchedule {
  readonly pattern?: string | undefined;
  readonly tz?: string | undefined;
  readonly next?: number | undefined;
}

/**
 * A schedule is kept if it has the same pattern and zone and a next time that is neither
 * lost nor too far away: a clock that was ahead leaves such a time, and nothing would run
 * until then.
 */
export function isScheduleKept(
  held: HeldSchedule | undefined,
  wanted: Schedule,
  nowMs: number,
): boolean {
  const nextMs = held?.next ?? 0;
  return (
    held?.pattern === wanted.pattern &&
    held.tz === wanted.tz &&
    nextMs > nowMs - SCHEDULE_LATE_MS &&
    nextMs <= nextScheduledMs(wanted, nowMs)
  );
}
