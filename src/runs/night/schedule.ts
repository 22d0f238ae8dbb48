/** Slots of the schedule. */
import { CronExpressionParser } from 'cron-parser';

export interface Schedule {
  readonly pattern: string;
  readonly tz: string;
}

/** The text by which a run has its slot for itself. */
export function slotName(dueMs: number): string {
  return `nightly ${new Date(dueMs).toISOString()}`;
}

/** The same for a list's weekly audit. */
export function auditSlotName(list: string, dueMs: number): string {
  return `audit ${list} ${new Date(dueMs).toISOString()}`;
}

/** The last slot before `nowMs`, in milliseconds since 1970. */
export function lastSlotMs({ pattern, tz }: Schedule, nowMs: number): number {
  return CronExpressionParser.parse(pattern, { tz, currentDate: new Date(nowMs) })
    .prev()
    .getTime();
}

/** The first slot after `nowMs`, in milliseconds since 1970. */
export function nextSlotMs({ pattern, tz }: Schedule, nowMs: number): number {
  return CronExpressionParser.parse(pattern, { tz, currentDate: new Date(nowMs) })
    .next()
    .getTime();
}
