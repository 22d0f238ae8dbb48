/**
 * Decides whether a run has to be started for a scheduled time, and when. These functions
 * are pure; they are shared by the workers, the status and the test that simulates years.
 */
import {
  lastScheduledMs,
  nextScheduledMs,
  type Schedule,
} from '../../time/scheduled-times.ts';

/** How late the queue may be before a scheduled time counts as missed. */
export const LATE_MS = 2 * 60_000;
/**
 * If a run's end lies further in the future than this, the clock that recorded it was
 * wrong.
 */
const CLOCK_TOLERANCE_MS = 60_000;
/**
 * How long to wait before retrying a failed nightly run: after the first failure, the
 * second, and so on.
 */
const RETRY_AFTER_MS = [5 * 60_000, 10 * 60_000, 20 * 60_000];
/** How long to wait after each further failure, until the next scheduled time. */
const RETRY_LAST_MS = 60 * 60_000;

/** A run that may have served a scheduled time. */
export interface Attempt {
  /** True if it is queued or running. */
  readonly isOpen: boolean;
  /** True if it failed, or ended because the source was unavailable. */
  readonly hasFailed: boolean;
  /** In milliseconds since 1970; null while it is open. */
  readonly finishedMs: number | null;
}

/** What is recorded about a scheduled time; times in milliseconds since 1970. */
export interface TimeRecord {
  readonly attempts: readonly Attempt[];
  /** When the mirror was created. */
  readonly mirrorSinceMs: number | null;
  /** When the schedule came into force; null if it is not in force. */
  readonly scheduleSinceMs: number | null;
  /** Whether another schedule is recorded as in force. */
  readonly isOtherInForce: boolean;
  /**
   * When the last run of this kind before the scheduled time ended; null if there is
   * none.
   */
  readonly lastEndedMs: number | null;
}

/** The state of a scheduled time. */
export interface ScheduledTimeState {
  /** True if no run has to be started for it. */
  readonly isSettled: boolean;
  /** How many of its runs have failed, or ended because the source was unavailable. */
  readonly failed: number;
  /**
   * When the last of these failures ended, in milliseconds since 1970; null if there is
   * none.
   */
  readonly lastFailedMs: number | null;
  /** No run is missing up to this time; null if that is unknown. */
  readonly knownSinceMs: number | null;
}

/**
 * Decides whether a scheduled time is settled. It is settled by an open run, or by one
 * that ended after it without failing. It is also settled if the mirror or the schedule
 * is younger than the time. A run that ended in the future does not count, because the
 * clock that recorded it was ahead.
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
    (scheduleSinceMs !== null &&
      scheduleSinceMs > dueMs &&
      scheduleSinceMs <= latestMs);
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

/** Maximum number of times listed in a message: more than a year of nights. */
const NAMED_MAX = 400;

/**
 * Lists those scheduled times before the last one that had no run and will not get one,
 * because one run fetches everything they would have fetched.
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

/** Returns the same as `listPassedOver`, as RFC 3339, for a log line. */
export function namePassedOver(
  ...asked: Parameters<typeof listPassedOver>
): readonly string[] {
  return nameTimes(listPassedOver(...asked));
}

/** Returns times as RFC 3339. */
export function nameTimes(times: readonly number[]): readonly string[] {
  return times.map((timeMs) => new Date(timeMs).toISOString());
}

/**
 * Lists the scheduled times that had no run and will get none, because the run that the
 * queue starts now for `dueMs` replaces them. Most are later than `dueMs`, since a job
 * is delivered days late if the only worker was down. If the worker's clock is behind,
 * they are earlier, because the worker queues the last time again instead of the next
 * one.
 *
 * @param state the state of the last scheduled time before `nowMs`
 */
export function listReplaced(
  schedule: Schedule,
  state: ScheduledTimeState,
  dueMs: number,
  nowMs: number,
): readonly number[] {
  // Also settled if another schedule is in force, because its times are different.
  if (state.isSettled) return [];
  return listPassedOver(schedule, state.knownSinceMs, nowMs).filter(
    (timeMs) => timeMs !== dueMs,
  );
}

/**
 * Whether a time of the schedule lies before that schedule came into force. A worker
 * whose clock is behind may queue such a time, but no run may start for it. A time of the
 * previous schedule may still be delivered, and does count.
 */
export function isBeforeSchedule(
  schedule: Schedule & { readonly sinceMs: number },
  dueMs: number,
  nowMs: number,
): boolean {
  const { sinceMs } = schedule;
  if (dueMs >= sinceMs) return false;
  // The database's clock was ahead when it recorded the schedule.
  if (sinceMs > nowMs + CLOCK_TOLERANCE_MS) return false;
  return lastScheduledMs(schedule, dueMs) === dueMs;
}

/**
 * Returns when to start a run for a time that is not settled.
 * @param lateMs how late the queue may be
 * @returns milliseconds since 1970; Infinity if no run is to start
 */
export function dueAgainMs(
  { failed, lastFailedMs }: ScheduledTimeState,
  kind: string,
  dueMs: number,
  lateMs = LATE_MS,
): number {
  if (failed === 0 || lastFailedMs === null) return dueMs + lateMs;
  // A failed audit needs no retry of its own, because the nightly run audits the lists
  // too.
  if (kind !== 'nightly') return Infinity;

  return lastFailedMs + (RETRY_AFTER_MS[failed - 1] ?? RETRY_LAST_MS);
}

/**
 * Returns how long a scheduled job has to wait, if the queue delivered it early because a
 * worker's clock is ahead.
 * @returns 0 if it need not wait
 */
export function earlyByMs(dueMs: number, nowMs: number): number {
  return dueMs - nowMs > CLOCK_TOLERANCE_MS ? dueMs - nowMs : 0;
}
