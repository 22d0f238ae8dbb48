import type { Micros } from '../time/time.ts';

/** One party's ledger, or a part of it. */
export interface LedgerRange {
  readonly partyId: string;
  /** The asset; absent if the range concerns every asset. */
  readonly assetId?: string | undefined;
  /** The range of the rows' `vega_time`: half-open, in whole seconds. */
  readonly from?: Micros | undefined;
  readonly to?: Micros | undefined;
}

/** The part of a mirrored ledger that a caller requests. */
export interface LedgerQuery extends LedgerRange {
  /** Whether closed and trusted segments must cover the whole range, up to its end. */
  readonly isProofNeeded?: boolean | undefined;
  /**
   * Whether a partial result is enough: unknown ranges are then left out, and the query
   * is not refused because of them.
   */
  readonly isPartial?: boolean | undefined;
}
