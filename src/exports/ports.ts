/** What an export needs from the source. */
import type { ExportScope } from '../ledger/export-scope.ts';
import type { Micros } from '../time/time.ts';

export interface WindowRequest extends Omit<ExportScope, 'hasOwnIds'> {
  /** The start, inclusive, a whole second. If absent, the window has no lower bound. */
  readonly from?: Micros | undefined;
  /**
   * The end, exclusive, a whole second; allowed only together with `from`. If absent,
   * the window extends to the present.
   */
  readonly to?: Micros | undefined;
}

/**
 * What the headers of a response show about the node that sent it. Any of them may be
 * missing.
 */
export interface AnswerHead {
  /** The height of the node's last block. */
  readonly blockHeight?: bigint | undefined;
  readonly blockTime?: Micros | undefined;
  /**
   * When the response was generated: its `Date` header minus its `Age`, the time spent
   * in a cache.
   */
  readonly producedAt?: Micros | undefined;
  /** The `Age` by itself, because a response from a cache may have no `Date`. */
  readonly ageMicros?: Micros | undefined;
  /**
   * Whether the response came from a mirror. Its block time is then the exact second up
   * to which the ledger is proven.
   */
  readonly isProven?: boolean;
}

/**
 * The plain CSV bytes of one response, whatever format it came in (raw, or result and
 * error messages, with or without gzip). Iteration ends cleanly only if the transfer
 * did. It throws if the stream contained an error message, broke, stalled or became too
 * slow. An error message glued to the last CSV row must be detected when the rows are
 * parsed.
 */
export interface ExportAnswer extends AsyncDisposable {
  readonly form: () => 'csv' | 'messages' | undefined;
  /**
   * Whether the response's framing marks its end (a length, or chunked encoding). Gzip
   * alone does not: a gzip stream may end after any member.
   */
  readonly isFramed: boolean;
  readonly chunks: AsyncIterable<Buffer>;
  /**
   * What the headers show about the node that responded; absent if they show nothing.
   */
  readonly head?: AnswerHead;
}

export interface LedgerSource {
  readonly baseUrl: string;
  /** Whether the source's rows have times. Without times, no range can be closed. */
  readonly hasTimes: boolean;
  /**
   * Waits for the rate limit, sends the request, and resolves once the response's
   * headers arrive. It retries by itself only if the source did no work (busy,
   * rate-limited, banned, unreachable).
   * @throws PermanentError `EXPORT_REFUSED` (`meta` has `status`, `code` and the
   *   service's `detailCode`), `ASSET_REQUIRED` if the source requires an asset,
   *   `EXPORT_QUESTION` for a request that is not allowed. These three concern only this
   *   scope; the others (`SOURCE_UNAUTHORIZED`, `SOURCE_ABSENT`, `SOURCE_CERTIFICATE`, …)
   *   concern every export.
   * @throws RetryableError `SOURCE_STATUS`, `SOURCE_BROKE`, `SOURCE_STALLED`, … (the
   *   whole request may be repeated, not before `retryAfterMs`); UnreachableError if no
   *   connection was made
   */
  ask(question: WindowRequest, signal: AbortSignal): Promise<ExportAnswer>;
}
