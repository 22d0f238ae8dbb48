/** What an export needs from the source and from the warehouse. */
import type { Micros } from '../core/time.ts';
import type { Sides } from '../ledger/header.ts';
import type { PartyCoverage } from '../ledger/objects/coverage-record.ts';
import type { Manifest } from '../ledger/objects/manifest.ts';

export interface WindowRequest {
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
  /** Whether the transport itself says where the answer ends: by its length, its chunks, or its compression. */
  readonly isFramed: boolean;
  /** Whether it came by a length that it has: then a last row without a line end is whole. */
  readonly isMeasured: boolean;
  readonly chunks: AsyncIterable<Buffer>;
}

export interface LedgerSource {
  readonly baseUrl: string;
  /** Whether its rows say when they were: otherwise nothing of them can be closed. */
  readonly hasTimes: boolean;
  /**
   * Waits for the rate budget, sends the question and resolves with the answer's headers. Asks again by
   * itself only where the source did no work (busy, limited, banned, unreachable).
   * @throws PermanentError `EXPORT_REFUSED` (`meta` has `status`, `code` and the service's `detailCode`),
   *   `ASSET_REQUIRED` where the source demands an asset, `EXPORT_QUESTION` for what may not be asked: these
   *   concern the scope. Others (`SOURCE_UNAUTHORIZED`, `SOURCE_ABSENT`, `SOURCE_CERTIFICATE`, …) concern all.
   * @throws RetryableError `SOURCE_STATUS`, `SOURCE_BROKE`, `SOURCE_STALLED`, … (the whole question may be
   *   asked again, not before `retryAfterMs`); UnreachableError where no connection came about
   */
  ask(question: WindowRequest, signal: AbortSignal): Promise<ExportAnswer>;
}

/** A party's entries in one asset, or in all of them: what is asked, leased and published as one. */
export interface ExportScope {
  readonly partyId: string;
  /** Absent: every asset. */
  readonly assetId?: string | undefined;
  /** The source lists parties whose ids are not 64 hex digits: in its rows any printable text may be a party. */
  readonly hasOwnIds?: boolean | undefined;
}

/** The right to work on a scope, for as long as its lease is renewed. */
export interface ExportLease {
  readonly scope: ExportScope;
  readonly exportId: bigint;
  readonly token: string;
  /** When the request that took it was sent (`performance.now()`), where it was taken before it was asked for. */
  readonly takenAtMs?: number | undefined;
}

/** The sum of a range's last rows: what every continuation asks for again, to see that it still is there. */
export interface TailSum {
  /** A whole second; the range's end is the coverage's. */
  readonly from: Micros;
  readonly rows: number;
  readonly digest: string;
  readonly rowForm: string;
}

export interface NewCoverage {
  readonly from: Micros;
  readonly to: Micros;
  readonly open: boolean;
  readonly sides: Coverage['sides'];
  /** Given where it is of another scope than the export's own: null means all assets. */
  readonly ofAsset?: string | null | undefined;
  /** Absent: nothing lies in the range. */
  readonly objectKey?: string | undefined;
  readonly tail?: TailSum | undefined;
  /** Given where the source was not asked for it now. */
  readonly checkedAt?: Micros | undefined;
}

/** A range of a ledger that is known: a current segment, or proven to be empty. */
export interface Coverage {
  readonly coverageId: bigint;
  readonly assetId: string | undefined;
  readonly from: Micros;
  readonly to: Micros;
  readonly open: boolean;
  readonly sides: Sides | 'unknown';
  readonly objectKey: string | undefined;
  readonly rows: bigint;
  readonly tail: TailSum | undefined;
  /** The run that asked for it last. */
  readonly runId?: string | undefined;
  /** Of the source's chain, when it was asked for. */
  readonly epoch?: number | undefined;
  /** Microseconds since 1970. */
  readonly checkedAt?: Micros | undefined;
  /** Its object was found lost, damaged or unreadable: it is asked for again. */
  readonly isFaulty?: boolean | undefined;
  /** Its rows are in the warehouse. */
  readonly isLoaded?: boolean | undefined;
  /** Of the segment, where there is one. */
  readonly content?:
    | { readonly bytes: bigint; readonly digest: string; readonly rowForm: string }
    | undefined;
}

/**
 * Everything that becomes visible in one COMMIT, written down before the first object is: whoever finds
 * it after a crash can finish it without the source.
 */
export interface Publication {
  readonly publicationId: string;
  readonly runId: string;
  readonly segments: readonly { readonly spoolName: string; readonly manifest: Manifest }[];
  readonly coverage: readonly NewCoverage[];
  /** Coverage that the new one takes the place of, with its segments. */
  readonly supersedes: readonly bigint[];
  /** Coverage that was received again and found unchanged: closed as it stands, with its segment. */
  readonly closes: readonly { readonly coverageId: bigint; readonly tail?: TailSum | undefined }[];
  /** Of the source's chain; absent where no list is known. */
  readonly epoch?: number | undefined;
  /** Second of the newest entry received. */
  readonly lastEntryAt?: Micros | undefined;
}

/** What the source's answers have shown of its release. Kept whole: learning replaces it. */
export interface SourceProfile {
  /**
   * 'right': a start and an end may be sent together. 'broken': the release filters them wrongly; only a
   * start is sent, and no range is divided, since every piece would repeat what comes in at any time.
   */
  readonly bounds?: 'right' | 'broken' | 'unproven' | undefined;
  readonly sides?: Sides | undefined;
  /** Names the header line that this was decided by; another header, another release. */
  readonly header?: string | undefined;
  /** What showed it, in words, and when. */
  readonly evidence?: string | undefined;
  readonly decidedAt?: Micros | undefined;
  /** An entry that left a party: what a question with both bounds must bring back. */
  readonly known?:
    | { readonly partyId: string; readonly assetId?: string | undefined; readonly second: Micros }
    | undefined;
  /** It refuses a request without a start and an end. */
  readonly boundsDemanded?: boolean | undefined;
  /** Of a source that tells no time: its newest entry of any ledger. It had all of its blocks before that one. */
  readonly shownTo?: Micros | undefined;
  /** Its rows have no times: what is open of a ledger, asked for whole, is all that can be covered. */
  readonly isTimeless?: boolean | undefined;
  readonly assetRequired?: boolean | undefined;
  readonly assetAskedAt?: Micros | undefined;
}

/** `publication` is missing where this version cannot read what was intended. */
export interface OpenPublication {
  readonly publicationId: string;
  readonly publication: Publication | undefined;
}

export interface Quarantine {
  readonly attempts: number;
  readonly isQuarantined: boolean;
}

export interface PublishedSegment {
  readonly objectKey: string;
  readonly rows: bigint;
  readonly bytes: bigint;
}

/** Coverage of one moment, to be recorded in the store. */
export interface CoverageSnapshot {
  readonly warehouseId: string;
  /** Above that of every publication and record before it. */
  readonly seq: bigint;
  /** Of at least half of all exports the coverage changed since the last record. */
  readonly isMostlyChanged: boolean;
  /** In the order of their ids: every party, or only those whose coverage changed since the last record. */
  parties(which: 'all' | 'changed'): AsyncIterable<PartyCoverage>;
}

export interface Segment {
  readonly segmentId: bigint;
  readonly assetId: string | undefined;
  readonly from: Micros;
  readonly to: Micros;
  readonly open: boolean;
  readonly objectKey: string;
  readonly rows: bigint;
  readonly bytes: bigint;
  readonly columns: readonly string[];
}
