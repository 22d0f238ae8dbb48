/** Statistics of a file as its `add` has them, from what DuckDB says of the file it has written. */
const STRING_CHARACTERS_MAX = 32;
const HIGHEST_CHARACTER = '\u{10FFFF}';
const MICROS_DIGITS = 6;

/** DuckDB's text of one column's values: min, max, null_count, … */
export type ColumnFacts = Readonly<Record<string, string>>;

export interface WrittenFile {
  readonly rows: bigint;
  readonly columns: ReadonlyMap<string, ColumnFacts>;
}

/** @param columns those that have statistics */
export function statisticsJson(
  file: WrittenFile,
  columns: readonly { readonly name: string; readonly type: string }[],
): string {
  const part = (pick: (facts: ColumnFacts, type: string) => string | undefined): string =>
    columns
      .flatMap(({ name, type }) => {
        const value = pick(file.columns.get(name) ?? {}, type);
        return value === undefined ? [] : [`${JSON.stringify(name)}:${value}`];
      })
      .join(',');
  const minValues = part(({ min }, type) => (min === undefined ? undefined : bound(type, min, false)));
  const maxValues = part(({ max }, type) => (max === undefined ? undefined : bound(type, max, true)));
  const nullCount = part(({ null_count }) => null_count);
  return `{"numRecords":${file.rows},"minValues":{${minValues}},"maxValues":{${maxValues}},"nullCount":{${nullCount}}}`;
}

/** Strings are cut and times are in whole milliseconds; both so that no value lies outside. */
function bound(type: string, value: string, isMax: boolean): string | undefined {
  if (type === 'VARCHAR') {
    const characters = Array.from(value);
    if (characters.length <= STRING_CHARACTERS_MAX) return JSON.stringify(value);
    const cut = characters.slice(0, STRING_CHARACTERS_MAX).join('');
    return JSON.stringify(isMax ? cut + HIGHEST_CHARACTER : cut);
  }
  if (type === 'DATE') return JSON.stringify(value);
  if (type !== 'TIMESTAMP WITH TIME ZONE') return /^-?\d+$/.test(value) ? value : undefined;
  const match = /^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d+))?\+00$/.exec(value);
  if (match === null) return undefined;
  const micros = (match[3] ?? '').padEnd(MICROS_DIGITS, '0');
  const floorMs = Date.parse(`${match[1]}T${match[2]}.${micros.slice(0, 3)}Z`);
  const isBetween = !micros.endsWith('000');
  return JSON.stringify(new Date(floorMs + (isMax && isBetween ? 1 : 0)).toISOString());
}
