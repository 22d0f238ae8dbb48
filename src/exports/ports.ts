/** What an export needs from the source. */
import type { ExportScope } from '../ledger/export-scope.ts';
import type { Micros } from '../time/time.ts';

export interface WindowRequest extends Omit<ExportScope, 'hasOwnIds'> {
  /** Inclusive, a whole second. Absent: from the beginning. */
  readonly from?: Micros | undefined;
  /** Exclusive, a whole second; only together with `from`. Absent: up to the present. */
  readonly to?: Micros | undefined;
}

/** What the headers of an answer say of its node; each may be missing. */
export interface AnswerHead {
  /** The node's last block. */
  readonly blockHeight?: bigint | undefined;
  readonly blockTime?: Micros | undefined;
  /** When the answer was made: `Date`, less its `Age` in a cache. */
  readonly producedAt?: Micros | undefined;
  /**
   * The answer is a mirror's: its block time is the instant up to which the ledger is
   * proven, to the second.
   */
  readonly isProven?: boolean;
}

/**
 * The plain CSV bytes of one answer, whichever form it came in (raw, or result/error
 * messages, gzip or not). Iterating ends cleanly only where the transfer did; it throws
 * where the stream carried an error message, broke, stalled or dripped. An error glued to
 * the last CSV row is the reader of rows' to find.
 */
export interface ExportAnswer extends AsyncDisposable {
  readonly form: () => 'csv' | 'messages' | undefined;
  /**
   * Whether the transport itself says where the answer ends: by its length or its chunks.
   * Gzip may end at any member.
   */
  readonly isFramed: boolean;
  readonly chunks: AsyncIterable<Buffer>;
  /** What its headers say of the node that answered; absent: nothing. */
  readonly head?: AnswerHead;
}

export interface LedgerSource {
  readonly baseUrl: string;
  /** Whether its rows say when they were: otherwise nothing of them can be closed. */
  readonly hasTimes: boolean;
  /**
   * Waits for the rate budget, sends the question and resolves with the answer's headers.
   * Asks again by itself only where the source did no work (busy, limited, banned,
   * unreachable).
   * @throws PermanentError `EXPORT_REFUSED` (`meta` has `status`, `code` and the
   *   service's `detailCode`), `ASSET_REQUIRED` where the source demands an asset,
   *   `EXPORT_QUESTION` for what may not be asked: these concern the scope. Others
   *   (`SOURCE_UNAUTHORIZED`, `SOURCE_ABSENT`, `SOURCE_CERTIFICATE`, …) concern all.
   * @throws RetryableError `SOURCE_STATUS`, `SOURCE_BROKE`, `SOURCE_STALLED`, … (the
   *   whole question may be asked again, not before `retryAfterMs`); UnreachableError
   *   where no connection came about
   */
  ask(question: WindowRequest, signal: AbortSignal): Promise<ExportAnswer>;
}
