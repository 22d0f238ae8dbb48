/** How many bytes of a stream lie where in time, in bounded memory, to cut it at whole seconds later. */
import { type Sample, sampleOf } from './sample.ts';

const BUCKETS_MAX = 4096;

export class TimeHistogram {
  readonly #buckets = new Map<number, number>();
  /** Seconds in one bucket; doubles whenever there would be too many. */
  #bucketSeconds = 1;
  #lastBucket = Number.NaN;
  #lastBytes = 0;

  add(second: number, bytes: number): void {
    const bucket = Math.floor(second / this.#bucketSeconds);
    if (bucket === this.#lastBucket) {
      this.#lastBytes += bytes;
      return;
    }
    this.#settle();
    this.#lastBucket = Math.floor(second / this.#bucketSeconds);
    this.#lastBytes = bytes;
  }

  /**
   * Seconds at which to cut, so that no piece holds more than `bytesMax`, but for buckets that alone
   * hold more. A piece may be cut again: its own histogram is finer.
   */
  cuts(bytesMax: number): number[] {
    const cuts: number[] = [];
    let windowBytes = 0;
    for (const [bucket, bytes] of this.#sorted()) {
      if (windowBytes > 0 && windowBytes + bytes > bytesMax) {
        cuts.push(bucket * this.#bucketSeconds);
        windowBytes = 0;
      }
      windowBytes += bytes;
    }
    return cuts;
  }

  /** The same as plain data, no finer than so many buckets. */
  sample(bucketsMax: number): Sample {
    return sampleOf(this.#sorted(), this.#bucketSeconds, bucketsMax);
  }

  #sorted(): [number, number][] {
    this.#settle();
    return [...this.#buckets].toSorted(([left], [right]) => left - right);
  }

  /** Rows of one second follow one another, so a bucket is written when it changes. */
  #settle(): void {
    if (Number.isNaN(this.#lastBucket)) return;
    this.#buckets.set(this.#lastBucket, (this.#buckets.get(this.#lastBucket) ?? 0) + this.#lastBytes);
    this.#lastBucket = Number.NaN;
    this.#lastBytes = 0;
    while (this.#buckets.size > BUCKETS_MAX) this.#coarsen();
  }

  #coarsen(): void {
    const fine = [...this.#buckets];
    this.#buckets.clear();
    this.#bucketSeconds *= 2;
    for (const [bucket, bytes] of fine) {
      const coarse = Math.floor(bucket / 2);
      this.#buckets.set(coarse, (this.#buckets.get(coarse) ?? 0) + bytes);
    }
  }
}
