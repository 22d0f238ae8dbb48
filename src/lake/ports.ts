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

/** The warehouse at one moment. */
export interface LakeSnapshot {
  partitions(): Promise<readonly LakePartition[]>;
  /**
   * Each row on its line, in chunks cut anywhere: ledger entries as COPY text (tabs between, `\\N` is NULL,
   * only `extra` can hold a backslash, doubled), the lists as CSV without header (quotes doubled, NULL is empty).
   */
  rows(partition: LakePartition, signal: AbortSignal): AsyncIterable<Buffer>;
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
