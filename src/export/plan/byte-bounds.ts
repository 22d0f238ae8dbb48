/**
 * At least how many bytes lie where in time, learned from streams that did not come to their end. A bag of
 * stretches, each a power of two long and so nested in one another or apart: what is known of a stretch
 * beyond what is known of its parts. Plain data, so that it can be kept. Pure.
 */
import type { Sample } from './time-histogram.ts';

/** `[first second, seconds, bytes]`, by first second, the longer before what lies in them. */
export type ByteBounds = readonly (readonly [number, number, number])[];

type Stretch = readonly [from: number, seconds: number, bytes: number];

export function boundsOf({ bucketSeconds, buckets }: Sample): ByteBounds {
  return buckets.map(([bucket, bytes]) => [bucket * bucketSeconds, bucketSeconds, bytes]);
}

export function bytesIn(bounds: ByteBounds, from: number, to: number): number {
  return bounds.reduce((sum, stretch) => (isWithin(stretch, from, to) ? sum + stretch[2] : sum), 0);
}

export function isWithin([first, seconds]: Stretch, from: number, to: number): boolean {
  return first >= from && first + seconds <= to;
}

/** What both say of the same rows: of each stretch the larger bound. */
export function joined(left: ByteBounds, right: ByteBounds): ByteBounds {
  const result: Stretch[] = [];
  const open: Joining[] = [];
  const close = (until: number): void => {
    for (let last = open.at(-1); last !== undefined && last.end <= until; last = open.at(-1)) {
      open.pop();
      const bytes = Math.max(last.left, last.right, last.parts);
      if (bytes > last.parts) result.push([last.from, last.end - last.from, bytes - last.parts]);
      const outer = open.at(-1);
      if (outer === undefined) continue;
      outer.left += last.left;
      outer.right += last.right;
      outer.parts += bytes;
    }
  };
  const sided = [
    ...left.map((stretch) => ({ stretch, side: 'left' as const })),
    ...right.map((stretch) => ({ stretch, side: 'right' as const })),
  ];
  for (const { stretch, side } of sided.toSorted((one, other) => byStart(one.stretch, other.stretch))) {
    const [from, seconds, bytes] = stretch;
    close(from);
    let last = open.at(-1);
    if (last === undefined || last.from !== from || last.end !== from + seconds) {
      last = { from, end: from + seconds, left: 0, right: 0, parts: 0 };
      open.push(last);
    }
    last[side] += bytes;
  }
  close(Number.POSITIVE_INFINITY);
  return result.toSorted(byStart);
}

/** Without what lies before `second`, of which `surplusBytes` more came than was known to be there. */
export function after(bounds: ByteBounds, second: number, surplusBytes: number): ByteBounds {
  return bounds.flatMap(([from, seconds, bytes]): Stretch[] => {
    if (from >= second) return [[from, seconds, bytes]];
    const rest = from + seconds <= second ? 0 : bytes - surplusBytes;
    return rest <= 0 ? [] : [[from, seconds, rest]];
  });
}

/** No more stretches than that: the lightest are told of what surrounds them. */
export function thinned(bounds: ByteBounds, stretchesMax: number): ByteBounds {
  const lightBytes = (2 * bounds.reduce((sum, [, , bytes]) => sum + bytes, 0)) / stretchesMax;
  let thin = bounds;
  while (thin.length > stretchesMax) {
    const folded = new Map<string, Stretch>();
    for (const [from, seconds, bytes] of thin) {
      const length = bytes < lightBytes ? seconds * 2 : seconds;
      const start = Math.floor(from / length) * length;
      const key = `${start} ${length}`;
      folded.set(key, [start, length, bytes + (folded.get(key)?.[2] ?? 0)]);
    }
    thin = [...folded.values()];
  }
  return thin.toSorted(byStart);
}

/** Whether an answer for `[from, to)` has less in some stretch than is known to be there. */
export function lacks(answer: Sample, bounds: ByteBounds, from: number, to: number): boolean {
  const { bucketSeconds, buckets } = answer;
  return bounds.some((stretch) => {
    if (!isWithin(stretch, from, to)) return false;
    const [first, end] = [stretch[0], stretch[0] + stretch[1]];
    const gotBytes = buckets
      .filter(([bucket]) => bucket * bucketSeconds < end && (bucket + 1) * bucketSeconds > first)
      .reduce((sum, [, bytes]) => sum + bytes, 0);
    return gotBytes < bytesIn(bounds, first, end);
  });
}

interface Joining {
  readonly from: number;
  readonly end: number;
  left: number;
  right: number;
  parts: number;
}

function byStart(one: Stretch, other: Stretch): number {
  return one[0] - other[0] || other[1] - one[1];
}
