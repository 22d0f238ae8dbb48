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

/** Rows of a result as they come. */
type Chunks = AsyncIterable<readonly (readonly DuckDBValue[])[]>;

/**
 * The text of one result, piece by piece.
 * @param widthMax characters in a line of the terminal: in a table that is wider, ids are shortened
 */
export function formatResult(
  format: TextFormat,
  columns: readonly ResultColumn[],
  chunks: Chunks,
  widthMax = Infinity,
): AsyncGenerator<string> {
  if (format === 'csv') return formatCsv(columns, chunks);
  if (format === 'ndjson') return formatNdjson(columns, chunks);
  return format === 'json' ? formatJson(columns, chunks) : formatTable(columns, chunks, widthMax);
}

async function* formatCsv(columns: readonly ResultColumn[], chunks: Chunks): AsyncGenerator<string> {
  const line = (fields: readonly string[]): string => `${fields.map(csvField).join(',')}\n`;
  yield line(columns.map((column) => column.name));
  for await (const rows of chunks) yield rows.map((row) => line(row.map(valueText))).join('');
}

function csvField(text: string): string {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** One object a line. */
async function* formatNdjson(columns: readonly ResultColumn[], chunks: Chunks): AsyncGenerator<string> {
  const toObject = objectWriter(columns);
  for await (const rows of chunks) yield rows.map((row) => `${toObject(row)}\n`).join('');
}

/** One document, `{columns, rows, rowCount}`, that can be written as it comes. */
async function* formatJson(columns: readonly ResultColumn[], chunks: Chunks): AsyncGenerator<string> {
  const names = uniqueNames(columns);
  const described = columns.map(({ type }, index) => ({ name: names[index], type }));
  const toObject = objectWriter(columns);
  let rowCount = 0;
  yield `{"columns":${JSON.stringify(described)},"rows":[\n`;
  for await (const rows of chunks) {
    yield (rowCount === 0 ? '' : ',\n') + rows.map(toObject).join(',\n');
    rowCount += rows.length;
  }
  yield `${rowCount === 0 ? '' : '\n'}],"rowCount":${rowCount}}\n`;
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
async function* formatTable(
  columns: readonly ResultColumn[],
  chunks: Chunks,
  widthMax: number,
): AsyncGenerator<string> {
  const names = columns.map(({ name }) => name);
  let widths: readonly number[] = [];
  let show = oneLine;
  let rowCount = 0;
  const line = (fields: readonly string[]): string =>
    `${fields
      .map((field, index) => pad(field, widths[index] ?? 0, columns[index]))
      .join(COLUMN_GAP)
      .trimEnd()}\n`;
  const header = (rows: readonly (readonly DuckDBValue[])[]): string => {
    const fit = (): readonly number[] =>
      widthsOf(
        names,
        rows.map((row) => row.map((value) => show(valueText(value)))),
      );
    widths = fit();
    const width = widths.reduce((sum, column) => sum + column + COLUMN_GAP.length, -COLUMN_GAP.length);
    if (width > widthMax) {
      show = (text) => shortId(oneLine(text));
      widths = fit();
    }
    return `${line(names.map(oneLine))}${widths.map((column) => '─'.repeat(column)).join(COLUMN_GAP)}\n`;
  };
  for await (const rows of chunks) {
    const head = rowCount === 0 ? header(rows) : '';
    yield head + rows.map((row) => line(row.map((value) => show(valueText(value))))).join('');
    rowCount += rows.length;
  }
  if (rowCount === 0) yield header([]);
  yield `(${rowCount} ${rowCount === 1 ? 'row' : 'rows'})\n`;
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

/** Empty for NULL. */
function valueText(value: DuckDBValue): string {
  return value === null ? '' : String(value);
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
