/** Ids of segments as short text: `1-7,9`. */
export type IdRange = readonly [first: bigint, last: bigint];

const TEXT = /^\d{1,18}(?:-\d{1,18})?(?:,\d{1,18}(?:-\d{1,18})?)*$/;
/** Of one file: far more than a build puts into one. */
const IDS_MAX = 1_000_000n;

export function formatIds(ids: Iterable<bigint>): string {
  const ranges: [bigint, bigint][] = [];
  for (const id of [...ids].toSorted((a, b) => (a < b ? -1 : 1))) {
    const last = ranges.at(-1);
    if (last !== undefined && id <= last[1] + 1n) last[1] = id;
    else ranges.push([id, id]);
  }
  return ranges.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(',');
}

/** Undefined where the text is none. */
export function parseIds(text: string): readonly IdRange[] | undefined {
  if (!TEXT.test(text)) return undefined;
  const ranges = text.split(',').map((part): IdRange => {
    const [first = '', last = first] = part.split('-');
    return [BigInt(first), BigInt(last)];
  });
  const count = ranges.reduce((sum, [first, last]) => sum + last - first + 1n, 0n);
  const isSound = ranges.every(([first, last]) => first <= last) && count <= IDS_MAX;
  return isSound ? ranges : undefined;
}
