/**
 * Decides whether a schedule in the queue's store can be left unchanged. Has no side
 * effects.
 */
import { nextScheduledMs, type Schedule } from '../time/scheduled-times.ts';

/**
 * How long after its due time a scheduled job counts as lost if no worker has taken it.
 */
const SCHEDULE_LATE_MS = 60_000;

/** A schedule as stored; times in milliseconds since 1970. */
export interface HeldSchedule {
  readonly pattern?: string | undefined;
  readonly tz?: string | undefined;
  readonly next?: number | undefined;
}

/**
 * Whether a stored schedule can be kept. It must have the wanted pattern and zone, and a
 * next time that is neither lost nor too far ahead. A time that was stored while a clock
 * was ahead may be too far in the future, and nothing would run until then.
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
