/** What an export needs from the source. */
import type { ExportScope } from '../ledger/export-scope.ts';
import type { Micros } from '../time/time.ts';

export interface WindowRequest extends Omit<ExportScope, 'hasOwnIds'> {
  /**
   * The start, inclusive, which is a whole second. If absent, the window begins at the
   * beginning.
   */
  readonly from?: Micros | undefined;
  /**
   * The end, exclusive, which is a whole second and only allowed together with `from`.
   * If absent, the window reaches the present.
   */
  readonly to?: Micros | undefined;
}

/**
 * What the headers of an answer show about the node that sent it; any of them may be
 * missing.
 */
export interface AnswerHead {
  /** The height of the node's last block. */
  readonly blockHeight?: bigint | undefined;
  readonly blockTime?: Micros | undefined;
  /**
   * When the answer was made: its `Date` header minus its `Age`, the time spent in a
   * cache.
   */
  readonly producedAt?: Micros | undefined;
  /** Its `Age` by itself: an answer that spent time in a cache may have no `Date`. */
  readonly ageMicros?: Micros | undefined;
  /**
   * Whether a mirror sent the answer. Its block time is then the exact second up to which
   * the ledger is proven.
   */
  readonly isProven?: boolean;
}

/**
 * The plain CSV bytes of one answer, whichever form it came in (raw, or result and error
 * messages, with gzip or without). Iterating ends cleanly only if the transfer did. It
 * throws if the stream contained an error message, broke, stalled or became too slow. An
 * error that is glued to the last CSV row must be found by the reader of the rows.
 */
export interface ExportAnswer extends AsyncDisposable {
  readonly form: () => 'csv' | 'messages' | undefined;
  /**
   * Whether the transport shows where the answer ends, by a length or by chunks. Gzip
   * does not show it: it may end after any member.
   */
  readonly isFramed: boolean;
  readonly chunks: AsyncIterable<Buffer>;
  /** What the headers show about the node that answered; absent if they show nothing. */
  readonly head?: AnswerHead;
}

export interface LedgerSource {
  readonly baseUrl: string;
  /** Whether the source's rows have times. Without times, no range can be closed. */
  readonly hasTimes: boolean;
  /**
   * Waits for the rate budget, sends the request, and resolves with the answer's headers.
   * It retries by itself only if the source did no work (busy, limited, banned,
   * unreachable).
   * @throws PermanentError `EXPORT_REFUSED` (`meta` has `status`, `code` and the
   *   service's `detailCode`), `ASSET_REQUIRED` if the source demands an asset,
   *   `EXPORT_QUESTION` for a request that is not allowed: these concern the scope.
   *   Others (`SOURCE_UNAUTHORIZED`, `SOURCE_ABSENT`, `SOURCE_CERTIFICATE`, …) concern
   *   all exports.
   * @throws RetryableError `SOURCE_STATUS`, `SOURCE_BROKE`, `SOURCE_STALLED`, … (the
   *   whole request may be repeated, not before `retryAfterMs`); UnreachableError if no
   *   connection was made
   */
  ask(question: WindowRequest, signal: AbortSignal): Promise<ExportAnswer>;
}
