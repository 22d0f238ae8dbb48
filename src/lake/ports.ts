/** What the lake needs from the warehouse, and what a load leaves for it. */
import type { LakeTable } from './tables/columns.ts';

/** Rows of one loaded segment in one month. */
export interface SegmentMonth {
  readonly segmentId: bigint;
  /** `2023-05` */
  readonly month: string;
  readonly rows: bigint;
  /** The sum of their values. */
  readonly valuesDigest: string;
  /** Whether the segment is open: it will be replaced soon. */
  readonly isOpen: boolean;
  readonly objectSha256: string;
}

/** A table that is written whole when it has changed. */
export type WholeTable = Extract<LakeTable, 'parties' | 'checkpoints' | 'coverage'>;

/** The warehouse at one moment. */
export interface LakeSnapshot {
  readonly mirrorId: string;
  /** The number of the last build that was begun; 0 before the first. */
  readonly lastBuild: number;
  /** In the order of months and segments. */
  segmentMonths(signal: AbortSignal): Promise<readonly SegmentMonth[]>;
  /**
   * Rows of a month that came with these segments, as the loader writes its lines: COPY text of
   * LINE_COLUMNS, in chunks cut anywhere.
   */
  rows(month: string, segmentIds: readonly bigint[], signal: AbortSignal): AsyncIterable<Buffer>;
  /** A whole table as CSV without header (quotes doubled, NULL is empty), in a stable order. */
  whole(table: WholeTable, signal: AbortSignal): AsyncIterable<Buffer>;
}

/** A table as the last build left it. */
export interface RecordedTable {
  readonly table: LakeTable;
  /** Of its Delta metadata. */
  readonly tableId: string;
  readonly version: number;
  /** Of the last build that committed to it. */
  readonly build: number;
}

/** The newest commit of a table, as it was decided. */
export interface DecidedCommit {
  readonly version: number;
  /** Undefined once it is known to lie in the store. */
  readonly content: Buffer | undefined;
}

/** Decides one content for each version of a table, for stores that would let two writers put one. */
export interface CommitRegister {
  decidedCommit(store: string, table: LakeTable): Promise<DecidedCommit | undefined>;
  /**
   * @param after the version that was decided before; undefined for none
   * @returns false where another writer has decided since
   */
  decideCommit(
    store: string,
    table: LakeTable,
    commit: { readonly version: number; readonly content: Buffer },
    after: number | undefined,
  ): Promise<boolean>;
  /** It lies in the store: its content need not be kept. */
  forgetContent(store: string, table: LakeTable, version: number): Promise<void>;
}

export interface LakeRepository extends CommitRegister {
  /** Runs `work` while no other process builds or tidies the lake; everything it reads is of one moment. */
  exclusively<Result>(
    work: (snapshot: LakeSnapshot) => Promise<Result>,
    signal: AbortSignal,
  ): Promise<Result>;
  /** The warehouse as it is now, without waiting for a build. */
  snapshot<Result>(work: (snapshot: LakeSnapshot) => Promise<Result>, signal: AbortSignal): Promise<Result>;
  /** @returns the number of the build that begins now; higher than all before */
  beginBuild(atLeast: number): Promise<number>;
  record(tables: readonly RecordedTable[]): Promise<void>;
  /**
   * Those of the files that a nightly run reads, in no order: files that were never proven, and of the others one in
   * `parts`, the oldest proofs first.
   */
  filesToProve(keys: readonly string[], parts: number): Promise<ReadonlySet<string>>;
  /** They were read, and are what their log says. Forgets the files that are not in `live`. */
  noteProven(keys: readonly string[], live: readonly string[]): Promise<void>;
  recorded(): Promise<readonly RecordedTable[]>;
}

/** Lines of the loader by segment and month, kept on the local disk until the lake has them. */
export interface KeptRows {
  /** The file of the segment's rows in the month; undefined where it was not kept here. */
  find(of: SegmentMonth): Promise<string | undefined>;
  /** Removes what the lake has now, and what nobody came for. */
  forget(of: readonly SegmentMonth[]): Promise<void>;
}
