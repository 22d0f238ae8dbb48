/** What the steps of a build share. */
import type { AddFile } from '../delta/actions.ts';
import { builderPath, storedFile } from '../local-files.ts';
import type { LakeTable } from '../tables/columns.ts';
import type { TableWriter } from './table-writer.ts';
import type { Workshop } from './workshop.ts';

export interface LakeProgress {
  readonly partition: string;
  readonly rows: bigint;
}

export interface Build extends Workshop {
  readonly writers: Readonly<Record<LakeTable, TableWriter>>;
  /** Rows that no load had left on this machine, and the warehouse sent. */
  rowsSent: bigint;
  readonly onProgress: (progress: LakeProgress) => void;
}

/** Where DuckDB finds a file that the table's log names. */
export async function findFile(build: Build, table: LakeTable, add: AddFile): Promise<string> {
  return build.written.get(add.path) ?? builderPath(storedFile(table, add), build);
}
