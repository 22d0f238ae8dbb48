/**
 * How much of a ledger to ask for at once. Normally all: every question is a full scan at the source. A
 * stream that outgrows twice a segment is cancelled, and one that is lost on the way is not risked whole
 * again: from then on the range is asked for in windows, the earliest first.
 *
 * The bound: what is lost, whether killed, broken or cancelled, stays below `LOSS_TIMES_MAX` times what is
 * known to be there. For no stream may become longer than a part of what may still be lost, so that this
 * lasts for any number of losses; only a stream of `leastStreamBytes` may always be risked, and adds that
 * much each time. A single second cannot be divided and is always risked.
 *
 * It only proposes where to cut. What is left to ask is computed from the warehouse every time, so a plan
 * that is lost or outdated costs bytes at most. Pure.
 */
import { z } from 'zod';
import { type Micros, SECOND_MICROS } from '../../core/time.ts';
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
import type { Sample } from './sample.ts';
import { Silence, silenceSchema } from './silence.ts';
import { secondOf } from '../validate/tail.ts';

/** A healthy stream is let run so many segments long: cutting it costs a second scan. */
const STREAM_SEGMENTS_MAX = 2;
/** With each byte asked for once more to be kept, and what continuations repeat, less than three times in all. */
export const LOSS_TIMES_MAX = 1.7;
/** Of what may still be lost, this part is risked with one question. */
const RISKED_PART = 0.45;
/** A piece means to be so much smaller than its stream may become: what is expected of it is an estimate. */
const PIECE_PART = 0.5;
const PIECE_SEGMENTS_MAX = 0.7;
/** What may be risked however much was lost: smaller windows are not worth a question. */
const LEAST_STREAM_BYTES = 4 * 2 ** 20;
const LEAST_STREAM_SEGMENTS = 1 / 8;
const LEAST_PIECE_PART = 0.25;
/** An unsorted stream shows some stretches first: a quarter of what was seen is asked for next. */
const SAMPLE_PARTS = 4;
const STRETCHES_MAX = 256;

