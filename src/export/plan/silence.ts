/**
 * Ranges of which the source sends nothing at all before it gives up: its query takes too long. Twice the
 * range is halved, which helps where the query takes longer for more; where it does not, nothing will. Pure.
 */
import { z } from 'zod';
import { DAY_MICROS } from '../../core/time.ts';
import { type Range, secondOf } from './ranges.ts';

const TIMES_BEFORE_HALVING = 2;
const HALVINGS_MAX = 2;
/** No query takes too long for a shorter range: whatever fails there, windows of half of it would fail as well. */
const LONG_SECONDS_MIN = secondOf(DAY_MICROS);
/** What nodes keep by default: where a range is halved blindly, earlier times count as empty. */
export const USUAL_SECONDS_MAX = secondOf(180n * DAY_MICROS);

export const silenceSchema = z.object({
  /** In a row. */
  times: z.int().nonnegative(),
  /** No longer range is asked for. */
  secondsMax: z.int().positive().optional(),
  /** What lies before is taken for empty. */
  firstSecond: z.int().optional(),
});

/** To be kept, as JSON. */
export type Silence = z.output<typeof silenceSchema>;

/**
 * A range was met with silence.
 * @returns undefined where halving it did not help, so that nothing is left to try
 */
export function countSilence(silence: Silence, range: Range): Silence | undefined {
  const firstSecond = silence.firstSecond ?? secondOf(range.to) - USUAL_SECONDS_MAX;
  const seconds = secondOf(range.to) - Math.max(secondOf(range.from), firstSecond);
  const { secondsMax } = silence;
  // It could not be asked for in windows, so nothing was learned about shorter ones.
  if (secondsMax !== undefined && seconds > secondsMax) return { ...silence, firstSecond };
  const times = silence.times + 1;
  const halvings = times - TIMES_BEFORE_HALVING;
  if (halvings >= HALVINGS_MAX) return undefined;
  if (seconds <= LONG_SECONDS_MIN) return { times, firstSecond, secondsMax };
  const half = Math.floor(seconds / 2);
  return { times, firstSecond, secondsMax: halvings >= 0 ? half : secondsMax };
}

/** Where a range must end at the latest; infinite where any range may be asked for. */
export function latestEnd({ secondsMax, firstSecond }: Silence, { from }: Range): number {
  return Math.max(secondOf(from), firstSecond ?? -Infinity) + (secondsMax ?? Infinity);
}
