/**
 * Facts about nightly runs: the next, the last, the missed and the running one. The
 * conclusions are drawn here, using the database's clock and the schedule in force. The
 * status, the console, the metrics and `doctor` all show them, and use no clock or
 * schedule of their own. Pure.
 */
import type { Verdict } from '../errors/verdict.ts';
import { nextScheduledMs, type Schedules } from '../time/scheduled-times.ts';

/** A nightly run that has ended; times are RFC 3339. */
export interface EndedNight {
  readonly runId: string;
  readonly verdict: Verdict;
  readonly startedAt: string | null;
  readonly finishedAt: string;
}

/** A nightly run that is queued or in progress. */
export interface RunningNight {
  readonly runId: string;
  /** When the run started; null while it is queued. */
  readonly startedAt: string | null;
  /** Since when and why it has been waiting for the source; null if it is not waiting. */
  readonly awaitedSource: {
    readonly since: string;
    readonly reason: string;
  } | null;
}

/** The facts about nightly runs that are recorded in the table of runs. */
export interface RecordedNights {
  readonly last: EndedNight | null;
  readonly lastCompleteAt: string | null;
  readonly running: RunningNight | null;
}

/** The facts about nightly runs; times are RFC 3339. */
export interface NightFacts extends RecordedNights {
  /** The next scheduled time; null if no worker is running to start the run. */
  readonly nextAt: string | null;
  /**
   * When the lists will next be audited; null if no worker is running to start the audit.
   */
  readonly nextAuditAt: string | null;
  /** A scheduled time whose nightly run never started; a worker will make up for it. */
  readonly missedAt: string | null;
}

/**
 * The schedule in force, and the scheduled time that was missed. Times are milliseconds
 * since 1970, by the database's clock.
 */
export interface ScheduledNights {
  readonly nowMs: number;
  /** The schedules of the worker that started last; null if no worker is running. */
  readonly inForce: Schedules | null;
  readonly missedMs: number | undefined;
}

export function describeNights(
  { nowMs, inForce, missedMs }: ScheduledNights,
  recorded: RecordedNights,
): NightFacts {
  const formatTime = (ms: number): string => new Date(ms).toISOString();
  return {
    nextAt: inForce && formatTime(nextScheduledMs(inForce.nightly, nowMs)),
    nextAuditAt: inForce && formatTime(nextScheduledMs(inForce.audit, nowMs)),
    missedAt: missedMs === undefined ? null : formatTime(missedMs),
    ...recorded,
  };
}
