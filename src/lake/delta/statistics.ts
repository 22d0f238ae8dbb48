/**
 * Converts DuckDB's report on a file that it has written to the statistics of a Delta
 * `add` action.
 */
import { z } from 'zod';

const STRING_CHARACTERS_MAX = 32;
const HIGHEST_CHARACTER = '\u{10FFFF}';

/** DuckDB returns a MAP as a list of keys and values. */
const facts = z.array(z.object({ key: z.string(), value: z.coerce.string() }));
/**
 * The row that COPY returns with `return_stats`. It has min, max, null_count and more for
 * each column, keyed by quoted name.
 */
const written = z.object({
  count: z.string(),
  column_statistics: z.array(z.object({ key: z.string(), value: facts })),
});

/**
 * Converts the row to the JSON string of `stats`.
 * @param columns the columns that have statistics
 */
export function statisticsJson(
  row: unknown,
  columns: readonly Record<'name' | 'type', string>[],
): string {
  const { count, column_statistics } = written.parse(row);
  const known = new Map(
    column_statistics.map(({ key, value }) => [
      key.replaceAll(/^"|"$/g, ''),
      value,
    ]),
  );
  const part = (
    fact: string,
    write: (value: string, type: string) => string | undefined,
  ): string => {
    const fields = columns.flatMap(({ name, type }) => {
      const value = known.get(name)?.find(({ key }) => key === fact)?.value;
      const text = value === undefined ? undefined : write(value, type);
      return text === undefined ? [] : [`${JSON.stringify(name)}:${text}`];
    });
    return `{${fields.join(',')}}`;
  };
  const minValues = part('min', (value, type) => bound(type, value, false));
  const maxValues = part('max', (value, type) => bound(type, value, true));
  const nullCount = part('null_count', (value) => value);
  return `{"numRecords":${count},"minValues":${minValues},"maxValues":${maxValues},"nullCount":${nullCount}}`;
}

/**
 * Formats a minimum or maximum. Long strings are truncated and times are rounded to
 * milliseconds, always outward, so that every value stays within the bounds.
 */
function bound(
  type: string,
  value: string,
  isMax: boolean,
): string | undefined {
  if (type === 'DATE') return JSON.stringify(value);
  if (type === 'VARCHAR') {
    const characters = Array.from(value);
    if (characters.length <= STRING_CHARACTERS_MAX)
      return JSON.stringify(value);
    const cut = characters.slice(0, STRING_CHARACTERS_MAX).join('');
    return JSON.stringify(isMax ? cut + HIGHEST_CHARACTER : cut);
  }
  if (type !== 'TIMESTAMP WITH TIME ZONE')
    return /^-?\d+$/.test(value) ? value : undefined;
  const floorMs = Date.parse(value.replace(' ', 'T').replace(/\+00$/, 'Z'));
  if (Number.isNaN(floorMs)) return undefined;
  const isBetween = /\.\d{3}\d*[1-9]/.test(value);
  return JSON.stringify(
    new Date(floorMs + (isMax && isBetween ? 1 : 0)).toISOString(),
  );
}
