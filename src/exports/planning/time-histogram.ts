/** How many bytes of a stream lie where in time, in bounded memory. */

import { overlaps } from '../../ledger/ranges.ts';

/** At least so many bytes lie between two seconds, `to` exclusive. Plain data, so that a plan can keep it. */
export interface HistogramBucket {
  readonly from: number;
  readonly to: number;
  readonly bytes: number;
}

/** What is kept of where the bytes of a stream lie. */
const BUCKETS_MAX = 256;

export class TimeHistogram {
  readonly #bucketsMax: number;
  #buckets = new Map<number, number>();
  /** Seconds in one bucket; doubles whenever there would be too many. */
  #bucketSeconds = 1;

  constructor(bucketsMax = BUCKETS_MAX) {
    this.#bucketsMax = bucketsMax;
  }

  add(second: number, bytes: number): void {
    const bucket = Math.floor(second / this.#bucketSeconds);
    this.#buckets.set(bucket, (this.#buckets.get(bucket) ?? 0) + bytes);
    while (this.#buckets.size > this.#bucketsMax) {
      const pairs = Map.groupBy(this.#buckets, ([fine]) => Math.floor(fine / 2));
      const added = [...pairs].map(
        ([half, pair]) => [half, pair.reduce((sum, [, held]) => sum + held, 0)] as const,
      );
      this.#buckets = new Map(added);
      this.#bucketSeconds *= 2;
    }
  }

  /** Apart from one another, in order. */
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

/** Where the first stretches end that hold no more than that together; where the first one ends, if it holds more. */
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

/** What two streams showed of the same rows: the later one is believed wherever both showed some. */
export function mergeSeen(
  earlier: readonly HistogramBucket[],
  later: readonly HistogramBucket[],
): HistogramBucket[] {
  const apart = earlier.filter((old) => !later.some((fresh) => overlaps(old, fresh)));
  return [...apart, ...later].toSorted((one, other) => one.from - other.from);
}

/** Whether an answer has less in some stretch than is known to be there. */
export function hasLess(
  answer: readonly HistogramBucket[],
  known: readonly HistogramBucket[],
): boolean {
  return known.some(
    (one) => sumBytes(answer.filter((part) => overlaps(part, one))) < one.bytes,
  );
}
