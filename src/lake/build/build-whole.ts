/** Tables that are written whole, and only where they changed: the lists, and what is covered. */
import { randomUUID } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { ByteSums } from '../../core/byte-sums.ts';
import { totalOfFiles } from '../delta/actions.ts';
import { literal } from '../local/sql.ts';
import type { WholeTable } from '../store/warehouse-reader.ts';
import { selected } from '../tables/columns.ts';
import { declared, rootOf, SHAPES } from '../tables/tables.ts';
import type { Build } from './build-context.ts';

const CSV = `delim = ',', quote = '"', escape = '"', nullstr = ''`;
const CONTENT_TAG = 'content';

/** @returns the rows as CSV on the local disk */
export async function buildWhole(build: Build, table: WholeTable): Promise<string> {
  const { folder, warehouse, signal, onProgress } = build;
  const writer = build.writers[table];
  const path = join(folder, `${randomUUID()}.csv`);
  const sums = new ByteSums();
  await pipeline(warehouse.whole(table, signal), sums.through(), createWriteStream(path));
  const content = sums.sha256();
  const before = writer.files;
  if (before.length === 1 && before[0]?.tags?.[CONTENT_TAG] === content) return path;
  const select = `select ${selected(SHAPES[table].columns)} from ${csvRows(table, path)}`;
  const file = await writer.write(select, { tags: { [CONTENT_TAG]: content } });
  await writer.commit('WRITE', { add: [file], remove: before });
  onProgress({ partition: rootOf(table), rows: totalOfFiles([file]).rows });
  return path;
}

/** The CSV of a whole table, behind FROM, as text. */
export function csvRows(table: WholeTable, path: string): string {
  const names = SHAPES[table].columns.map(({ name }) => name);
  return `read_csv(${literal(path)}, header = false, auto_detect = false, ${CSV}, columns = {${declared(names)}})`;
}
