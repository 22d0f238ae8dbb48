/** Scheduled times, in milliseconds since 1970. */
import { CronExpressionParser } from 'cron-parser';

export interface Schedule {
  readonly pattern: string;
  readonly tz: string;
}

const timesAround = ({ pattern, tz }: Schedule, nowMs: number) =>
  CronExpressionParser.parse(pattern, { tz, currentDate: new Date(nowMs) });

export function lastScheduledMs(schedule: Schedule, nowMs: number): number {
  return timesAround(schedule, nowMs).prev().getTime();
}

export function nextScheduledMs(schedule: Schedule, nowMs: number): number {
  return timesAround(schedule, nowMs).next().getTime();
}
