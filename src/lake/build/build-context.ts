/** What the steps of a build share. */
import type { TableState } from '../delta/actions.ts';
import type { ListedObject } from '../delta/log.ts';
import type { LakeTable } from '../tables/columns.ts';
import type { ObjectStore } from '../../objects/object-store.ts';
import type { Moment } from '../moment.ts';
import type { KeptRows, LakeRepository, LakeSnapshot } from '../ports.ts';
import type { TableWriter, Workshop } from './table-writer.ts';

export interface LakeDeps {
  readonly repository: LakeRepository;
  readonly objects: ObjectStore;
  readonly scratchDir: string;
  /** How long files that no newer version names stay. */
  readonly retentionMs: number;
  /** What loads on this machine have left. */
  readonly kept?: KeptRows;
}

export interface LakeProgress {
  readonly partition: string;
  readonly rows: bigint;
}

export interface Build {
  readonly deps: LakeDeps;
  readonly snapshot: LakeSnapshot;
  readonly shop: Workshop;
  /** The lake before this build. */
  readonly before: Moment | undefined;
  readonly listed: readonly ListedObject[];
  readonly former: ReadonlyMap<LakeTable, TableState>;
  /** Local copies of this build's files, by their paths in the log. */
  readonly written: Map<string, string>;
  /** Whether the segments that a table names are those of this warehouse. */
  isTrusted(writer: TableWriter): boolean;
  countSent(rows: bigint): void;
  onProgress(progress: LakeProgress): void;
}
