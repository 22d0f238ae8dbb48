/**
 * How much of a ledger to ask for at once. Normally all: every request is a full scan at the source. A stream that
 * outgrows a segment is cancelled, and one that broke twice is not asked for whole again. From then on the range is
 * asked for in windows, the earliest first, each shorter than the one it was cut from.
 *
 * At most twice the ledger is asked for, and what was in flight at each kill: a stream is cancelled only while no more
 * was cancelled than the ledger is known to hold, and shows where to cut.
 *
 * It only proposes where to cut. What is left to ask is computed from the warehouse every time, so a plan that is
 * lost or outdated costs bytes at most. Pure.
 */
import { z } from 'zod';
import { DAY_MICROS, type Micros, SECOND_MICROS } from '../../core/time.ts';
import {
  after,
  boundsOf,
  type ByteBounds,
  bytesIn,
  isWithin,
  joined,
  lacks,
  thinned,
} from './byte-bounds.ts';
import type { Range } from './ranges.ts';
import { bytesOf, type Sample } from './time-histogram.ts';
import { Silence, silenceSchema } from './silence.ts';
import { secondOf } from '../validate/tail.ts';

/** A window's size is an estimate, and stays this far below what a stream may hold. */
const WINDOW_PART = 0.7;
/** A stream that broke is asked for whole once more; from then on in windows that are half of what came. */
const BREAKS_MAX = 1;
const BROKEN_PART = 0.5;
/** Smaller windows are not worth a request. */
const LEAST_WINDOW_BYTES = 64 * 2 ** 10;
/** Of what an unsorted stream showed, this part is asked for next. */
const SAMPLE_PARTS = 16;
/** Of a segment: so much may come twice among the cancelled streams themselves. */
const REPEATED_PART = 1 / 16;
const STRETCHES_MAX = 256;
/** What nodes keep by default: where a range is halved blindly, earlier times count as empty. */
const USUAL_SECONDS_MAX = secondOf(180n * DAY_MICROS);

