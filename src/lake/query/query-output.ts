/**
 * Results of queries as text, row by row. Amounts, heights and times come out exactly: as digits in a table and
 * in CSV, as text in JSON; only integers that every reader of JSON keeps exactly are numbers there.
 */
import { DuckDBListValue, DuckDBStructValue, type DuckDBValue } from '@duckdb/node-api';

/** Formats that are written row by row. */
export type TextFormat = 'table' | 'csv' | 'json' | 'ndjson';

export interface ResultColumn {
  readonly name: string;
  readonly type: string;
}

const COLUMN_GAP = '  ';
const ID = /^[0-9a-f]{64}$/;
const ID_CHARACTERS_SHOWN = 8;

/** Writes one result; `rows` may be called any number of times between `begin` and `end`. */
export interface ResultWriter {
  begin(): string;
  rows(rows: readonly (readonly DuckDBValue[])[]): string;
  end(rowCount: bigint): string;
}

/** @param widthMax characters in a line of the terminal: in a table that is wider, ids are shortened */
export function resultWriter(
  format: TextFormat,
  columns: readonly ResultColumn[],
  widthMax = Infinity,
): ResultWriter {
  if (format === 'csv') return csvWriter(columns);
  if (format === 'ndjson') return ndjsonWriter(columns);
  return format === 'json' ? jsonWriter(columns) : tableWriter(columns, widthMax);
}

function csvWriter(columns: readonly ResultColumn[]): ResultWriter {
  const line = (fields: readonly string[]): string => `${fields.map(csvField).join(',')}\n`;
  return {
    begin: () => line(columns.map((column) => column.name)),
    rows: (rows) => rows.map((row) => line(row.map((value) => valueText(value) ?? ''))).join(''),
    end: () => '',
  };
}

function csvField(text: string): string {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** One document, `{columns, rows, rowCount}`, that can be written as it comes. */
function jsonWriter(columns: readonly ResultColumn[]): ResultWriter {
  const names = uniqueNames(columns);
  const described = columns.map(({ type }, index) => ({ name: names[index], type }));
  let isFirst = true;
  const toObject = objectWriter(columns);
  const row = (values: readonly DuckDBValue[]): string => {
    const separator = isFirst ? '\n' : ',\n';
    isFirst = false;
    return separator + toObject(values);
  };
  return {
    begin: () => `{"columns":${JSON.stringify(described)},"rows":[`,
    rows: (rows) => rows.map(row).join(''),
    end: (rowCount) => `\n],"rowCount":${rowCount}}\n`,
  };
}

/** One object a line. */
function ndjsonWriter(columns: readonly ResultColumn[]): ResultWriter {
  const toLine = objectWriter(columns);
  return {
    begin: () => '',
    rows: (rows) => rows.map((row) => `${toLine(row)}\n`).join(''),
    end: () => '',
  };
}

function objectWriter(columns: readonly ResultColumn[]): (values: readonly DuckDBValue[]) => string {
  const names = uniqueNames(columns);
  return (values) => {
    const entries = values.map(
      (value, index) => [names[index] ?? '', jsonValue(value, columns[index])] as const,
    );
    return JSON.stringify(Object.fromEntries(entries));
  };
}

/** Columns are as wide as the first rows want; a later, longer value pushes its line out. */
function tableWriter(columns: readonly ResultColumn[], widthMax: number): ResultWriter {
  const names = columns.map(({ name }) => name);
  let widths: readonly number[] | undefined;
  let shown = oneLine;
  const line = (fields: readonly string[]): string =>
    `${fields
      .map((field, index) => pad(field, widths?.[index] ?? 0, columns[index]))
      .join(COLUMN_GAP)
      .trimEnd()}\n`;
  const textsOf = (rows: readonly (readonly DuckDBValue[])[]): readonly (readonly string[])[] =>
    rows.map((row) => row.map((value) => shown(valueText(value) ?? '')));
  const header = (rows: readonly (readonly DuckDBValue[])[]): string => {
    if (widths !== undefined) return '';
    widths = widthsOf(names, textsOf(rows));
    const width = widths.reduce((sum, column) => sum + column + COLUMN_GAP.length, -COLUMN_GAP.length);
    if (width > widthMax) {
      shown = (text) => shortId(oneLine(text));
      widths = widthsOf(names, textsOf(rows));
    }
    return `${line(names.map(oneLine))}${widths.map((column) => '─'.repeat(column)).join(COLUMN_GAP)}\n`;
  };
  return {
    begin: () => '',
    rows: (rows) => header(rows) + textsOf(rows).map(line).join(''),
    end: (rowCount) => `${header([])}(${rowCount} ${rowCount === 1n ? 'row' : 'rows'})\n`,
  };
}

function widthsOf(names: readonly string[], rows: readonly (readonly string[])[]): readonly number[] {
  return names.map((name, index) =>
    rows.reduce((width, row) => Math.max(width, row[index]?.length ?? 0), name.length),
  );
}

function shortId(text: string): string {
  return ID.test(text) ? `${text.slice(0, ID_CHARACTERS_SHOWN)}…` : text;
}

/** For a terminal: what would break the line, move the cursor or turn the direction of writing is not sent. */
function oneLine(text: string): string {
  return text.replaceAll(/[\r\n\t\u2028\u2029]/g, ' ').replaceAll(/[\p{Cc}\p{Cf}\p{Cs}]/gu, '\ufffd');
}

const NUMERIC = /^(?:U?(?:TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)|BIGNUM|FLOAT|DOUBLE|DECIMAL\(\d+,\d+\))$/;

function pad(text: string, width: number, column: ResultColumn | undefined): string {
  return NUMERIC.test(column?.type ?? '') ? text.padStart(width) : text.padEnd(width);
}

/** undefined for NULL. */
function valueText(value: DuckDBValue): string | undefined {
  return value === null ? undefined : String(value);
}

/** HUGEINT, BIGNUM and DECIMAL are amounts: always text, whatever their size. 64-bit integers mostly count rows. */
function jsonValue(value: DuckDBValue, column?: ResultColumn): unknown {
  if (value === null || typeof value === 'boolean' || typeof value === 'string') return value;
  if (typeof value === 'number') return Number.isFinite(value) ? value : String(value);
  if (typeof value === 'bigint') {
    const isCount = column?.type === 'BIGINT' || column?.type === 'UBIGINT';
    return isCount && BigInt.asIntN(53, value) === value ? Number(value) : value.toString();
  }
  if (value instanceof DuckDBListValue) return value.items.map((item) => jsonValue(item));
  if (value instanceof DuckDBStructValue) {
    return Object.fromEntries(Object.entries(value.entries).map(([name, item]) => [name, jsonValue(item)]));
  }
  return String(value);
}

/** Two columns of one name would hide each other in a JSON object. */
function uniqueNames(columns: readonly ResultColumn[]): readonly string[] {
  const seen = new Map<string, number>();
  return columns.map(({ name }) => {
    const times = (seen.get(name) ?? 0) + 1;
    seen.set(name, times);
    return times === 1 ? name : `${name}_${times}`;
  });
}
