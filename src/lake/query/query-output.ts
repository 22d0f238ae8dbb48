/**
 * Writes query results as text, row by row. Amounts, heights and times stay exact: they
 * are written as digits in tables and CSV, and as strings in JSON. JSON numbers are used
 * only for integers that every JSON reader preserves exactly.
 */
import {
  type DuckDBType,
  DuckDBTypeId,
  type DuckDBValue,
  type DuckDBValueConverter,
  type Json,
  JsonDuckDBValueConverter,
} from '@duckdb/node-api';
import { type AssetUnits, findAmounts } from '../../format/amounts.js';
import { formatPlural } from '../../format/format.js';

export interface ResultColumn {
  readonly name: string;
  readonly type: DuckDBType;
}

type Row = readonly DuckDBValue[];

/** Writes the beginning, the rows and the end of a result. */
export interface TextForm {
  /** @param rows the first rows; none if the result is empty */
  readonly begin: (rows: readonly Row[]) => string;
  readonly row: (row: Row, index: number) => string;
  readonly end: (rowCount: number) => string;
}

/**
 * The text formats. Each function returns the writer for the columns of one result; the
 * one for tables also takes the format of amounts and the terminal width in characters.
 */
export const TEXT_FORMS = {
  csv: (columns: readonly ResultColumn[]): TextForm => {
    const line = (fields: readonly string[]): string =>
      `${fields.map(csvField).join(',')}\n`;
    return {
      begin: () => line(columns.map(({ name }) => name)),
      row: (row) => line(row.map(valueText)),
      end: () => '',
    };
  },

  /** Writes one object per line. */
  ndjson: (columns: readonly ResultColumn[]): TextForm => {
    const write = objectWriter(columns);
    return { begin: () => '', row: (row) => `${write(row)}\n`, end: () => '' };
  },

  /** Writes one document, `{columns, rows, rowCount}`, as the rows arrive. */
  json: (columns: readonly ResultColumn[]): TextForm => {
    const names = uniqueNames(columns);
    const described = columns.map(({ type }, index) => ({
      name: names[index],
      type: String(type),
    }));
    const write = objectWriter(columns);
    return {
      begin: () => `{"columns":${JSON.stringify(described)},"rows":[\n`,
      row: (row, index) => `${index === 0 ? '' : ',\n'}${write(row)}`,
      end: (rowCount) =>
        `${rowCount === 0 ? '' : '\n'}],"rowCount":${rowCount}}\n`,
    };
  },

  table: (
    columns: readonly ResultColumn[],
    units: AssetUnits,
    widthMax?: number,
  ): TextForm =>
    columns[0]?.name === 'explain_key'
      ? PLAN
      : tableForm(columns, units, widthMax),
};

/** Returns a value as one line of text; NULL is empty. */
export function plainText(value: DuckDBValue): string {
  return oneLine(valueText(value));
}

