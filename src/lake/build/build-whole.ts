/** Tables that are written whole, and only where they changed: the lists, and what is covered. */
import { randomUUID } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { Measured } from '../../core/file-facts.ts';
import type { Build } from './build-context.ts';
import type { WholeTable } from '../store/warehouse-snapshot.ts';
import { literal } from '../local/sql.ts';
import { selected } from '../tables/columns.ts';
import { declared, rootOf, SHAPES } from '../tables/tables.ts';
import type { TableWriter } from './table-writer.ts';

const CSV = `delim = ',', quote = '"', escape = '"', nullstr = ''`;
const CONTENT_TAG = 'content';

/** @returns the rows as CSV on the local disk */
export async function buildWhole(build: Build, table: WholeTable, writer: TableWriter): Promise<string> {
  const { folder, snapshot, signal } = build.shop;
  const path = join(folder, `${randomUUID()}.csv`);
  const measured = new Measured();
  await pipeline(measured.pass(snapshot.whole(table, signal)), createWriteStream(path));
  const { sha256: content } = measured.facts();
  const before = writer.files;
  const isSame = before.length === 1 && before[0]?.tags?.[CONTENT_TAG] === content;
  if (writer.state !== undefined && isSame) return path;
  const file = await writer.write(`select ${selected(SHAPES[table].columns)} from ${csvRows(table, path)}`, {
    tags: { [CONTENT_TAG]: content },
  });
  await writer.commit('WRITE', { add: [file.add], remove: before });
  build.onProgress({ partition: rootOf(table), rows: file.rows });
  return path;
}

/** The CSV of a whole table, behind FROM, as text. */
export function csvRows(table: WholeTable, path: string): string {
  const names = SHAPES[table].columns.map(({ name }) => name);
  return `read_csv(${literal(path)}, header = false, auto_detect = false, ${CSV}, columns = {${declared(names)}})`;
}
