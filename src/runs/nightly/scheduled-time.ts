/**
 * What becomes of a scheduled time: whether something has to be started for it, and when.
 * Pure: the workers, the status and the simulation of years decide by these functions.
 */
import { nextScheduledMs, type Schedule } from '../../time/scheduled-times.ts';

/** The queue may be this late before a scheduled time counts as missed. */
export const LATE_MS = 2 * 60_000;
/**
 * A run that ended further in the future than this was timed by a clock that was wrong.
 */
const CLOCK_TOLERANCE_MS = 60_000;
/**
 * How long a nightly run that failed waits: after the first failure, the second, and so
 * on.
 */
const RETRY_AFTER_MS = [5 * 60_000, 10 * 60_000, 20 * 60_000];
/** From the next failure on, until the next scheduled time. */
const RETRY_LAST_MS = 60 * 60_000;

/** A run that may have been for a scheduled time. */
export interface Attempt {
  /** It is queued or running. */
  readonly isOpen: boolean;
  /** It failed, or ended because the source was away. */
  readonly hasFailed: boolean;
  /** In milliseconds since 1970; null while it is open. */
  readonly finishedMs: number | null;
}

/** What is recorded about a scheduled time; times in milliseconds since 1970. */
export interface TimeRecord {
  readonly attempts: readonly Attempt[];
  /** When the mirror began. */
  readonly mirrorSinceMs: number | null;
  /** Since when the schedule is in force; null if another one is, or none. */
  readonly scheduleSinceMs: number | null;
  /** Whether another schedule is recorded as in force. */
  readonly isOtherInForce: boolean;
  /** When the last run for such times ended before this one; null if none has. */
  readonly lastEndedMs: number | null;
}

/** What became of a scheduled time. */
export interface ScheduledTimeState {
  /** True if nothing has to be started for it. */
  readonly isSettled: boolean;
  /** How many of its runs have failed, or ended because the source was away. */
  readonly failed: number;
  /** When the last of these ended, in milliseconds since 1970; null if there is none. */
  readonly lastFailedMs: number | null;
  /** Nothing is missing up to here; null if nothing is known before the time. */
  readonly knownSinceMs: number | null;
}

/**
 * A scheduled time is settled by a run that is open, or that ended after it and brought
 * something. It is also settled if the mirror, or the schedule, is younger. What ended in
 * the future does not count: its clock was ahead.
 */
export function judgeScheduledTime(
  record: TimeRecord,
  dueMs: number,
  nowMs: number,
): ScheduledTimeState {
  const latestMs = nowMs + CLOCK_TOLERANCE_MS;
  const counted = record.attempts.filter(
    ({ isOpen, finishedMs }) =>
      isOpen ||
      (finishedMs !== null && finishedMs >= dueMs && finishedMs <= latestMs),
  );
  const failures = counted.filter(
    ({ isOpen, hasFailed }) => !isOpen && hasFailed,
  );
  const ends = failures.map(({ finishedMs }) => finishedMs ?? 0);

  const { mirrorSinceMs, scheduleSinceMs, isOtherInForce } = record;
  const isYounger =
    isOtherInForce ||
    (mirrorSinceMs !== null &&
      mirrorSinceMs > dueMs &&
      mirrorSinceMs <= latestMs) ||
    (scheduleSinceMs !== null && scheduleSinceMs > dueMs);
  return {
    isSettled: counted.length > failures.length || isYounger,
    failed: failures.length,
    lastFailedMs: ends.length === 0 ? null : Math.max(...ends),
    knownSinceMs: latest(record.lastEndedMs, mirrorSinceMs, scheduleSinceMs),
  };
}

function latest(...times: readonly (number | null)[]): number | null {
  const known = times.filter((time) => time !== null);
  return known.length === 0 ? null : Math.max(...known);
}

/** The most times that are named: more than a year of nights. */
const NAMED_MAX = 400;

/**
 * Names the scheduled times before the last one that have had no run and get none: one
 * run brings what all of them would have brought.
 */
export function listPassedOver(
  schedule: Schedule,
  sinceMs: number | null,
  dueMs: number,
): readonly number[] {
  const times: number[] = [];
  if (sinceMs === null) return times;

  for (
    let timeMs = nextScheduledMs(schedule, sinceMs);
    timeMs < dueMs && times.length < NAMED_MAX;
    timeMs = nextScheduledMs(schedule, timeMs)
  )
    times.push(timeMs);
  return times;
}

/** The same as `listPassedOver`, as RFC 3339, for a log line. */
export function namePassedOver(
  ...asked: Parameters<typeof listPassedOver>
): readonly string[] {
  return listPassedOver(...asked).map((timeMs) =>
    new Date(timeMs).toISOString(),
  );
}

/**
 * When a run is to be begun for a time that is not settled.
 * @param lateMs how late the queue may be
 * @returns Infinity if none is
 */
export function dueAgainMs(
  { failed, lastFailedMs }: ScheduledTimeState,
  kind: string,
  dueMs: number,
  lateMs = LATE_MS,
): number {
  if (failed === 0 || lastFailedMs === null) return dueMs + lateMs;
  // The nightly run audits the lists as well; an audit that failed waits for it.
  if (kind !== 'nightly') return Infinity;

  return lastFailedMs + (RETRY_AFTER_MS[failed - 1] ?? RETRY_LAST_MS);
}

/**
 * How long a scheduled job waits that the queue delivered before its time, by the clock of
 * a worker that is ahead.
 * @returns 0 if it need not wait
 */
export function earlyByMs(dueMs: number, nowMs: number): number {
  return dueMs - nowMs > CLOCK_TOLERANCE_MS ? dueMs - nowMs : 0;
}
