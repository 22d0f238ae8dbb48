/**
 * How much of a ledger to ask for at once. Normally all: every question is a full scan at the source. A
 * stream that outgrows twice a segment is cancelled, and one that is lost on the way is not risked whole
 * again: from then on the range is asked for in pieces, the earliest first, as large as what was lost so
 * far allows. So the bytes asked for stay below three times the ledger, however often they are lost.
 *
 * It only proposes where to cut. What is left to ask is computed from the warehouse every time, so a plan
 * that is lost or outdated costs bytes at most. Pure.
 */
import { z } from 'zod';
import { type Micros, SECOND_MICROS } from '../core/time.ts';
import type { Range } from './ranges.ts';
import { bytesOf, lacks, larger, NOTHING_SEEN, type Sample, sampleOf, within } from './sample.ts';
import { secondOf } from './tail.ts';

/** A piece means to be smaller than a segment by so much: what is expected of it is an estimate. */
const PIECE_SHARE = 0.7;
/** A healthy stream is let run so many segments long: cutting it costs a second scan. */
const STREAM_SEGMENTS_MAX = 2;
/** What was lost and what may be lost next stay below so many times what is known to be there. */
const LOSS_TIMES_MAX = 1.2;
/** Of what may still be lost, this part is risked with one question: so it lasts for any number of losses. */
const RISKED_PART = 0.35;
/** Smaller pieces are not worth a question. */
const PIECE_BYTES_MIN = 2 ** 20;
const PIECE_SHARE_MIN = 1 / 32;
/** An unsorted stream shows some stretches first: a quarter of what was seen is asked for next. */
const SAMPLE_PARTS = 4;
const BUCKETS_MAX = 256;

