/**
 * Decides what happens for a scheduled time: whether a run has to be started for it, and
 * when. These functions are pure; the workers, the status and the simulation of years all
 * use them.
 */
import {
  lastScheduledMs,
  nextScheduledMs,
  type Schedule,
} from '../../time/scheduled-times.ts';

/** The queue may be this late before a scheduled time counts as missed. */
export const LATE_MS = 2 * 60_000;
/** If a run ended further in the future than this, the clock that timed it was wrong. */
const CLOCK_TOLERANCE_MS = 60_000;
/**
 * How long to wait before retrying a failed nightly run: after the first failure, the
 * second, and so on.
 */
const RETRY_AFTER_MS = [5 * 60_000, 10 * 60_000, 20 * 60_000];
/** The wait after each further failure, until the next scheduled time. */
const RETRY_LAST_MS = 60 * 60_000;

/** A run that may have been for a scheduled time. */
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
  /** Nothing is missing up to this time; null if it is unknown. */
  readonly knownSinceMs: number | null;
}

/**
 * Decides whether a scheduled time is settled: by a run that is open, or by one that
 * ended after it and brought something. It is also settled if the mirror, or the
 * schedule, is younger. A run that ended in the future does not count, because its clock
 * was ahead.
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

/** The most times that a message names: more than a year of nights. */
const NAMED_MAX = 400;

/**
 * Lists the scheduled times before the last one that had no run and get none, because one
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
 * Lists the scheduled times that had no run and get none, because the run that the queue
 * begins now for `dueMs` takes their place. Most are later: the queue delivers a job days
 * late if its only worker was down. If that worker's clock is behind, they are earlier:
 * it then puts the last time into the queue once more, and not the next one.
 *
 * @param state the state of the last scheduled time before `nowMs`
 */
export function listReplaced(
  schedule: Schedule,
  state: ScheduledTimeState,
  dueMs: number,
  nowMs: number,
): readonly number[] {
  // Also settled if another schedule is in force, whose times differ from these.
  if (state.isSettled) return [];
  return listPassedOver(schedule, state.knownSinceMs, nowMs).filter(
    (timeMs) => timeMs !== dueMs,
  );
}

/**
 * Whether a time of the schedule lies before that schedule came into force. A worker
 * whose clock is behind puts such a time into the queue, and nothing is to begin for it.
 * A time of the schedule before may still be delivered, and counts.
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
 * Returns when to begin a run for a time that is not settled.
 * @param lateMs how late the queue may be
 * @returns Infinity if no run is to begin
 */
export function dueAgainMs(
  { failed, lastFailedMs }: ScheduledTimeState,
  kind: string,
  dueMs: number,
  lateMs = LATE_MS,
): number {
  if (failed === 0 || lastFailedMs === null) return dueMs + lateMs;
  // The nightly run also audits the lists, so it makes up for an audit that failed.
  if (kind !== 'nightly') return Infinity;

  return lastFailedMs + (RETRY_AFTER_MS[failed - 1] ?? RETRY_LAST_MS);
}

/**
 * Returns how long a scheduled job has to wait if the queue delivered it early because a
 * worker's clock is ahead.
 * @returns 0 if it need not wait
 */
export function earlyByMs(dueMs: number, nowMs: number): number {
  return dueMs - nowMs > CLOCK_TOLERANCE_MS ? dueMs - nowMs : 0;
}
