/**
 * How much of a ledger to ask for at once. Normally all: every request is a full scan at the source. A stream that
 * outgrows a segment is cancelled, and one that broke twice is not asked for whole again. From then on the range is
 * asked for in windows, the earliest first, each shorter than the one it was cut from.
 *
 * At most twice the ledger is asked for, and what was in flight at each kill: a stream is cancelled only while no more
 * was cancelled than the ledger is known to hold.
 *
 * Of some ranges the source sends nothing at all before it gives up: its query takes too long. Twice such a range is
 * halved, which helps where the query takes longer for more; where it does not, nothing will.
 *
 * It only proposes where to cut. What is left to ask is computed from the warehouse every time, so a plan that is
 * lost or outdated costs bytes at most. Pure.
 */
import { z } from 'zod';
import { DAY_MICROS, type Micros } from '../../time/time.ts';
import { instantOf, type Range, secondOf } from '../../ledger/ranges.ts';
import {
  findBorder,
  hasLess,
  mergeSeen,
  type HistogramBucket,
  sumBytes,
} from './time-histogram.ts';

/** A window's size is an estimate, and stays this far below what a stream may hold. */
const WINDOW_PART = 0.7;
/** A stream that broke is asked for whole once more; from then on in windows that are half of what came. */
const BREAKS_MAX = 1;
const BROKEN_PART = 0.5;
/** Smaller windows are not worth a request. */
const LEAST_WINDOW_BYTES = 64 * 2 ** 10;
/** Of what an unsorted stream showed, this part is asked for next: nobody knows how much it did not show. */
const UNSORTED_PART = 1 / 4;
/** Of a segment: so much may come twice among the cancelled streams themselves. */
const REPEATED_PART = 1 / 16;
const STRETCHES_MAX = 1024;
const SILENCES_BEFORE_HALVING = 2;
const HALVINGS_MAX = 2;
/** No query takes too long for a shorter range: whatever fails there, windows of half of it would fail as well. */
const LONG_SECONDS_MIN = secondOf(DAY_MICROS);
/** What nodes keep by default: where a range is halved blindly, earlier times count as empty. */
const USUAL_SECONDS_MAX = secondOf(180n * DAY_MICROS);

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
  /** The last range whose answer was too large, in seconds. */
  outgrown: z.object({ from: z.int(), to: z.int() }).optional(),
  /** Bytes of cancelled streams, less those of finished windows. */
  owedBytes: z.number(),
  silence: z.object({
    /** In a row. */
    times: z.int().nonnegative(),
    /** No longer range is asked for. */
    secondsMax: z.int().positive().optional(),
    /** What lies before is taken for empty. */
    firstSecond: z.int().optional(),
  }),
});

