/** Records how a stream's bytes are distributed over time, in bounded memory. */
import { overlaps } from '../../ledger/ranges.ts';

/**
 * A lower bound for the bytes between two seconds; `to` is exclusive. Plain data,
 * because it is stored.
 */
export interface HistogramBucket {
  readonly from: number;
  readonly to: number;
  readonly bytes: number;
}

/** Maximum number of buckets in a histogram, which bounds its memory. */
const BUCKETS_MAX = 256;

export class TimeHistogram {
  readonly #bucketsMax: number;
  #buckets = new Map<number, number>();
  /**
   * How many seconds one bucket spans; doubled whenever there would be too many
   * buckets.
   */
  #bucketSeconds = 1;

  constructor(bucketsMax = BUCKETS_MAX) {
    this.#bucketsMax = bucketsMax;
  }

  add(second: number, bytes: number): void {
    const bucket = Math.floor(second / this.#bucketSeconds);
    this.#buckets.set(bucket, (this.#buckets.get(bucket) ?? 0) + bytes);
    while (this.#buckets.size > this.#bucketsMax) {
      const pairs = Map.groupBy(this.#buckets, ([fine]) =>
        Math.floor(fine / 2),
      );
      const added = [...pairs].map(
        ([half, pair]) =>
          [half, pair.reduce((sum, [, held]) => sum + held, 0)] as const,
      );
      this.#buckets = new Map(added);
      this.#bucketSeconds *= 2;
    }
  }

  /** Returns the buckets that hold bytes, disjoint and in order. */
  stretches(): readonly HistogramBucket[] {
    const seconds = this.#bucketSeconds;
    return [...this.#buckets]
      .map(([bucket, bytes]) => ({
        from: bucket * seconds,
        to: (bucket + 1) * seconds,
        bytes,
      }))
      .toSorted((one, other) => one.from - other.from);
  }
}

export function sumBytes(stretches: readonly HistogramBucket[]): number {
  return stretches.reduce((sum, { bytes }) => sum + bytes, 0);
}

/**
 * Returns the end of the longest run of leading buckets that hold at most `bytesMax` in
 * total. If the first bucket alone holds more, returns its end; undefined if there are
 * no buckets.
 */
export function findBorder(
  stretches: readonly HistogramBucket[],
  bytesMax: number,
): number | undefined {
  let sum = 0;
  let border = stretches[0]?.to;
  for (const { to, bytes } of stretches) {
    sum += bytes;
    if (sum > bytesMax) break;
    border = to;
  }
  return border;
}

/**
 * Merges what two streams showed about the same rows. Where they overlap, the later
 * stream takes precedence.
 */
export function mergeSeen(
  earlier: readonly HistogramBucket[],
  later: readonly HistogramBucket[],
): HistogramBucket[] {
  const apart = earlier.filter(
    (old) => !later.some((fresh) => overlaps(old, fresh)),
  );
  return [...apart, ...later].toSorted((one, other) => one.from - other.from);
}

/** Whether a response has fewer bytes in some bucket than were seen before. */
export function hasLess(
  answer: readonly HistogramBucket[],
  known: readonly HistogramBucket[],
): boolean {
  return known.some(
    (one) => sumBytes(answer.filter((part) => overlaps(part, one))) < one.bytes,
  );
}
