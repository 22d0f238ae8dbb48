/**
 * The shared rate as a schedule of single requests (GCRA): each reservation takes the next place, a
 * request interval after the one before. Unused time is given back only as a small burst, since a
 * store that lost its memory gives that burst once more.
 */
import { PermanentError } from '../core/errors.ts';

const SECOND_MICROS = 1_000_000;
/** How far ahead of its place a request may go: at most a quarter of a second's worth at once. */
const BURST_MICROS = 250_000;
/** A schedule further ahead than this means that the clock was set back. */
const AHEAD_MAX_MICROS = 600 * SECOND_MICROS;

/** All in microseconds. */
export interface Pace {
  readonly interval: number;
  readonly burst: number;
  readonly aheadMax: number;
}

/** @throws PermanentError `STATE_RATE` where the rate is no positive number */
export function paceOf(ratePerSecond: number): Pace {
  if (!(ratePerSecond > 0) || !Number.isFinite(ratePerSecond)) {
    throw new PermanentError(`Cannot pace requests at ${ratePerSecond} a second; give a positive rate`, {
      code: 'STATE_RATE',
    });
  }
  return { interval: SECOND_MICROS / ratePerSecond, burst: BURST_MICROS, aheadMax: AHEAD_MAX_MICROS };
}

/**
 * Takes the next place.
 * @param place the one that the reservation before left, undefined at the beginning
 * @returns the place to leave, and how long to wait; the stores do the same in their own language
 */
export function takePlace(
  place: number | undefined,
  now: number,
  pace: Pace,
): { place: number; waitMicros: number } {
  const mine = Math.min(Math.max(place ?? now, now), now + pace.aheadMax);
  return { place: mine + pace.interval, waitMicros: Math.max(0, mine - pace.burst - now) };
}

/** Timers count whole milliseconds: rounded up, never too early. */
export function wholeMs(micros: number): number {
  return Math.ceil(micros / 1000);
}
