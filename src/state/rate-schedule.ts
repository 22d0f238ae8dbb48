/**
 * The shared rate as a schedule of single requests (GCRA): each reservation takes the next time, a
 * request interval after the one before. Unused time is given back only as a small burst, since a
 * store that lost its memory gives that burst once more.
 */
import { PermanentError } from '../core/errors.ts';

const SECOND_MICROS = 1_000_000;
/** How far ahead of its time a request may go: at most a quarter of a second's worth at once. */
const BURST_MICROS = 250_000;
/** A schedule further ahead than this means that the clock was set back. */
const AHEAD_MAX_MICROS = 600 * SECOND_MICROS;

/** All in microseconds. */
export interface RateSchedule {
  readonly interval: number;
  readonly burst: number;
  readonly aheadMax: number;
}

/** @throws PermanentError `STATE_RATE` where the rate is no positive number */
export function rateScheduleOf(ratePerSecond: number): RateSchedule {
  if (!(ratePerSecond > 0) || !Number.isFinite(ratePerSecond)) {
    throw new PermanentError(`Cannot schedule requests at ${ratePerSecond} a second; give a positive rate`, {
      code: 'STATE_RATE',
    });
  }
  return { interval: SECOND_MICROS / ratePerSecond, burst: BURST_MICROS, aheadMax: AHEAD_MAX_MICROS };
}

/**
 * Reserves the next request.
 * @param dueAt the time that the last reservation left, undefined at the beginning
 * @returns the time to leave, and how long to wait; the stores do the same in their own language
 */
export function reserveNext(
  dueAt: number | undefined,
  now: number,
  schedule: RateSchedule,
): { dueAt: number; waitMicros: number } {
  const at = Math.min(Math.max(dueAt ?? now, now), now + schedule.aheadMax);
  return { dueAt: at + schedule.interval, waitMicros: Math.max(0, at - schedule.burst - now) };
}

/** Timers count whole milliseconds: rounded up, never too early. */
export function wholeMs(micros: number): number {
  return Math.ceil(micros / 1000);
}
