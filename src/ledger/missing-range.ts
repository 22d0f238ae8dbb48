/**
 * A requested part of a ledger that the mirror does not have.
 */
import { formatInstant, type Micros } from '../time/time.ts';

export interface MissingRange {
  /** The asset of the range; undefined stands for all assets. */
  readonly assetId: string | undefined;
  readonly from: Micros;
  /**
   * The end of the range, exclusive; undefined if nothing after `from` is known either.
   */
  readonly to: Micros | undefined;
}

/**
 * Describes a missing range for messages, for example `from 2023-05-01T00:00:00.000000Z
 * on`.
 */
export function describeMissing({ assetId, from, to }: MissingRange): string {
  const asset = assetId === undefined ? '' : ` in asset ${assetId}`;
  const start = formatInstant(from);
  return to === undefined
    ? `from ${start} on${asset}`
    : `of ${start} to ${formatInstant(to)}${asset}`;
}
