/** What loading and verifying need from the warehouse. */
import type { RecordedRange } from '../ledger/objects/coverage-record.ts';
import type { Manifest } from '../ledger/objects/manifest.ts';

/** A current segment as the manifest table has it. */
export interface SegmentRecord {
  readonly segmentId: bigint;
  readonly partyId: string;
  readonly assetId: string | undefined;
  /** RFC 3339; `to` is exclusive. */
  readonly from: string;
  readonly to: string;
  readonly objectKey: string;
  readonly rows: bigint;
  /** Of the plain CSV. */
  readonly bytes: bigint;
  readonly sha256: string;
  readonly digest: string;
  /** Of the object as stored. */
  readonly objectBytes: bigint;
  readonly objectSha256: string;
  readonly columns: readonly string[];
  readonly isLoaded: boolean;
  /** What its load stored; undefined before. */
  readonly valuesDigest: string | undefined;
}

/** A superseded segment whose rows are still in the warehouse. */
export interface StaleSegment {
  readonly segmentId: bigint;
  readonly assetId: string | undefined;
  readonly from: string;
  readonly to: string;
}

export interface QuarantineReason {
  readonly code: string;
  readonly message: string;
}

/** A piece of COPY input in text format, whole lines. */
export interface CopyChunk {
  readonly rows: number;
  /** Lines by month (`2023-05`); a month's partition must exist before its lines are sent. */
  readonly parts: readonly { readonly month: string; readonly lines: Buffer }[];
}

/** Where a segment's rows go; a write that resolves makes room for the next. */
export interface RowSink {
  write(chunk: CopyChunk): Promise<void>;
}

/** Keeps what the loader has decided, for whoever needs the same rows next. */
export interface RowKeeper {
  /** Undefined where nothing more is kept. */
  open(segment: SegmentRecord): SegmentKeeper | undefined;
}

export interface SegmentKeeper {
  write(month: string, lines: Buffer): Promise<void>;
  /** The segment was read to its end and proven. */
  keep(): Promise<void>;
  discard(): Promise<void>;
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

export interface ReplacementResult {
  /** `changed`: the manifest moved on meanwhile; nothing was kept, plan again. */
  readonly state: 'done' | 'changed';
  readonly removedRows: bigint;
}

export interface LoadRepository {
  /** Parties with something to load or to remove, in order, after `after`. */
  partiesToLoad(after: string | undefined, rowsMax: number): Promise<readonly string[]>;
  /** `pending` are the current segments that are not loaded, those that were quarantined among them. */
  toLoad(
    partyId: string,
  ): Promise<{ readonly pending: readonly SegmentRecord[]; readonly stale: readonly StaleSegment[] }>;
  /** One transaction: stale rows out, new rows in, sums and `loaded_at` set. `write` is called once a segment. */
  replace(
    partyId: string,
    replacement: Replacement,
    write: (segment: SegmentRecord, sink: RowSink) => Promise<LoadedSums>,
    signal: AbortSignal,
  ): Promise<ReplacementResult>;
  quarantine(segmentId: bigint, reason: QuarantineReason): Promise<void>;
}

export type RebuiltRange = RecordedRange;

/** All that is known of a party's ledger without the database. */
export interface RebuiltParty {
  readonly partyId: string;
  readonly current: readonly Manifest[];
  readonly superseded: readonly Manifest[];
  /** Disjoint; each `objectKey` is that of a current manifest. */
  readonly coverage: readonly RebuiltRange[];
}

/** Rebuilding the manifest table and the coverage from what lies in the store. */
export interface RebuildRepository {
  /** Nothing is published or covered. */
  isEmpty(): Promise<boolean>;
  begin(): Promise<void>;
  /** The warehouse's own, its last number, and whether a rebuild was begun and not finished. */
  lineage(): Promise<{ readonly warehouseId: string; readonly seq: bigint; readonly isRebuilding: boolean }>;
  /** Records one party in one transaction. What is known and overlaps nothing of it stays; the rest gives way. */
  adopt(party: RebuiltParty): Promise<void>;
  /** Takes over the lineage (warehouse id, sequence) that published all of it: what comes next is newer. */
  finish(lineage: { readonly warehouseId: string; readonly seq: bigint } | undefined): Promise<void>;
}

/** Counts and sums that the warehouse gives of itself. */
export interface VerifyRepository {
  /** Current segments in the order of their ids, after `after`. */
  currentSegments(after: bigint, rowsMax: number): Promise<readonly SegmentRecord[]>;
  /**
   * Current segments that a nightly run proves, in order: those published or loaded since their last proof, and of the
   * others one in `parts`, the oldest proofs first.
   */
  segmentsToProve(parts: number): Promise<readonly bigint[]>;
  /** Those of them that are still current, in the order of their ids. */
  segmentsById(segmentIds: readonly bigint[]): Promise<readonly SegmentRecord[]>;
  /** Its object is lost, damaged or another: the next export of its party asks for its range again. */
  distrust(segmentId: bigint, reason: QuarantineReason): Promise<void>;
  /** Their objects and rows were read and agree; what was distrusted of them is believed again. */
  noteProven(segmentIds: readonly bigint[]): Promise<void>;
  /** When the oldest proof of a current segment was made, RFC 3339; null where one has never been proven. */
  oldestProof(): Promise<string | null>;
  /** The lineage that this warehouse publishes in. */
  warehouseId(): Promise<string>;
  /** Those of the given keys that are of a segment, current or not. */
  knownObjects(objectKeys: readonly string[]): Promise<ReadonlySet<string>>;
  /** The same segment as it is now; undefined where it is no longer current. */
  currentSegment(segmentId: bigint): Promise<SegmentRecord | undefined>;
  /** Rows in mirror.ledger_entries by segment; segments without rows are missing. */
  countRows(segmentIds: readonly bigint[]): Promise<ReadonlyMap<bigint, bigint>>;
  monthSums(segmentIds: readonly bigint[]): Promise<ReadonlyMap<bigint, readonly MonthSum[]>>;
  /** Loaded rows as COPY lines: segment id, extra (COPY-escaped JSON or \N), canonical values. */
  loadedLines(segmentIds: readonly bigint[], signal: AbortSignal): AsyncIterable<Buffer>;
  /** Statements about the tables that must hold, each with how often it does not. */
  /** @param isFull also those that read every row */
  inconsistencies(signal: AbortSignal, isFull: boolean): Promise<readonly Inconsistency[]>;
  neverFetched(): Promise<NeverFetched>;
}

export interface Inconsistency {
  /** Stable, for example `ROWS_WITHOUT_SEGMENT`. */
  readonly code: string;
  readonly message: string;
  readonly count: bigint;
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
export interface LakeCheck {
  (options: LakeCheckOptions, signal: AbortSignal): Promise<LakeFindings>;
}

export interface LakeCheckOptions {
  /** Also sums the values of every row. */
  readonly deep: boolean;
  /** Reads the files that were never proven, and of the others one in so many; all of them by default. */
  readonly parts?: number;
}
