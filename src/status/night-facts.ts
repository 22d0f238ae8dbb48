/**
 * What is said of nightly runs: the next, the last, the missed and the running one. Status,
 * console, metrics and `doctor` show what is concluded here, by the database's clock and
 * the schedule in force, and none of them looks at its own. Pure.
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

/** A nightly run that is queued, or that a process works on. */
export interface RunningNight {
  readonly runId: string;
  /** Null while it is queued. */
  readonly startedAt: string | null;
  /** Since when, and why, it waits for the source; null if it does not. */
  readonly awaitedSource: {
    readonly since: string;
    readonly reason: string;
  } | null;
}

/** What the table of runs says of nightly runs. */
export interface RecordedNights {
  readonly last: EndedNight | null;
  readonly lastCompleteAt: string | null;
  readonly running: RunningNight | null;
}

/** Times are RFC 3339. */
export interface NightFacts extends RecordedNights {
  /** The next scheduled time; null if no worker is there to begin it. */
  readonly nextAt: string | null;
  /** When the lists are audited next; null if no worker is there to begin it. */
  readonly nextAuditAt: string | null;
  /** A scheduled time whose nightly run never began; a worker makes it up. */
  readonly missedAt: string | null;
}

/** What the schedule says; times in milliseconds since 1970, by the database's clock. */
export interface ScheduledNights {
  readonly nowMs: number;
  /** Null if no worker is running. */
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
