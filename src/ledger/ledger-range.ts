import type { Micros } from '../time/time.ts';

/** One party's ledger, or a part of it. */
export interface LedgerRange {
  readonly partyId: string;
  /** Absent: every asset. */
  readonly assetId?: string | undefined;
  /** Whole seconds, half-open, by the rows' `vega_time`. */
  readonly from?: Micros | undefined;
  readonly to?: Micros | undefined;
}

/** What of a mirrored ledger is asked for. */
export interface LedgerQuery extends LedgerRange {
  /** All of it must be covered by closed segments that are believed, up to its end. */
  readonly isProofNeeded?: boolean | undefined;
  /** What there is of it will do: ranges that are not known are left out, not refused. */
  readonly isPartial?: boolean | undefined;
}
