/** What an export needs from the source. */
import type { Micros } from '../core/time.ts';

export interface ExportQuestion {
  readonly partyId: string;
  readonly assetId?: string | undefined;
  /** Inclusive, a whole second. Absent: from the beginning. */
  readonly from?: Micros | undefined;
  /** Exclusive, a whole second; only together with `from`. Absent: up to the present. */
  readonly to?: Micros | undefined;
}

/**
 * The plain CSV bytes of one answer, whichever form it came in (raw, or result/error messages, gzip or
 * not). Iterating ends cleanly only where the transfer did; it throws where the stream carried an error
 * message, broke, stalled or dripped. An error glued to the last CSV row is the reader of rows' to find.
 */
export interface ExportAnswer extends AsyncDisposable {
  readonly contentType: string | undefined;
  /** `result.extensions` of the first message, kept for the manifest. */
  readonly extensions: () => readonly unknown[];
  readonly form: () => 'csv' | 'messages' | undefined;
  readonly chunks: AsyncIterable<Buffer>;
}

export interface LedgerSource {
  readonly baseUrl: string;
  /**
   * Waits for the rate budget, sends the question and resolves with the first bytes' arrival.
   * @throws PermanentError `EXPORT_REFUSED` (4xx; `meta` has status, code and the vega detail code),
   *   `ASSET_REQUIRED` where the source demands an asset
   * @throws RetryableError `SOURCE_STATUS`, `SOURCE_BROKE`, `SOURCE_STALLED`, …  (the whole question may be asked again)
   */
  ask(question: ExportQuestion, signal: AbortSignal): Promise<ExportAnswer>;
}