const count = z.number().nonnegative();
const hint = z.object({
  version: z.literal(1),
  seen: z.object({
    bucketSeconds: z.int().positive(),
    buckets: z.array(z.tuple([z.int(), count])).max(BUCKETS_MAX),
  }),
  sortedTo: z.int().optional(),
  lostBytes: count,
  cancelledBytes: count,
  doneBytes: count,
  inFlightBytes: count.optional(),
  outgrown: z.object({ from: z.int(), to: z.int(), times: z.int().positive() }).optional(),
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

export class PiecePlan {
  readonly #segmentBytesMax: number;
  #seen: Sample = NOTHING_SEEN;
  #sortedTo: number | undefined;
  #lostBytes = 0;
  /** Those of them that we gave up ourselves. */
  #cancelledBytes = 0;
  #doneBytes = 0;
  #inFlightBytes: number | undefined;
  /** The last range whose answer was too large, in seconds, and how often its beginning was asked for in vain. */
  #outgrown: { readonly from: number; readonly to: number; readonly times: number } | undefined;
  /** What finished pieces held, beside what had been seen of them before. */
  readonly #leaves = { bytes: 0, seenBytes: 0 };
  #bytesPerSecond: number | undefined;

  /**
   * @param bytesPerSecond what finished segments of these nights lead to expect
   * @param remembered `toHint` of an earlier try; anything else is ignored
   */
  constructor(segmentBytesMax: number, bytesPerSecond?: number, remembered?: unknown) {
    this.#segmentBytesMax = segmentBytesMax;
    this.#bytesPerSecond = bytesPerSecond;
    const parsed = hint.safeParse(remembered);
    if (!parsed.success) return;
    const { seen, sortedTo, lostBytes, doneBytes, inFlightBytes, outgrown } = parsed.data;
    this.#outgrown = outgrown;
    this.#seen = seen;
    this.#sortedTo = sortedTo;
    // A question that nobody saw the end of was lost with its process.
    this.#lostBytes = lostBytes + (inFlightBytes ?? 0);
    this.#cancelledBytes = parsed.data.cancelledBytes;
    this.#doneBytes = doneBytes;
  }

  /**
   * An answer that is longer is to be cancelled. Where cancelling has cost more than all that is known to be
   * there, and nothing was lost otherwise, no estimate holds for this ledger: the rest is let run to its end.
   */
  get streamBytesMax(): number {
    const isVain = this.#cancelledBytes > this.#knownBytes() && this.#lostBytes === this.#cancelledBytes;
    if (isVain) return Number.POSITIVE_INFINITY;
    return STREAM_SEGMENTS_MAX * this.#segmentBytesMax;
  }

  /**
   * Where to end the next question about a range.
   * @returns a whole second strictly inside the range, and before the end of any that was too large;
   *   undefined: all of it should be asked for
   */
  cut(range: Range): Micros | undefined {
    const from = secondOf(range.from);
    const outgrown = this.#outgrown?.from === from ? this.#outgrown : undefined;
    const to = Math.min(secondOf(range.to), outgrown?.to ?? Number.POSITIVE_INFINITY);
    if (to - from < 2) return undefined;
    const seen = within(this.#seen, from, to);
    const seenBytes = bytesOf(seen);
    const pieceBytes = this.#pieceBytes();
    const second =
      seenBytes > 0
        ? this.#bySample(seen, from, pieceBytes, outgrown?.times ?? 0)
        : this.#byRate(from, to, pieceBytes);
    if (second === undefined && outgrown === undefined) return undefined;
    const first = Math.max(from, (seen.buckets[0]?.[0] ?? Number.NEGATIVE_INFINITY) * seen.bucketSeconds);
    const isInside = second !== undefined && second > from && second < to;
    const middle = Math.floor(((first < to ? first : from) + to) / 2);
    return BigInt(isInside ? second : Math.max(from + 1, middle)) * SECOND_MICROS;
  }

  /** Told now and then, so that a kill is known to have cost this much. */
  receiving(seen: Seen): void {
    this.#inFlightBytes = seen.bytes;
    this.#remember(seen);
  }

  /** An answer was cancelled or broke. @param range given where it was too large */
  lost(seen: Seen, range?: Range): void {
    this.#inFlightBytes = undefined;
    this.#lostBytes += seen.bytes;
    this.#remember(seen);
    if (range === undefined) return;
    this.#cancelledBytes += seen.bytes;
    const from = secondOf(range.from);
    const times = this.#outgrown?.from === from ? this.#outgrown.times + 1 : 1;
    this.#outgrown = { from, to: secondOf(range.to), times };
    this.#leaves.bytes = 0;
    this.#leaves.seenBytes = 0;
    this.#bytesPerSecond = undefined;
  }

  /** A range was answered to its end. @param firstSecond of its rows */
  done(range: Range, bytes: number, firstSecond: number | undefined): void {
    this.#inFlightBytes = undefined;
    this.#doneBytes += bytes;
    const [from, to] = [secondOf(range.from), secondOf(range.to)];
    this.#leaves.bytes += bytes;
    this.#leaves.seenBytes += bytesOf(within(this.#seen, from, to));
    this.#seen = within(this.#seen, to, Number.POSITIVE_INFINITY);
    this.#bytesPerSecond = bytes / Math.max(1, to - Math.max(from, firstSecond ?? from));
  }

  /** Whether an answer for a range has less than was seen before in one that did not come to its end. */
  isLess(answer: Sample, range: Range): boolean {
    return lacks(answer, this.#seen, secondOf(range.from), secondOf(range.to));
  }

  /** As JSON, for the resume state. */
  toHint(): unknown {
    const wanted: z.input<typeof hint> = {
      version: 1,
      seen: {
        bucketSeconds: this.#seen.bucketSeconds,
        buckets: this.#seen.buckets.map(([at, bytes]) => [at, bytes]),
      },
      sortedTo: this.#sortedTo,
      lostBytes: this.#lostBytes,
      cancelledBytes: this.#cancelledBytes,
      doneBytes: this.#doneBytes,
      inFlightBytes: this.#inFlightBytes,
      outgrown: this.#outgrown,
    };
    return wanted;
  }

  #remember({ sample, sortedTo }: Seen): void {
    const seen = larger(this.#seen, sample);
    this.#seen = sampleOf(seen.buckets, seen.bucketSeconds, BUCKETS_MAX);
    this.#sortedTo = sortedTo;
  }

  /** At least so much is there. */
  #knownBytes(): number {
    return this.#doneBytes + bytesOf(this.#seen);
  }

  #pieceBytes(): number {
    const wanted = PIECE_SHARE * this.#segmentBytesMax;
    const least = Math.min(PIECE_BYTES_MIN, PIECE_SHARE_MIN * this.#segmentBytesMax);
    if (this.#lostBytes === 0) return wanted;
    const bearable = LOSS_TIMES_MAX * this.#knownBytes() - this.#lostBytes;
    return Math.max(least, Math.min(wanted, bearable * RISKED_PART));
  }

  /** @param outgrownTimes how many answers beginning there were too large */
  #bySample(seen: Sample, from: number, pieceBytes: number, outgrownTimes: number): number | undefined {
    const seenBytes = bytesOf(seen);
    const { bytes, seenBytes: leafSeen } = this.#leaves;
    const scale = leafSeen > 0 ? Math.max(1, bytes / leafSeen) : undefined;
    if (outgrownTimes === 0 && seenBytes * (scale ?? 1) <= pieceBytes) return undefined;
    if (this.#sortedTo !== undefined) return borderAt(seen, pieceBytes) ?? this.#sortedTo;
    const leap = outgrownTimes > 1 ? leapBefore(seen, outgrownTimes) : undefined;
    if (leap !== undefined && leap > from) return leap;
    return borderAt(
      seen,
      Math.min(pieceBytes, scale === undefined ? seenBytes / SAMPLE_PARTS : pieceBytes / scale),
    );
  }

  #byRate(from: number, to: number, pieceBytes: number): number | undefined {
    const rate = this.#bytesPerSecond;
    // Of the time before the first entry, which nobody knows, a rate says nothing.
    if (rate === undefined || from === 0 || rate * (to - from) <= STREAM_SEGMENTS_MAX * this.#segmentBytesMax)
      return undefined;
    return from + Math.max(1, Math.floor(pieceBytes / rate));
  }
}

/** The first border of a bucket behind which a sample holds more than so much. */
function borderAt({ buckets, bucketSeconds }: Sample, bytesMax: number): number | undefined {
  let sum = 0;
  for (const [bucket, bytes] of buckets) {
    const isFirst = sum === 0;
    sum += bytes;
    if (sum > bytesMax) return (isFirst ? bucket + 1 : bucket) * bucketSeconds;
  }
  return undefined;
}

/**
 * Before everything that was seen, ever further: a source that shows the end of a range first would
 * otherwise be asked for all that lies before it again and again.
 */
function leapBefore({ buckets, bucketSeconds }: Sample, times: number): number | undefined {
  const [first, last] = [buckets[0], buckets.at(-1)];
  if (first === undefined || last === undefined) return undefined;
  const seconds = (last[0] + 1 - first[0]) * bucketSeconds;
  return first[0] * bucketSeconds - seconds * 2 ** (times - 1);
}
