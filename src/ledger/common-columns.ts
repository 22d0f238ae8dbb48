/**
 * Rows of releases with different columns as one CSV: columns go by name, every field
 * keeps its bytes, and what a release did not send is empty, which is how it writes NULL.
 */
import { PermanentError } from '../errors/errors.ts';
import { RowFields } from './row-fields.ts';
import { RowSplitter } from './row-splitter.ts';

/**
 * The last header, which is the newest release's, and behind it what only the others
 * have.
 */
export function commonColumns(
  headers: readonly (readonly string[])[],
): readonly string[] {
  return [...new Set([...(headers.at(-1) ?? []), ...headers.flat()])];
}

/**
 * Passes rows with the columns `from` on as rows with the columns `to`, line ends as they
 * are.
 * @param chunks whole rows, cut anywhere
 * @throws PermanentError `ROW_FIELDS` where a row has not as many fields as `from`
 */
export async function* withColumns(
  chunks: AsyncIterable<Buffer>,
  from: readonly string[],
  to: readonly string[],
): AsyncGenerator<Buffer> {
  const sources = to.map((name) => from.indexOf(name));
  const fields = new RowFields();
  yield* rewriteRows(chunks, (buffer, start, end) => {
    if (fields.scan(buffer, start, end) !== from.length) {
      throw new PermanentError(
        `Cannot bring a row to common columns: it has ${fields.count} fields, its ` +
          `header ${from.length}`,
        { code: 'ROW_FIELDS' },
      );
    }
    return sources
      .map((source) => (source === -1 ? '' : fields.raw(source)))
      .join(',');
  });
}

/**
 * Writes each row anew, its line end as it was. Text is latin1, which keeps every byte.
 * @returns what came after the last line end
 */
export async function* rewriteRows(
  chunks: AsyncIterable<Buffer>,
  rewrite: (buffer: Buffer, start: number, end: number) => string,
): AsyncGenerator<Buffer, Buffer, undefined> {
  const rows: string[] = [];
  const splitter = new RowSplitter((buffer, start, end, next) => {
    rows.push(
      rewrite(buffer, start, end),
      buffer.toString('latin1', end, next),
    );
  });
  for await (const chunk of chunks) {
    splitter.push(chunk);
    if (rows.length > 0) yield Buffer.from(rows.splice(0).join(''), 'latin1');
  }
  return splitter.rest();
}
