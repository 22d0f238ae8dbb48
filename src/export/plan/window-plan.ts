/**
 * How much of a ledger to ask for at once. Normally all: every request is a full scan at the source. A stream that
 * outgrows a segment is cancelled, and one that broke twice is not asked for whole again. From then on the range is
 * asked for in windows, the earliest first, each shorter than the one it was cut from.
 *
 * At most twice the ledger is asked for, and what was in flight at each kill: a stream is cancelled only while no more
 * was cancelled than the ledger is known to hold.
 *
 * It only proposes where to cut. What is left to ask is computed from the warehouse every time, so a plan that is
 * lost or outdated costs bytes at most. Pure.
 */
import { z } from 'zod';
import type { Micros } from '../../core/time.ts';
import { instantOf, type Range, secondOf } from './ranges.ts';
import { countSilence, latestEnd, silenceSchema, USUAL_SECONDS_MAX } from './silence.ts';
import { findBorder, hasLess, mergeSeen, type Stretch, sumBytes } from './time-histogram.ts';

/** A window's size is an estimate, and stays this far below what a stream may hold. */
const WINDOW_PART = 0.7;
/** A stream that broke is asked for whole once more; from then on in windows that are half of what came. */
const BREAKS_MAX = 1;
const BROKEN_PART = 0.5;
/** Smaller windows are not worth a request. */
const LEAST_WINDOW_BYTES = 64 * 2 ** 10;
/** Of what an unsorted stream showed, this part is asked for next: nobody knows how much it did not show. */
const UNSORTED_PART = 1 / 16;
/** Of a segment: so much may come twice among the cancelled streams themselves. */
const REPEATED_PART = 1 / 16;
const STRETCHES_MAX = 1024;

const count = z.number().nonnegative();
const planSchema = z.object({
  version: z.literal(5),
  breaks: z.int().nonnegative(),
  /** Of the longest stream that broke. */
  brokenBytes: count.optional(),
  /** What streams that did not come to their end showed of the rows that are still to come. */
  seen: z
    .array(z.object({ from: z.int(), to: z.int(), bytes: count }).readonly())
    .max(STRETCHES_MAX)
    .readonly(),
  sortedTo: z.int().optional(),
  /** The last range whose answer was too large, in seconds, and how often its beginning was asked for in vain. */
  outgrown: z.object({ from: z.int(), to: z.int(), times: z.int().positive() }).optional(),
  /** Bytes of cancelled streams, less those of finished windows. */
  owedBytes: z.number(),
  silence: silenceSchema,
});

/** What was received of an answer that did not come to its end. */
export interface Seen {
  /** All that came over the wire. */
  readonly bytes: number;
  /** Where the rows lie that were asked for. */
  readonly stretches: readonly Stretch[];
  /** Times never went back: every second before this one is there whole. */
  readonly sortedTo: number | undefined;
}

export class WindowPlan {
  /** A longer answer is cancelled. */
  readonly streamBytesMax: number;
  readonly #kept: z.output<typeof planSchema>;
  /** What the last window held says how much the window right behind it may hold. */
  #last: { readonly toSecond: number; readonly bytesPerSecond: number } | undefined;

  /** @param remembered what `toJson` gave in an earlier try; what is none is ignored */
  constructor(segmentBytesMax: number, remembered?: unknown) {
    this.streamBytesMax = segmentBytesMax;
    const known = planSchema.safeParse(remembered).data;
    this.#kept = known ?? { version: 5, breaks: 0, seen: [], owedBytes: 0, silence: { times: 0 } };
  }

