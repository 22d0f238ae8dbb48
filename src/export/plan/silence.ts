/**
 * Ranges of which the source sends nothing at all before it gives up: its query takes too long. Twice the
 * range is halved, which helps where the query takes longer for more; where it does not, nothing will. Pure.
 */
import { z } from 'zod';
import { DAY_MICROS } from '../../core/time.ts';
import type { Range } from './ranges.ts';
import { secondOf } from '../validate/tail.ts';

const TIMES_BEFORE_HALVING = 2;
const HALVINGS_MAX = 2;
/** What nodes keep by default: what a range holds of earlier times is taken for nothing. */
const USUAL_SECONDS_MAX = secondOf(180n * DAY_MICROS);

export const silenceSchema = z.object({
  /** In a row. */
  times: z.int().nonnegative(),
  /** No longer range is asked for. */
  secondsMax: z.int().positive().optional(),
  /** What lies before is taken for empty. */
  firstSecond: z.int().optional(),
});

export class Silence {
  /** To be kept, as JSON. */
  readonly state: z.output<typeof silenceSchema>;

  constructor(remembered: z.output<typeof silenceSchema> = { times: 0 }) {
    this.state = { ...remembered };
  }

  /** A range was met with silence. @returns false: halving it did not help, so nothing is left to try */
  met(range: Range): boolean {
    const { state } = this;
    state.firstSecond ??= secondOf(range.to) - USUAL_SECONDS_MAX;
    const seconds = secondOf(range.to) - this.#first(range);
    // It could not be asked for in windows, so nothing was learned about shorter ones.
    if (state.secondsMax !== undefined && seconds > state.secondsMax) return true;
    state.times += 1;
    const halvings = state.times - TIMES_BEFORE_HALVING;
    if (halvings >= HALVINGS_MAX) return false;
    if (halvings >= 0) state.secondsMax = Math.max(1, Math.floor(seconds / 2));
    return true;
  }

  /** A range was answered, with rows in it: one that is answered because it is empty is no gain. */
  broken(): void {
    this.state.times = 0;
  }

  /** Where a range must end at the latest; undefined: it is short enough. */
  cut(range: Range): number | undefined {
    const second = this.#first(range) + (this.state.secondsMax ?? Number.POSITIVE_INFINITY);
    return second < secondOf(range.to) ? second : undefined;
  }

  #first({ from }: Range): number {
    return Math.max(secondOf(from), this.state.firstSecond ?? Number.NEGATIVE_INFINITY);
  }
}
