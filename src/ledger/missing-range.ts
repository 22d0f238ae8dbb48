/** A part of a ledger that was asked for, and that the mirror does not know. */
import { formatInstant, type Micros } from '../time/time.ts';

export interface MissingRange {
  /** undefined: every asset. */
  readonly assetId: string | undefined;
  readonly from: Micros;
  /** Exclusive; undefined: nothing is known of anything behind `from` either. */
  readonly to: Micros | undefined;
}

/** Names a missing range for messages, such as `from 2023-05-01T00:00:00.000000Z on`. */
export function describeMissing({ assetId, from, to }: MissingRange): string {
  const asset = assetId === undefined ? '' : ` in asset ${assetId}`;
  const start = formatInstant(from);
  return to === undefined
    ? `from ${start} on${asset}`
    : `of ${start} to ${formatInstant(to)}${asset}`;
}
