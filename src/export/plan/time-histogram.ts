/** How many bytes of a stream lie where in time, in bounded memory. */

/** A lower bound of the bytes in each stretch of time. Plain data, so that a plan can keep it. */
export interface Sample {
  /** Seconds in one bucket, a power of two. */
  readonly bucketSeconds: number;
  /** `[number of the bucket, bytes]`, in order. */
  readonly buckets: readonly (readonly [number, number])[];
}

const BUCKETS_MAX = 4096;

export class TimeHistogram {
  #buckets = new Map<number, number>();
  /** Seconds in one bucket; doubles whenever there would be too many. */
  #bucketSeconds = 1;

  add(second: number, bytes: number): void {
    const bucket = Math.floor(second / this.#bucketSeconds);
    this.#buckets.set(bucket, (this.#buckets.get(bucket) ?? 0) + bytes);
    while (this.#buckets.size > BUCKETS_MAX) {
      this.#buckets = halved(this.#buckets);
      this.#bucketSeconds *= 2;
    }
  }

  /** No finer than so many buckets. */
  sample(bucketsMax: number): Sample {
    let [bucketSeconds, buckets] = [this.#bucketSeconds, this.#buckets];
    for (; buckets.size > bucketsMax; bucketSeconds *= 2) buckets = halved(buckets);
    return { bucketSeconds, buckets: [...buckets].toSorted(([one], [other]) => one - other) };
  }
}

export function bytesOf({ buckets }: Sample): number {
  return buckets.reduce((sum, [, bytes]) => sum + bytes, 0);
}

/** Two buckets become one. */
function halved(fine: ReadonlyMap<number, number>): Map<number, number> {
  const coarse = new Map<number, number>();
  for (const [bucket, bytes] of fine) {
    const half = Math.floor(bucket / 2);
    coarse.set(half, (coarse.get(half) ?? 0) + bytes);
  }
  return coarse;
}
