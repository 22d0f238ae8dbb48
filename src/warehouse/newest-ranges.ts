/**
 * Decides which of several overlapping ranges of a ledger counts when a database takes
 * over published objects: always the newest.
 */

/** A time range of a ledger, in one asset or in all of them. */
export interface AssetRange<Instant> {
  /** The asset of the range; null or absent stands for every asset. */
  readonly assetId?: string | null | undefined;
  readonly from: Instant;
  /** The end of the range, exclusive. */
  readonly to: Instant;
}

/** A range of a ledger that one export received. */
export interface RangeClaim extends AssetRange<bigint> {
  /** When the range was requested from the source, in microseconds. */
  readonly at: bigint;
}

/**
 * If ranges overlap, keeps the newest one whole and drops the older ones entirely. Any
 * part of a dropped range that no kept range covers is requested from the source again.
 */
export function chooseNewest<Claim extends RangeClaim>(
  ranges: readonly Claim[],
): { readonly kept: readonly Claim[]; readonly dropped: readonly Claim[] } {
  const kept: Claim[] = [];
  const dropped: Claim[] = [];
  const newestFirst = ranges.toSorted((a, b) => Number(b.at - a.at));
  for (const range of newestFirst) {
    const isReplaced = kept.some((newer) => doRangesOverlap(range, newer));
    (isReplaced ? dropped : kept).push(range);
  }
  return { kept, dropped };
}

/** Whether two ranges of a ledger share an instant and an asset. */
export function doRangesOverlap<Instant extends bigint | string>(
  a: AssetRange<Instant>,
  b: AssetRange<Instant>,
): boolean {
  const shareAsset = !a.assetId || !b.assetId || a.assetId === b.assetId;
  return shareAsset && a.from < b.to && b.from < a.to;
}