  get #isBroken(): boolean {
    return this.#kept.breaks > BREAKS_MAX;
  }

  /** The size of a window. */
  get windowBytes(): number {
    const wanted = WINDOW_PART * this.streamBytesMax;
    const { brokenBytes = Infinity } = this.#kept;
    return this.#isBroken
      ? Math.min(wanted, Math.max(LEAST_WINDOW_BYTES, BROKEN_PART * brokenBytes))
      : wanted;
  }

  /** Whether no more was cancelled than the ledger is known to hold: then twice the ledger is asked for at most. */
  get isAffordable(): boolean {
    const { seen, owedBytes } = this.#kept;
    return owedBytes <= sumBytes(seen) + REPEATED_PART * this.streamBytesMax;
  }

  /** The same plan, had the stream in hand been cancelled. */
  ifOutgrown(seen: Seen, range: Range): WindowPlan {
    const copy = new WindowPlan(this.streamBytesMax, this.toJson());
    copy.outgrown(seen, range);
    return copy;
  }

  /**
   * Where to end the next request about a range.
   * @returns a whole second strictly inside the range, and before the end of any that was too large;
   *   undefined: all of it should be asked for
   */
  cut(range: Range): Micros | undefined {
    const [from, to] = [secondOf(range.from), secondOf(range.to)];
    const second = Math.min(this.#cutBySize(from, to), latestEnd(this.#kept.silence, range));
    return second < to ? instantOf(second) : undefined;
  }

  /** Where to begin instead, after an answer that reached the range's end was too large: ever closer to that end. */
  laterStart(range: Range): Micros | undefined {
    const [from, to] = [secondOf(range.from), secondOf(range.to)];
    const last = this.#kept.outgrown;
    if (last === undefined || last.to !== to) return undefined;
    const first = Math.max(from, last.from, last.from === 0 ? to - USUAL_SECONDS_MAX : 0);
    const second = Math.floor((first + to) / 2);
    return second > first && second < to ? instantOf(second) : undefined;
  }

  /** An answer broke on its way. */
  broke(seen: Seen): void {
    this.#kept.breaks += 1;
    this.#kept.brokenBytes = seen.bytes;
    this.#remember(seen);
    this.#last = undefined;
  }

  /** An answer was cancelled. @param range given where it was too large for it */
  outgrown(seen: Seen, range?: Range): void {
    this.#remember(seen);
    this.#kept.owedBytes += sumBytes(seen.stretches);
    // Another window now would not be the one that is in doubt.
    if (range === undefined) return;
    this.#last = undefined;
    const from = secondOf(range.from);
    const times = this.#kept.outgrown?.from === from ? this.#kept.outgrown.times + 1 : 1;
    this.#kept.outgrown = { from, to: secondOf(range.to), times };
  }

  /** Longer ranges than that are not answered. */
  get isSilent(): boolean {
    return this.#kept.silence.secondsMax !== undefined;
  }

  /** Nothing came of a range. @returns false: that will not change */
  silent(range: Range): boolean {
    const silence = countSilence(this.#kept.silence, range);
    if (silence !== undefined) this.#kept.silence = silence;
    return silence !== undefined;
  }

  /**
   * A range was answered to its end.
   * @param bytes of the rows in it
   * @param firstSecond of its rows
   */
  done(range: Range, bytes: number, firstSecond: number | undefined): void {
    // One that is answered because it is empty is no gain.
    if (bytes > 0) this.#kept.silence.times = 0;
    this.#kept.owedBytes -= bytes;
    const [from, to] = [secondOf(range.from), secondOf(range.to)];
    this.#kept.seen = this.#kept.seen.filter((stretch) => stretch.from >= to);
    this.#last = {
      toSecond: to,
      bytesPerSecond: bytes / Math.max(1, to - Math.max(from, firstSecond ?? from)),
    };
  }

  /** Whether an answer for a range has less than was seen before in one that did not come to its end. */
  isLess(answer: readonly Stretch[], range: Range): boolean {
    return hasLess(answer, this.#seenWithin(secondOf(range.from), secondOf(range.to)));
  }

  /** For whoever goes on with the export. */
  toJson(): unknown {
    return structuredClone(this.#kept);
  }

  #seenWithin(from: number, to: number): readonly Stretch[] {
    return this.#kept.seen.filter((stretch) => stretch.from >= from && stretch.to <= to);
  }

  #remember({ stretches, sortedTo }: Seen): void {
    this.#kept.seen = mergeSeen(this.#kept.seen, stretches).slice(0, STRETCHES_MAX);
    this.#kept.sortedTo = sortedTo;
  }

  /** @returns infinite, or not before `to`, where all of it may be asked for */
  #cutBySize(from: number, to: number): number {
    const { outgrown } = this.#kept;
    if (outgrown?.from === from) return this.#cutOutgrown(from, Math.min(to, outgrown.to), outgrown.times);
    if (this.#last?.toSecond === from)
      return from + Math.max(1, Math.floor(this.windowBytes / this.#last.bytesPerSecond));
    const isTooLarge = outgrown !== undefined || this.#isBroken;
    return (isTooLarge ? this.#cutBySeen(from, to) : undefined) ?? Infinity;
  }

  /** @param times how many answers that begin there were too large */
  #cutOutgrown(from: number, to: number, times: number): number {
    if (to - from < 2) return Infinity;
    const leap = times > 1 ? leapBefore(this.#seenWithin(from, to), times) : undefined;
    const second = leap !== undefined && leap > from ? leap : this.#cutBySeen(from, to);
    if (second !== undefined && second > from && second < to) return second;
    // Nothing that was seen says where: halved blindly.
    const first = from === 0 ? Math.max(0, to - USUAL_SECONDS_MAX) : from;
    return Math.max(from + 1, Math.floor((first + to) / 2));
  }

  #cutBySeen(from: number, to: number): number | undefined {
    const seen = this.#seenWithin(from, to);
    const { sortedTo = from } = this.#kept;
    if (sortedTo <= from) return findBorder(seen, UNSORTED_PART * sumBytes(seen));
    const bytesMax = this.#isBroken ? this.windowBytes : this.streamBytesMax;
    return Math.min(sortedTo, findBorder(seen, bytesMax) ?? to);
  }
}

/**
 * Before everything that was seen, ever further: a source that shows the end of a range first would
 * otherwise be asked for all that lies before it again and again.
 */
function leapBefore(seen: readonly Stretch[], times: number): number | undefined {
  const [first, last] = [seen[0], seen.at(-1)];
  if (first === undefined || last === undefined) return undefined;
  return first.from - (last.to - first.from) * 2 ** (times - 1);
}
