/** What loading and verifying need from the warehouse. */
import type { SegmentRecord } from './store/segment-records.ts';

/** A superseded segment whose rows are still in the warehouse. */
export type StaleSegment = Pick<SegmentRecord, 'segmentId' | 'assetId' | 'from' | 'to'>;

export interface QuarantineReason {
  readonly code: string;
  readonly message: string;
}

/** Whole lines of COPY input in text format, of one month (`2023-05`), whose partition must exist before they are sent. */
export interface MonthLines {
  readonly month: string;
  readonly lines: Buffer;
}

/** Where a segment's rows go; a write that resolves makes room for the next. */
export interface RowSink {
  write(months: readonly MonthLines[]): Promise<void>;
}

export interface MonthSum {
  /** `2023-05` */
  readonly month: string;
  readonly rows: bigint;
  readonly valuesDigest: string;
}

/** What the loader found while it read a segment. */
export interface LoadedSums {
  readonly rows: bigint;
  readonly valuesDigest: string;
  readonly months: readonly MonthSum[];
  /** Rows whose `effect` is not what their quantity and accounts say; they are loaded as they were sent. */
  readonly effectsContradicted: bigint;
}

/** Segments that must change place in one transaction, so that nobody sees a range twice or not at all. */
export interface Replacement {
  readonly load: readonly SegmentRecord[];
  readonly remove: readonly StaleSegment[];
}

/** What is not there because nobody fetched it: told, not failed. */
export interface NeverFetched {
  readonly parties: number;
  readonly listsWithGaps: readonly string[];
  readonly openSegments: bigint;
  readonly exportsQuarantined: number;
  readonly segmentsNotLoaded: bigint;
}

/** Something recorded that does not agree with what is there. */
export interface Problem {
  /** Stable, for example `OBJECT_CORRUPT`. */
  readonly code: string;
  /** The object, table or file concerned. */
  readonly subject: string;
  readonly message: string;
}

export interface LakeFindings {
  readonly files: number;
  /** How many of them were read; of the others it is known that they are there. */
  readonly filesRead: number;
  readonly rows: bigint;
  /** Loaded or unloaded since the last build: no fault, the next build brings them. */
  readonly segmentsBehind: number;
  readonly problems: readonly Problem[];
}

/** The lake's own check; it lies with the lake. */
export type LakeCheck = (options: LakeCheckOptions, signal: AbortSignal) => Promise<LakeFindings>;

export interface LakeCheckOptions {
  /** Also sums the values of every row. */
  readonly deep: boolean;
  /** Reads the files that were never proven, and of the others one in so many; all of them by default. */
  readonly parts?: number;
}