const count = z.number().nonnegative();
const hint = z.object({
  version: z.literal(2),
  /** Questions that are over. */
  turn: count,
  /** By the question in hand, when this was noted. */
  receivedBytes: count,
  /** What it may have cost until it is noted again. */
  chargedBytes: count,
  lostBytes: count,
  doneBytes: count,
  knownBytes: count,
  seen: z.array(z.tuple([z.int(), z.int().positive(), count])).max(STRETCHES_MAX),
  sortedTo: z.int().optional(),
  outgrown: z.object({ from: z.int(), to: z.int(), times: z.int().positive() }).optional(),
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
  #turn = 0;
  #receivedBytes = 0;
  #chargedBytes = 0;
  #lostBytes = 0;
  #doneBytes = 0;
  /** At least so much is there: what is done, and what was seen of the rest. Never falls. */
  #knownBytes = 0;
  #seen: ByteBounds = [];
  #sortedTo: number | undefined;
  /** The last range whose answer was too large, in seconds, and how often its beginning was asked for in vain. */
  #outgrown: { readonly from: number; readonly to: number; readonly times: number } | undefined;
  readonly #silence: Silence;
  /** What finished windows held, beside what had been seen of them before. */
  readonly #leaves = { bytes: 0, seenBytes: 0 };
  #bytesPerSecond: number | undefined;

  /**
   * @param bytesPerSecond what finished segments of these nights lead to expect
   * @param remembered what `toHint` gave in earlier tries, wherever it was kept: the newest is taken, and
   *   what is none ignored
   */
  constructor(segmentBytesMax: number, bytesPerSecond?: number, remembered: readonly unknown[] = []) {
    this.#segmentBytesMax = segmentBytesMax;
    this.#bytesPerSecond = bytesPerSecond;
    const known = newest(remembered);
    this.#silence = new Silence(known?.silence);
    if (known === undefined) return;
    this.#turn = known.turn;
    // A question that nobody saw the end of was lost with its process.
    this.#lostBytes = known.lostBytes + known.chargedBytes;
    if (known.chargedBytes > 0) this.#turn += 1;
    this.#doneBytes = known.doneBytes;
    this.#knownBytes = known.knownBytes;
    this.#seen = known.seen;
    this.#sortedTo = known.sortedTo;
    this.#outgrown = known.outgrown;
  }

  /** An answer that is longer is to be cancelled. */
  get streamBytesMax(): number {
    const most = STREAM_SEGMENTS_MAX * this.#segmentBytesMax;
    if (this.#lostBytes === 0) return most;
    const bearableBytes = LOSS_TIMES_MAX * this.#knownBytes - this.#lostBytes;
    return Math.max(this.leastStreamBytes, Math.min(most, RISKED_PART * bearableBytes));
  }

  /** What a loss may cost however much was lost before. */
  get leastStreamBytes(): number {
    return Math.min(LEAST_STREAM_BYTES, LEAST_STREAM_SEGMENTS * this.#segmentBytesMax);
  }

  /** What a piece is meant to hold. */
  get windowBytes(): number {
    const wanted = PIECE_SEGMENTS_MAX * this.#segmentBytesMax;
    const streamBytes = this.streamBytesMax;
    const part = streamBytes > this.leastStreamBytes ? PIECE_PART : LEAST_PIECE_PART;
    return this.#lostBytes === 0 ? wanted : Math.min(wanted, part * streamBytes);
  }

  /**
   * Where to end the next question about a range.
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

  /**
   * Told now and then, so that a kill is known to have cost this much.
   * @param chargedBytes what may have come until it is told again
   */
  receiving(seen: Seen, chargedBytes: number): void {
    this.#receivedBytes = seen.bytes;
    this.#chargedBytes = chargedBytes;
    this.#remember(seen);
  }

  /** An answer was cancelled or broke. @param range given where it was too large */
  lost(seen: Seen, range?: Range): void {
    this.#endTurn();
    this.#lostBytes += seen.bytes;
    this.#remember(seen);
    if (range === undefined) return;
    const from = secondOf(range.from);
    const times = this.#outgrown?.from === from ? this.#outgrown.times + 1 : 1;
    this.#outgrown = { from, to: secondOf(range.to), times };
    this.#leaves.bytes = 0;
    this.#leaves.seenBytes = 0;
    this.#bytesPerSecond = undefined;
  }

  /** Nothing came of a range. @returns false: that will not change */
  silent(range: Range): boolean {
    this.#endTurn();
    return this.#silence.met(range);
  }

  /**
   * A range was answered to its end.
   * @param bytes of the rows in it
   * @param firstSecond of its rows
   */
  done(range: Range, bytes: number, firstSecond: number | undefined): void {
    this.#endTurn();
    if (bytes > 0) this.#silence.broken();
    this.#doneBytes += bytes;
    const [from, to] = [secondOf(range.from), secondOf(range.to)];
    const seenBytes = bytesIn(this.#seen, Number.NEGATIVE_INFINITY, to);
    this.#leaves.bytes += bytes;
    this.#leaves.seenBytes += seenBytes;
    this.#seen = after(this.#seen, to, Math.max(0, bytes - seenBytes));
    this.#bytesPerSecond = bytes / Math.max(1, to - Math.max(from, firstSecond ?? from));
    this.#know();
  }

  /** Whether an answer for a range has less than was seen before in one that did not come to its end. */
  isLess(answer: Sample, range: Range): boolean {
    return lacks(answer, this.#seen, secondOf(range.from), secondOf(range.to));
  }

  /** As JSON, for whoever goes on with the scope. */
  toHint(): unknown {
    const wanted: z.input<typeof hint> = {
      version: 2,
      turn: this.#turn,
      receivedBytes: this.#receivedBytes,
      chargedBytes: this.#chargedBytes,
      lostBytes: this.#lostBytes,
      doneBytes: this.#doneBytes,
      knownBytes: this.#knownBytes,
      seen: this.#seen.map(([from, seconds, bytes]) => [from, seconds, bytes]),
      sortedTo: this.#sortedTo,
      outgrown: this.#outgrown,
      silence: this.#silence.toHint(),
    };
    return wanted;
  }

  #endTurn(): void {
    this.#turn += 1;
    this.#receivedBytes = 0;
    this.#chargedBytes = 0;
  }

  #remember({ sample, sortedTo }: Seen): void {
    this.#seen = thinned(joined(this.#seen, boundsOf(sample)), STRETCHES_MAX);
    this.#sortedTo = sortedTo;
    this.#know();
  }

  #know(): void {
    const seenBytes = bytesIn(this.#seen, Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY);
    this.#knownBytes = Math.max(this.#knownBytes, this.#doneBytes + seenBytes);
  }

  #cutBySize(range: Range): number | undefined {
    const from = secondOf(range.from);
    const outgrown = this.#outgrown?.from === from ? this.#outgrown : undefined;
    const to = Math.min(secondOf(range.to), outgrown?.to ?? Number.POSITIVE_INFINITY);
    if (to - from < 2) return undefined;
    const seen = this.#seen.filter((stretch) => isWithin(stretch, from, to));
    const second =
      seen.length > 0 ? this.#bySeen(seen, from, to, outgrown?.times ?? 0) : this.#byRate(from, to);
    if (second === undefined && outgrown === undefined) return undefined;
    if (second !== undefined && second > from && second < to) return second;
    const first = Math.max(from, seen[0]?.[0] ?? from);
    return Math.max(from + 1, Math.floor(((first < to ? first : from) + to) / 2));
  }

  /** @param outgrownTimes how many answers beginning there were too large */
  #bySeen(seen: ByteBounds, from: number, to: number, outgrownTimes: number): number | undefined {
    const { windowBytes } = this;
    const seenBytes = seen.reduce((sum, [, , bytes]) => sum + bytes, 0);
    const { bytes, seenBytes: leafSeen } = this.#leaves;
    const scale = leafSeen > 0 ? Math.max(1, bytes / leafSeen) : undefined;
    if (outgrownTimes === 0 && seenBytes * (scale ?? 1) <= windowBytes) {
      // Of a sorted stream, the little that is left says nothing of what would have come after it.
      return this.#sortedTo === undefined ? undefined : this.#byRate(from, to);
    }
    if (this.#sortedTo !== undefined) return borderAt(seen, windowBytes) ?? this.#sortedTo;
    const leap = outgrownTimes > 1 ? leapBefore(seen, outgrownTimes) : undefined;
    if (leap !== undefined && leap > from) return leap;
    const wanted = scale === undefined ? seenBytes / SAMPLE_PARTS : windowBytes / scale;
    return borderAt(seen, Math.min(windowBytes, wanted));
  }

  #byRate(from: number, to: number): number | undefined {
    const rate = this.#bytesPerSecond;
    // Of the time before the first entry, which nobody knows, a rate says nothing.
    if (rate === undefined || from === 0 || rate * (to - from) <= this.streamBytesMax) return undefined;
    return from + Math.max(1, Math.floor(this.windowBytes / rate));
  }
}

/** What was noted last; of one turn, where the most had been received. */
function newest(remembered: readonly unknown[]): z.output<typeof hint> | undefined {
  return remembered
    .map((value) => hint.safeParse(value).data)
    .filter((value) => value !== undefined)
    .toSorted((one, other) => other.turn - one.turn || other.receivedBytes - one.receivedBytes)[0];
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
