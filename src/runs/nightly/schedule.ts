/** Scheduled times, and the keys by which at most one run has each. */
import { CronExpressionParser } from 'cron-parser';

export interface Schedule {
  readonly pattern: string;
  readonly tz: string;
}

/** At most one run has this key: the scheduled time of a nightly run. */
export function nightlyScheduleKey(dueMs: number): string {
  return `nightly ${new Date(dueMs).toISOString()}`;
}

/** The same for a list's weekly audit. */
export function auditScheduleKey(list: string, dueMs: number): string {
  return `audit ${list} ${new Date(dueMs).toISOString()}`;
}

/** The last scheduled time before `nowMs`, in milliseconds since 1970. */
export function lastScheduledMs({ pattern, tz }: Schedule, nowMs: number): number {
  return CronExpressionParser.parse(pattern, { tz, currentDate: new Date(nowMs) })
    .prev()
    .getTime();
}

/** The first scheduled time after `nowMs`, in milliseconds since 1970. */
export function nextScheduledMs({ pattern, tz }: Schedule, nowMs: number): number {
  return CronExpressionParser.parse(pattern, { tz, currentDate: new Date(nowMs) })
    .next()
    .getTime();
}
