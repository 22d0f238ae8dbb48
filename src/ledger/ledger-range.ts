import type { Micros } from '../time/time.ts';

/** One party's ledger, or part of it. */
export interface LedgerRange {
  readonly partyId: string;
  /** The asset; absent if the range covers all assets. */
  readonly assetId?: string | undefined;
  /** The range of the rows' `vega_time`: half-open, in whole seconds. */
  readonly from?: Micros | undefined;
  readonly to?: Micros | undefined;
}

/** The part of a mirrored ledger that a caller requests. */
export interface LedgerQuery extends LedgerRange {
  /** Whether closed and trusted segments must cover the whole range, to its end. */
  readonly isProofNeeded?: boolean | undefined;
  /**
   * Whether a partial result is enough. If so, unknown ranges are left out instead of
   * causing an error.
   */
  readonly isPartial?: boolean | undefined;
}