const count = z.number().nonnegative();
const kept = z.object({
  version: z.literal(4),
  breaks: z.int().nonnegative(),
  /** Of the longest stream that broke. */
  brokenBytes: count.optional(),
  seen: z
    .array(z.tuple([z.int(), z.int().positive(), count]).readonly())
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
  /** Of the rows that were asked for. */
  readonly sample: Sample;
  /** Times never went back: every second before this one is there whole. */
  readonly sortedTo: number | undefined;
}

export class WindowPlan {
  readonly #segmentBytesMax: number;
  readonly #kept: Omit<z.output<typeof kept>, 'silence'>;
  readonly #silence: Silence;
  /** What the last window held, as a multiple of what had been seen of it before. */
  #scale: number | undefined;
  #bytesPerSecond: number | undefined;

  /**
   * @param bytesPerSecond what finished segments of these nights lead to expect
   * @param remembered what `toJson` gave in an earlier try; what is none is ignored
   */
  constructor(segmentBytesMax: number, bytesPerSecond?: number, remembered?: unknown) {
    this.#segmentBytesMax = segmentBytesMax;
    this.#bytesPerSecond = bytesPerSecond;
    const known = kept.safeParse(remembered).data;
    this.#kept = known ?? { version: 4, breaks: 0, seen: [], owedBytes: 0 };
    this.#silence = new Silence(known?.silence);
  }

  /** A longer answer is cancelled. */
  get streamBytesMax(): number {
    return this.#segmentBytesMax;
  }

  /** The size of a window. */
  get windowBytes(): number {
    const wanted = WINDOW_PART * this.#segmentBytesMax;
    if (this.#kept.breaks <= BREAKS_MAX || this.#kept.brokenBytes === undefined) return wanted;
    return Math.min(wanted, Math.max(LEAST_WINDOW_BYTES, BROKEN_PART * this.#kept.brokenBytes));
  }

  /** Whether no more was cancelled than the ledger is known to hold: then twice the ledger is asked for at most. */
  get isAffordable(): boolean {
    return this.#creditBytes >= 0;
  }

  /** So much of what was seen may come again with a stream that is cancelled. */
  get #creditBytes(): number {
    const seenBytes = bytesIn(this.#kept.seen, Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY);
    return seenBytes + REPEATED_PART * this.#segmentBytesMax - this.#kept.owedBytes;
  }

  /** The same plan, had the stream in hand been cancelled. */
  ifOutgrown(seen: Seen, range: Range): WindowPlan {
    const copy = new WindowPlan(this.#segmentBytesMax, undefined, this.toJson());
    copy.outgrown(seen, range);
    return copy;
  }

  /**
   * Where to end the next request about a range.
   * @returns a whole second strictly inside the range, and before the end of any that was too large;
   *   undefined: all of it should be asked for
   */
  cut(range: Range): Micros | undefined {
    const bySize = this.#cutBySize(range);
    const bySilence = this.#silence.cut(range);
    if (bySilence === undefined && bySize === undefined) return undefined;
    const second = Math.min(bySize ?? Number.POSITIVE_INFINITY, bySilence ?? Number.POSITIVE_INFINITY);
    return BigInt(second) * SECOND_MICROS;
  }

  /** Where to begin instead, after an answer that reached the range's end was too large: ever closer to that end. */
  laterStart(range: Range): Micros | undefined {
    const [from, to] = [secondOf(range.from), secondOf(range.to)];
    const last = this.#kept.outgrown;
    if (last === undefined || last.to !== to) return undefined;
    const first = Math.max(from, last.from, last.from === 0 ? to - USUAL_SECONDS_MAX : 0);
    const second = Math.floor((first + to) / 2);
    return second > first && second < to ? BigInt(second) * SECOND_MICROS : undefined;
  }

  /** An answer broke on its way. */
  broke(seen: Seen): void {
    this.#kept.breaks += 1;
    this.#kept.brokenBytes = seen.bytes;
    this.#remember(seen);
  }

  /** An answer was cancelled. @param range given where it was too large for it */
  outgrown(seen: Seen, range?: Range): void {
    this.#remember(seen);
    this.#kept.owedBytes += bytesOf(seen.sample);
    if (range === undefined) return;
    const from = secondOf(range.from);
    const times = this.#kept.outgrown?.from === from ? this.#kept.outgrown.times + 1 : 1;
    this.#kept.outgrown = { from, to: secondOf(range.to), times };
    this.#scale = undefined;
    this.#bytesPerSecond = undefined;
  }

  /** Nothing came of a range. @returns false: that will not change */
  silent(range: Range): boolean {
    return this.#silence.met(range);
  }

  /**
   * A range was answered to its end.
   * @param bytes of the rows in it
   * @param firstSecond of its rows
   */
  done(range: Range, bytes: number, firstSecond: number | undefined): void {
    if (bytes > 0) this.#silence.broken();
    this.#kept.owedBytes -= bytes;
    const [from, to] = [secondOf(range.from), secondOf(range.to)];
    const seenBytes = bytesIn(this.#kept.seen, Number.NEGATIVE_INFINITY, to);
    if (seenBytes > 0) this.#scale = Math.max(1, bytes / seenBytes);
    this.#kept.seen = after(this.#kept.seen, to, Math.max(0, bytes - seenBytes));
    this.#bytesPerSecond = bytes / Math.max(1, to - Math.max(from, firstSecond ?? from));
  }

  /** Whether an answer for a range has less than was seen before in one that did not come to its end. */
  isLess(answer: Sample, range: Range): boolean {
    return lacks(answer, this.#kept.seen, secondOf(range.from), secondOf(range.to));
  }

  /** For whoever goes on with the export. */
  toJson(): unknown {
    return { ...this.#kept, silence: { ...this.#silence.state } };
  }

  #remember({ sample, sortedTo }: Seen): void {
    this.#kept.seen = thinned(joined(this.#kept.seen, boundsOf(sample)), STRETCHES_MAX);
    this.#kept.sortedTo = sortedTo;
  }

  #cutBySize(range: Range): number | undefined {
    const from = secondOf(range.from);
    const outgrown = this.#kept.outgrown?.from === from ? this.#kept.outgrown : undefined;
    const to = Math.min(secondOf(range.to), outgrown?.to ?? Number.POSITIVE_INFINITY);
    if (to - from < 2) return undefined;
    const seen = this.#kept.seen.filter((stretch) => isWithin(stretch, from, to));
    const second =
      seen.length > 0 ? this.#bySeen(seen, from, to, outgrown?.times ?? 0) : this.#byRate(from, to);
    if (second === undefined && outgrown === undefined) return undefined;
    if (second !== undefined && second > from && second < to) return second;
    const first = Math.max(from, seen[0]?.[0] ?? (from === 0 ? to - USUAL_SECONDS_MAX : from));
    return Math.max(from + 1, Math.floor(((first < to ? first : from) + to) / 2));
  }

  /** @param outgrownTimes how many answers beginning there were too large */
  #bySeen(seen: ByteBounds, from: number, to: number, outgrownTimes: number): number | undefined {
    const { windowBytes } = this;
    const seenBytes = seen.reduce((sum, [, , bytes]) => sum + bytes, 0);
    const scale = this.#scale;
    if (outgrownTimes === 0 && seenBytes * (scale ?? 1) <= windowBytes) {
      // Of a sorted stream, the little that is left says nothing of what would have come after it.
      const sortedTo = this.#kept.sortedTo ?? from;
      return sortedTo > from && sortedTo < to ? sortedTo : undefined;
    }
    if (this.#kept.sortedTo !== undefined) {
      if (this.#kept.breaks > BREAKS_MAX) return borderAt(seen, windowBytes) ?? this.#kept.sortedTo;
      // With its last second: what is left over would come again with the next stream that is cancelled.
      const border = borderAt(seen, this.#segmentBytesMax);
      return border !== undefined && border < this.#kept.sortedTo ? border : this.#kept.sortedTo + 1;
    }
    const leap = outgrownTimes > 1 ? leapBefore(seen, outgrownTimes) : undefined;
    if (leap !== undefined && leap > from) return leap;
    const wanted = scale === undefined ? seenBytes / SAMPLE_PARTS : windowBytes / scale;
    const [first, seconds, bytes] = seen[0] ?? [from, 0, 0];
    const isAffordable = scale !== undefined || bytes <= this.#creditBytes;
    if (!isAffordable) return first > from ? first : first + seconds;
    return borderAt(seen, Math.min(windowBytes, wanted));
  }

  #byRate(from: number, to: number): number | undefined {
    const rate = this.#bytesPerSecond;
    // Of the time before the first entry, which nobody knows, a rate says nothing.
    if (rate === undefined || from === 0 || rate * (to - from) <= this.streamBytesMax) return undefined;
    return from + Math.max(1, Math.floor(this.windowBytes / rate));
  }
}

/** The last border of a stretch before which no more than so much is known; the first one, where all is more. */
function borderAt(seen: ByteBounds, bytesMax: number): number | undefined {
  let sum = 0;
  let border: number | undefined;
  for (const [from, seconds, bytes] of seen.toSorted(byEnd)) {
    sum += bytes;
    if (sum > bytesMax) return border === undefined ? from + seconds : Math.max(border, from);
    border = from + seconds;
  }
  return undefined;
}

function byEnd(one: ByteBounds[number], other: ByteBounds[number]): number {
  return one[0] + one[1] - (other[0] + other[1]);
}

/**
 * Before everything that was seen, ever further: a source that shows the end of a range first would
 * otherwise be asked for all that lies before it again and again.
 */
function leapBefore(seen: ByteBounds, times: number): number | undefined {
  const first = seen[0]?.[0];
  if (first === undefined) return undefined;
  const end = seen.reduce((latest, [from, seconds]) => Math.max(latest, from + seconds), first);
  return first - (end - first) * 2 ** (times - 1);
}