/** What was received of an answer that did not come to its end. */
export interface StreamSeen {
  /** All that came over the wire. */
  readonly bytes: number;
  /** Where the rows lie that were asked for. */
  readonly stretches: readonly HistogramBucket[];
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
    this.#kept = known ?? {
      version: 5,
      breaks: 0,
      seen: [],
      owedBytes: 0,
      silence: { times: 0 },
    };
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

  /** Longer ranges than that are not answered. */
  get isSilent(): boolean {
    return this.#kept.silence.secondsMax !== undefined;
  }

  /** The same plan, had the stream in hand been cancelled. */
  afterOutgrown(seen: StreamSeen, range: Range): WindowPlan {
    const copy = new WindowPlan(this.streamBytesMax, this.toJson());
    copy.recordOutgrown(seen, range);
    return copy;
  }

  /**
   * Where to end the next request about a range.
   * @returns a whole second strictly inside the range, and before the end of any that was too large;
   *   undefined: all of it should be asked for
   */
  cut(range: Range): Micros | undefined {
    const from = secondOf(range.from);
    const to = secondOf(range.to);
    const { firstSecond = -Infinity, secondsMax = Infinity } = this.#kept.silence;
    const second = Math.min(
      this.#cutBySize(from, to),
      Math.max(from, firstSecond) + secondsMax,
    );
    return second < to ? instantOf(second) : undefined;
  }

  /** Where to begin instead, after an answer that reached the range's end was too large: ever closer to that end. */
  laterStart(range: Range): Micros | undefined {
    const from = secondOf(range.from);
    const to = secondOf(range.to);
    const last = this.#kept.outgrown;
    if (last === undefined || last.to !== to) return undefined;
    const second = middleOf(Math.max(from, last.from), to);
    return second > from && second < to ? instantOf(second) : undefined;
  }

  /** An answer broke on its way. */
  recordBroken(seen: StreamSeen): void {
    this.#kept.breaks += 1;
    this.#kept.brokenBytes = seen.bytes;
    this.#remember(seen);
    this.#last = undefined;
  }

  /** An answer was cancelled. @param range given where it was too large for it */
  recordOutgrown(seen: StreamSeen, range?: Range): void {
    this.#remember(seen);
    this.#kept.owedBytes += sumBytes(seen.stretches);
    // Another window now would not be the one that is in doubt.
    if (range === undefined) return;
    this.#last = undefined;
    this.#kept.outgrown = { from: secondOf(range.from), to: secondOf(range.to) };
  }

  /** Nothing came of a range. @returns false: that will not change */
  recordSilence(range: Range): boolean {
    const { silence } = this.#kept;
    silence.firstSecond ??= secondOf(range.to) - USUAL_SECONDS_MAX;
    const seconds =
      secondOf(range.to) - Math.max(secondOf(range.from), silence.firstSecond);
    // It could not be asked for in windows, so nothing was learned about shorter ones.
    if (silence.secondsMax !== undefined && seconds > silence.secondsMax) return true;
    const halvings = silence.times + 1 - SILENCES_BEFORE_HALVING;
    if (halvings >= HALVINGS_MAX) return false;
    silence.times += 1;
    if (halvings >= 0 && seconds > LONG_SECONDS_MIN)
      silence.secondsMax = Math.floor(seconds / 2);
    return true;
  }

  /**
   * A range was answered to its end.
   * @param bytes of the rows in it
   * @param firstSecond of its rows
   */
  recordDone(range: Range, bytes: number, firstSecond: number | undefined): void {
    // One that is answered because it is empty is no gain.
    if (bytes > 0) this.#kept.silence.times = 0;
    this.#kept.owedBytes -= bytes;
    const from = secondOf(range.from);
    const to = secondOf(range.to);
    this.#kept.seen = this.#kept.seen.filter((stretch) => stretch.from >= to);
    const seconds = Math.max(1, to - Math.max(from, firstSecond ?? from));
    this.#last = { toSecond: to, bytesPerSecond: bytes / seconds };
  }

  /** Whether an answer for a range has less than was seen before in one that did not come to its end. */
  isLess(answer: readonly HistogramBucket[], range: Range): boolean {
    return hasLess(answer, this.#seenWithin(secondOf(range.from), secondOf(range.to)));
  }

  /** For whoever goes on with the export. */
  toJson(): unknown {
    return structuredClone(this.#kept);
  }

  #seenWithin(from: number, to: number): readonly HistogramBucket[] {
    return this.#kept.seen.filter((stretch) => stretch.from >= from && stretch.to <= to);
  }

  #remember({ stretches, sortedTo }: StreamSeen): void {
    this.#kept.seen = mergeSeen(this.#kept.seen, stretches).slice(0, STRETCHES_MAX);
    this.#kept.sortedTo = sortedTo;
  }

  /** @returns infinite, or not before `to`, where all of it may be asked for */
  #cutBySize(from: number, to: number): number {
    const { outgrown } = this.#kept;
    if (outgrown?.from === from) {
      const end = Math.min(to, outgrown.to);
      if (end - from < 2) return Infinity;
      const second = this.#cutBySeen(from, end);
      // Where nothing that was seen says where, it is halved blindly.
      return second !== undefined && second > from && second < end
        ? second
        : middleOf(from, end);
    }
    if (this.#last?.toSecond === from)
      return from + Math.max(1, Math.floor(this.windowBytes / this.#last.bytesPerSecond));
    const isTooLarge = outgrown !== undefined || this.#isBroken;
    return (isTooLarge ? this.#cutBySeen(from, to) : undefined) ?? Infinity;
  }

  #cutBySeen(from: number, to: number): number | undefined {
    const seen = this.#seenWithin(from, to);
    const { sortedTo = from } = this.#kept;
    if (sortedTo <= from) return findBorder(seen, UNSORTED_PART * sumBytes(seen));
    const bytesMax = this.#isBroken ? this.windowBytes : this.streamBytesMax;
    return Math.min(sortedTo, findBorder(seen, bytesMax) ?? to);
  }
}

/** Of a range whose beginning, where it is that of all times, is taken for empty. */
function middleOf(from: number, to: number): number {
  const first = from === 0 ? Math.max(0, to - USUAL_SECONDS_MAX) : from;
  return Math.max(from + 1, Math.floor((first + to) / 2));
}
