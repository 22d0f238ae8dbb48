/** What the steps of a build share. */
import { randomUUID } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { ByteSums } from '../../core/byte-sums.ts';
import { literal } from '../local/sql.ts';
import type { LakeTable } from '../tables/columns.ts';
import type { TableWriter } from './table-writer.ts';
import type { Workshop } from './workshop.ts';

export interface LakeProgress {
  readonly partition: string;
  readonly rows: bigint;
}

export interface Build extends Workshop {
  readonly writers: Readonly<Record<LakeTable, TableWriter>>;
  readonly onProgress: (progress: LakeProgress) => void;
}

/** Brings what the warehouse sends to the local disk. */
export async function fetchCsv(
  { folder }: Build,
  csv: AsyncIterable<Buffer>,
): Promise<{ readonly path: string; readonly sha256: string }> {
  const path = join(folder, `${randomUUID()}.csv`);
  const sums = new ByteSums();
  await pipeline(csv, sums.through(), createWriteStream(path));
  return { path, sha256: sums.sha256() };
}

/** DuckDB reads in buffers of the longest line; what is longer is rare, and takes larger ones. */
export const LINE_BYTES = 4 * 2 ** 20;

/** What was brought, behind FROM, as text. */
export function csvRows(path: string, columns: readonly string[], lineBytesMax = LINE_BYTES): string {
  const types = columns.map((name) => `${name}: 'VARCHAR'`).join(', ');
  return `read_csv(${literal(path)}, header = false, auto_detect = false, delim = ',', quote = '"', escape = '"', nullstr = '',
    max_line_size = ${lineBytesMax}, buffer_size = ${lineBytesMax}, columns = {${types}})`;
}
