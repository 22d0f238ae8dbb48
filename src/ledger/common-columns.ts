/**
 * Combines rows from releases with different columns into one CSV. Columns are matched
 * by name, every field keeps its bytes, and a field that a release did not send is
 * empty, which is how the source writes NULL.
 */
import { PermanentError } from '../errors/errors.ts';
import { rewriteRows, RowFields } from './csv-rows.ts';

/**
 * Returns the columns of the last header, which is that of the newest release, followed
 * by the columns that only the other headers have.
 */
export function commonColumns(
  headers: readonly (readonly string[])[],
): readonly string[] {
  return [...new Set([...(headers.at(-1) ?? []), ...headers.flat()])];
}

/**
 * Converts rows with the columns `from` to rows with the columns `to`. Line breaks are
 * left unchanged.
 * @param chunks the CSV of complete rows; a chunk may end in the middle of a row
 * @throws PermanentError `ROW_FIELDS` if a row's field count differs from `from`
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
