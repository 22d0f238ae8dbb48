/** Ids of segments as short text: `1-7,9`. */
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
export function parseIds(text: string): ReadonlySet<bigint> | undefined {
  if (!TEXT.test(text)) return undefined;
  const ids = new Set<bigint>();
  let left = IDS_MAX;
  for (const part of text.split(',')) {
    const [from, to = from] = part.split('-').map(BigInt) as [bigint, bigint?];
    left -= to - from + 1n;
    if (from > to || left < 0n) return undefined;
    for (let id = from; id <= to; id += 1n) ids.add(id);
  }
  return ids;
}
