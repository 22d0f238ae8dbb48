/** What the lake needs from the warehouse. */

export type LakeTable = 'ledger_entries' | 'parties' | 'checkpoints';

/** One partition as the warehouse has it now: what the lake's copy of it is compared with. */
export interface LakePartition {
  readonly table: LakeTable;
  /** `2023-05`; undefined for tables that are kept whole. */
  readonly month: string | undefined;
  /** Another text whenever other rows would be written. */
  readonly fingerprint: string;
  readonly rows: bigint;
  /** The sum of its entries' values; undefined for tables that have none. */
  readonly valuesDigest: string | undefined;
}

/** The rows of one month that came with one segment: they can be read from its object as well. */
export interface LakeSlice {
  readonly month: string;
  readonly segmentId: bigint;
  readonly partyId: string;
  readonly objectKey: string;
  /** Of the object as stored. */
  readonly objectBytes: bigint;
  readonly objectSha256: string;
  /** Its header. */
  readonly columns: readonly string[];
  /** In the month. */
  readonly rows: bigint;
}

export interface SliceLimits {
  /** In the month. */
  readonly rowsMin: bigint;
  /** The segment's rows are at most so many times those in the month: all of it is read for them. */
  readonly readsMax: bigint;
  /** Plain bytes of the segment. */
  readonly bytesMax: bigint;
}

/** The warehouse at one moment. */
export interface LakeSnapshot {
  partitions(): Promise<readonly LakePartition[]>;
  /** Slices of these months within the limits, the largest of a month first, of segments that have no column but the known ones. */
  slices(months: readonly string[], limits: SliceLimits): Promise<readonly LakeSlice[]>;
  /**
   * When, from one month to another, and where a party's own export is loaded, as CSV without header: party, asset
   * (empty: all of them), from and to (exclusive) in UTC. Of one party and asset, ranges do not overlap.
   */
  covered(first: string, last: string, signal: AbortSignal): AsyncIterable<Buffer>;
  /**
   * Each row on its line, in chunks cut anywhere: ledger entries as COPY text (tabs between, `\\N` is NULL,
   * only `extra` can hold a backslash, doubled), the lists as CSV without header (quotes doubled, NULL is empty).
   * @param without segments whose rows are left out
   */
  rows(partition: LakePartition, without: readonly bigint[], signal: AbortSignal): AsyncIterable<Buffer>;
}

export interface LakeBooks {
  /** Runs `work` while no other process builds the lake; everything it reads is of one moment. */
  exclusively<Result>(
    work: (snapshot: LakeSnapshot) => Promise<Result>,
    signal: AbortSignal,
  ): Promise<Result>;
  /** The partitions as they are now, without waiting for a build. */
  partitions(signal: AbortSignal): Promise<readonly LakePartition[]>;
}
