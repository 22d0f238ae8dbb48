/** What the steps of a build share. */
import type { TableState } from '../delta/actions.ts';
import type { LakeTable } from '../tables/columns.ts';
import type { TableWriter } from './table-writer.ts';
import type { Workshop } from './workshop.ts';

export interface LakeProgress {
  readonly partition: string;
  readonly rows: bigint;
}

export type TableWriters = Readonly<Record<LakeTable, TableWriter>>;

export interface Build {
  readonly shop: Workshop;
  /** The tables before this build. */
  readonly former: ReadonlyMap<LakeTable, TableState>;
  /** Local copies of this build's files, by their paths in the log. */
  readonly written: Map<string, string>;
  /** Whether the segments that a table names are those of this warehouse. */
  isTrusted(writer: TableWriter): boolean;
  countSent(rows: bigint): void;
  onProgress(progress: LakeProgress): void;
}
