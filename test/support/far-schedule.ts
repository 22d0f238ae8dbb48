/**
 * A scheduled time half a year away, so that no night of the schedule begins, or counts
 * as missed, amid a test.
 */
const MONTHS = 12;
const HALF_A_YEAR = 6;

/** The month of that time, from 1. */
export function farMonth(nowMs = Date.now()): number {
  return ((new Date(nowMs).getUTCMonth() + HALF_A_YEAR) % MONTHS) + 1;
}

/** As a cron pattern in UTC. */
export function farSchedule(): string {
  return `0 0 1 ${farMonth()} *`;
}
