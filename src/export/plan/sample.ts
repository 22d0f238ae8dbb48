/**
 * What was seen of a stream that did not come to its end: a lower bound of the bytes in each stretch of
 * time. Plain data, so that it can be kept as a hint. Pure.
 */

export interface Sample {
  /** Seconds in one bucket, a power of two. */
  readonly bucketSeconds: number;
  /** `[number of the bucket, bytes]`, in order. */
  readonly buckets: readonly (readonly [number, number])[];
}

export const NOTHING_SEEN: Sample = { bucketSeconds: 1, buckets: [] };

/** @param buckets in order */
export function sampleOf(
  buckets: readonly (readonly [number, number])[],
  bucketSeconds: number,
  bucketsMax: number,
): Sample {
  let sample: Sample = { bucketSeconds, buckets };
  while (sample.buckets.length > bucketsMax) sample = coarser(sample, sample.bucketSeconds * 2);
  return sample;
}

export function bytesOf(sample: Sample): number {
  return sample.buckets.reduce((sum, [, bytes]) => sum + bytes, 0);
}

/** Both are lower bounds of the same rows, so the larger of the two is one as well. */
export function larger(left: Sample, right: Sample): Sample {
  const bucketSeconds = Math.max(left.bucketSeconds, right.bucketSeconds);
  const merged = new Map(coarser(left, bucketSeconds).buckets);
  for (const [bucket, bytes] of coarser(right, bucketSeconds).buckets) {
    merged.set(bucket, Math.max(merged.get(bucket) ?? 0, bytes));
  }
  return { bucketSeconds, buckets: [...merged].toSorted(([one], [other]) => one - other) };
}

function coarser(sample: Sample, bucketSeconds: number): Sample {
  if (bucketSeconds === sample.bucketSeconds) return sample;
  const factor = bucketSeconds / sample.bucketSeconds;
  const buckets: [number, number][] = [];
  for (const [bucket, bytes] of sample.buckets) {
    const coarse = Math.floor(bucket / factor);
    const last = buckets.at(-1);
    if (last?.[0] === coarse) last[1] += bytes;
    else buckets.push([coarse, bytes]);
  }
  return { bucketSeconds, buckets };
}