function csvField(text: string): string {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function objectWriter(columns: readonly ResultColumn[]): (row: Row) => string {
  const names = uniqueNames(columns);
  return (row) => {
    const fields = columns.map(({ type }, index) => [
      names[index],
      jsonValue(row[index] ?? null, type),
    ]);
    return JSON.stringify(Object.fromEntries(fields));
  };
}

const ID = /^(?<shown>[0-9a-f]{8})[0-9a-f]{56}$/;
const COLUMN_GAP = '  ';
/** The types whose values are numbers. */
export const NUMERIC =
  /^(?:U?(?:TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)|BIGNUM|FLOAT|DOUBLE|DECIMAL\(\d+,\d+\))$/;

/**
 * The types of amounts in the smallest unit: whole numbers of any length, and text for
 * amounts that are too long for a DECIMAL. If a query has already converted an amount by
 * dividing it, the quotient has a different type and is not converted again.
 */
export const EXACT = /^(?:HUGEINT|BIGNUM|DECIMAL\(\d+,0\)|VARCHAR)$/;
type AmountColumns = ReturnType<typeof findAmounts>;

/** The result of EXPLAIN: a multi-line drawing in the second column. */
const PLAN: TextForm = {
  begin: () => '',
  row: ([, drawing = null]) =>
    `${valueText(drawing).trimEnd().split('\n').map(oneLine).join('\n')}\n`,
  end: () => '',
};

/**
 * Writes a table whose columns are sized to fit its first rows. A longer value in a later
 * row only makes that line longer. If the table is wider than the terminal, ids are
 * shortened.
 */
function tableForm(
  columns: readonly ResultColumn[],
  units: AssetUnits,
  widthMax = Infinity,
): TextForm {
  let widths: readonly number[] = [];
  let show = oneLine;
  let amounts: AmountColumns = new Map();
  const names = columns.map(({ name }) => name);
  const isNumeric = columns.map(({ type }) => NUMERIC.test(String(type)));
  const headings = (): readonly string[] =>
    names.map((name, index) => oneLine(amounts.get(index)?.heading ?? name));
  const texts = (row: Row): readonly string[] =>
    row.map((value, index) =>
      show(amounts.get(index)?.format(row) ?? valueText(value)),
    );
  const pad = (text: string, index: number): string =>
    isNumeric[index] || amounts.has(index)
      ? text.padStart(widths[index] ?? 0)
      : text.padEnd(widths[index] ?? 0);
  const line = (fields: readonly string[]): string =>
    `${fields.map(pad).join(COLUMN_GAP).trimEnd()}\n`;
  const rule = (): string =>
    widths.map((width) => '─'.repeat(width)).join(COLUMN_GAP);
  const fit = (rows: readonly Row[]): void => {
    const shown = [headings(), ...rows.map(texts)];
    widths = names.map((_, index) =>
      Math.max(...shown.map((fields) => fields[index]?.length ?? 0)),
    );
  };
  return {
    begin: (rows) => {
      amounts = findAmounts(names, rows, units, (index) =>
        EXACT.test(String(columns[index]?.type)),
      );
      fit(rows);
      if (rule().length > widthMax) {
        show = (text) => oneLine(text).replace(ID, '$<shown>…');
        fit(rows);
      }
      return `${line(headings())}${rule()}\n`;
    },
    row: (row) => line(texts(row)),
    end: (rowCount) => `(${formatPlural(rowCount, 'row')})\n`,
  };
}

/**
 * Replaces characters that would break the line, move the terminal's cursor or reverse
 * the direction of the text.
 */
function oneLine(text: string): string {
  return text
    .replaceAll(/[\r\n\t\u2028\u2029]/g, ' ')
    .replaceAll(/[\p{Cc}\p{Cf}\p{Cs}]/gu, '\ufffd');
}

/** Converts a value to a string; NULL becomes the empty string. */
function valueText(value: DuckDBValue): string {
  return value === null ? '' : String(value);
}

/**
 * Converts a value to JSON. HUGEINT, BIGNUM and DECIMAL values are amounts and always
 * become strings. A 64-bit integer is usually a row count, and stays a number if JSON
 * readers preserve it exactly.
 */
function jsonValue(value: DuckDBValue, type: DuckDBType): unknown {
  const isCount = typeof value === 'bigint' && /^U?BIGINT$/.test(String(type));
  if (isCount && BigInt.asIntN(53, value) === value) return Number(value);
  return toJson(value, type, toJson);
}

/** Types with no JSON equivalent. They are written as DuckDB displays them. */
const AS_TEXT = new Set([
  DuckDBTypeId.INTERVAL,
  DuckDBTypeId.MAP,
  DuckDBTypeId.UNION,
  DuckDBTypeId.ARRAY,
  DuckDBTypeId.VARIANT,
]);

const toJson: DuckDBValueConverter<Json> = (value, type, converter) =>
  value !== null && AS_TEXT.has(type.typeId)
    ? String(value)
    : JsonDuckDBValueConverter(value, type, converter);

/**
 * Makes column names unique, because a JSON object would keep only one of two columns
 * with the same name.
 */
function uniqueNames(columns: readonly ResultColumn[]): readonly string[] {
  const seen = new Map<string, number>();
  return columns.map(({ name }) => {
    const times = (seen.get(name) ?? 0) + 1;
    seen.set(name, times);
    return times === 1 ? name : `${name}_${times}`;
  });
}
