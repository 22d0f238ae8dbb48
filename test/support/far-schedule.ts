/**
 * A scheduled time half a year away, so that no scheduled night begins, or counts as
 * missed, during a test.
 */
const MONTHS = 12;
const HALF_A_YEAR = 6;

/** Returns the month of that time, counted from 1. */
export function farMonth(nowMs = Date.now()): number {
  return ((new Date(nowMs).getUTCMonth() + HALF_A_YEAR) % MONTHS) + 1;
}

/** Returns that time as a cron pattern in UTC. */
export function farSchedule(): string {
  return `0 0 1 ${farMonth()} *`;
}
