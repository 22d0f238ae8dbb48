import type { Micros } from '../../core/time.ts';

/** What of a party's mirrored ledger is asked for. */
export interface LedgerQuestion {
  readonly partyId: string;
  /** Absent: every asset. */
  readonly assetId?: string | undefined;
  /** Whole seconds, half-open, by the rows' `vega_time`. */
  readonly from?: Micros | undefined;
  readonly to?: Micros | undefined;
  /** All of it must be covered by closed segments that are believed, up to its end. */
  readonly isProofNeeded?: boolean | undefined;
}
