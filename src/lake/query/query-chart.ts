/**
 * Draws a result in the terminal: one bar for each time or name, stacked if a second
 * column with few values splits it. Figures in several units get one chart per unit.
 */
import { didYouMean, findNear } from '../../errors/did-you-mean.ts';
import { UsageError } from '../../errors/errors.ts';
import { type AssetUnits, findAmounts } from '../../format/amounts.js';
import {
  ALTERNATIVES,
  usualAxis,
  usualFigure,
} from '../../format/chart-choice.js';
import { formatCount, formatRough, groupDigits } from '../../format/format.js';
import { unitColumns } from './chart-units.ts';
import {
  EXACT,
  NUMERIC,
  plainText,
  type ResultColumn,
  type TextForm,
} from './query-output.ts';

/**
 * Characters for the parts of a stack, which are sorted by name. There are no more
 * characters that a reader could tell apart.
 */
const BLOCKS = ['█', '▓', '▒', '░'];
const BARS_MAX = 60;
const CHARTS_MAX = 8;
/**
 * Maximum number of rows kept for drawing; larger results are better aggregated in SQL.
 */
const ROWS_MAX = 100_000;
const BAR_CHARACTERS_MIN = 10;
const BAR_CHARACTERS_MAX = 60;
const LABEL_CHARACTERS_MAX = 24;
const WIDTH_DEFAULT = 100;

const TIME_TYPE = /^(?:DATE|TIMESTAMP)/;
/** Numeric columns that are parts of a time. */
const TIME_PART = /(?:^|_)(?:year|quarter|month|week|day|hour)$/i;
/** Numeric columns that are names or positions, not figures. */
const NAME_OR_PLACE = /(?:^|_)(?:id|epoch|block|height|version)$/i;

/**
 * A whole amount, and not a code or an id: without leading zeros. An amount that is too
 * long for a numeric type is returned as text.
 */
const AMOUNT = /^(?:0|-?[1-9]\d*)$/;

/** The figure of each part of a bar. A bar that is not split has a single part, ''. */
type Bar = ReadonlyMap<string, string>;

interface ChartedResult {
  readonly columns: readonly ResultColumn[];
  readonly units: AssetUnits;
}

interface Places {
  readonly label: number;
  readonly figure: number;
  readonly texts: readonly number[];
  /** The columns that name the unit of the figure. */
  readonly units: readonly number[];
}

/** What a chart needs of a result, so that it can be drawn later and more than once. */
export interface KeptResult {
  readonly columns: readonly ResultColumn[];
  /** The rows as text; only the first ROWS_MAX of a larger result. */
  readonly rows: readonly (readonly string[])[];
  readonly count: number;
}

/** How a chart is drawn. */
export interface ChartOptions {
  /** How the amounts of each asset are written. */
  readonly units: AssetUnits;
  /** Width of the terminal in characters; undefined if the output is not a terminal. */
  readonly widthMax: number | undefined;
  /**
   * The name of the column to draw. If undefined, the column that the console would draw:
   * an amount if there is one, otherwise the first numeric column.
   */
  readonly figure: string | undefined;
}

export function chartForm(
  columns: readonly ResultColumn[],
  options: ChartOptions,
): TextForm {
  return keeping(
    { begin: () => '', row: () => '', end: () => '' },
    columns,
    (result) => drawChart(result, options),
  );
}

/**
 * Returns a form that writes what `form` writes, and keeps the rows for a chart.
 * @param whole receives the result after its last row; the text that it returns is
 *   written last
 */
export function keeping(
  form: TextForm,
  columns: readonly ResultColumn[],
  whole: (result: KeptResult) => string | void,
): TextForm {
  const rows: (readonly string[])[] = [];
  let count = 0;
  return {
    begin: form.begin,
    row: (row, index) => {
      count += 1;
      if (count <= ROWS_MAX) rows.push(row.map(plainText));
      return form.row(row, index);
    },
    end: (rowCount) =>
      `${form.end(rowCount)}${whole({ columns, rows, count }) ?? ''}`,
  };
}

/**
 * Returns the chart of a result, or the sentence that says why there is none.
 * @throws UsageError if the result has amounts, but none with the requested name
 */
export function drawChart(
  { columns, rows, count }: KeptResult,
  { units, widthMax, figure }: ChartOptions,
): string {
  if (count > ROWS_MAX)
    return (
      `No chart: the result has ${formatCount(count)} rows, and a chart takes ` +
      `${formatCount(ROWS_MAX)}; sum them up with GROUP BY.\n`
    );
  const places = findPlaces(columns, rows, figure);
  if (typeof places === 'string') return `${places}\n`;
  return drawEach({ columns, units }, places, rows, widthMax ?? WIDTH_DEFAULT);
}

/**
 * Returns the columns to draw, or why nothing can be drawn.
 * @throws UsageError if the result has amounts, but none with the requested name
 */
function findPlaces(
  columns: readonly ResultColumn[],
  rows: readonly (readonly string[])[],
  figure: string | undefined,
): Places | string {
  const indexes = columns.map((_, index) => index);
  const typeOf = (index: number): string => String(columns[index]?.type);
  const nameOf = (index: number): string => columns[index]?.name ?? '';
  const isText = (index: number): boolean => typeOf(index) === 'VARCHAR';
  const numbers = indexes.filter(
    (index) =>
      (NUMERIC.test(typeOf(index)) ||
        (isText(index) && areAll(rows, index, AMOUNT))) &&
      !TIME_PART.test(nameOf(index)) &&
      !NAME_OR_PLACE.test(nameOf(index)),
  );
  const wanted = figure ?? usualFigure(numbers.map(nameOf));
  const chosen = numbers.find((index) => nameOf(index) === wanted);
  if (chosen === undefined) {
    if (figure !== undefined && numbers.length > 0)
      throw unknownFigure(figure, numbers.map(nameOf));
    const several = indexes.find(
      (index) => isText(index) && areAll(rows, index, ALTERNATIVES),
    );
    return several === undefined
      ? 'No chart: no column of the result contains amounts.'
      : `No chart: ${nameOf(several)} has several possible values in some rows, so ` +
          'these rows have no length; leave them out to draw the others.';
  }
  const named = unitColumns(indexes.map(nameOf), nameOf(chosen));
  const units = indexes.filter((index) => named.includes(nameOf(index)));
  const texts = indexes.filter(
    (index) =>
      isText(index) && !units.includes(index) && !numbers.includes(index),
  );
  const times = indexes.filter(
    (index) => TIME_TYPE.test(typeOf(index)) || TIME_PART.test(nameOf(index)),
  );
  const names = texts.filter((index) => !times.includes(index));
  const choice = [
    ...times.map((index) => ({ index, kind: 'time' as const })),
    ...names.map((index) => ({ index, kind: 'text' as const })),
  ].map((column) => ({ ...column, name: nameOf(column.index) }));
  const label = usualAxis(choice, rows)?.index;
  if (label === undefined && rows.length === 1)
    return 'No chart: the result has one row, so there is nothing to compare.';
  if (label === undefined)
    return units.length === 0
      ? 'No chart: no column of the result contains times or names.'
      : `No chart: each asset has its own unit, so ${nameOf(chosen)} of several ` +
          'assets cannot be compared; add a time or a name.';
  return {
    label,
    figure: chosen,
    texts: texts.filter((index) => index !== label),
    units,
  };
}

/** Whether a column of text has values, and all of them match. */
function areAll(
  rows: readonly (readonly string[])[],
  index: number,
  pattern: RegExp,
): boolean {
  const given = rows.flatMap((row) => row[index] || []);
  return given.length > 0 && given.every((text) => pattern.test(text));
}

function unknownFigure(figure: string, known: readonly string[]): UsageError {
  return new UsageError([
    `--chart: the result has no amounts called ${figure}; it has ` +
      `${known.join(', ')}${didYouMean(findNear(figure, known))}`,
  ]);
}

/** Draws a chart for each unit, with a scale of its own. */
function drawEach(
  result: ChartedResult,
  places: Places,
  rows: readonly (readonly string[])[],
  width: number,
): string {
  const { columns } = result;
  // Two ids may be shortened to the same text, so rows are grouped by their full values.
  const groups = Map.groupBy(rows, (row) =>
    JSON.stringify(places.units.map((index) => row[index])),
  );
  if (groups.size <= 1) return draw(result, places, rows, width);
  const names = places.units.map((index) => columns[index]?.name).join(' ');
  const shown = [...groups.values()].slice(0, CHARTS_MAX);
  const charts = shown.map((own) => {
    const unit = places.units
      .map((index) => shorten(own[0]?.[index] ?? '') || '–')
      .join(' ');
    return `${names} ${unit}: ${draw(result, places, own, width)}`;
  });
  const left = groups.size - shown.length;
  const more =
    left > 0 ? [`… and ${formatCount(left)} more of ${names}\n`] : [];
  return [...charts, ...more].join('\n');
}

function draw(
  { columns, units }: ChartedResult,
  { label, figure, texts }: Places,
  rows: readonly (readonly string[])[],
  width: number,
): string {
  const split = chooseSplit(texts, label, rows);
  const parts =
    split === undefined
      ? ['']
      : [...new Set(rows.map((row) => row[split] ?? ''))].toSorted();
  const bars = sumUp(rows, { label, figure, split });
  const totals = [...bars.values()].map((bar) =>
    [...bar.values()].reduce(add, '0'),
  );
  const shown = [...bars].slice(0, BARS_MAX);
  const labels = shown.map(([name]) => shorten(name));
  const labelWidth = Math.max(0, ...labels.map((name) => name.length));
  // All rows of a chart belong to one asset, so the first row stands for all of them.
  const names = columns.map(({ name }) => name);
  const amount = findAmounts(names, rows.slice(0, 1), units, (index) =>
    EXACT.test(String(columns[index]?.type)),
  ).get(figure);
  const figures = totals
    .slice(0, BARS_MAX)
    .map(
      (total) =>
        amount?.format((rows[0] ?? []).with(figure, total)) ??
        figureText(total),
    );
  const figureWidth = Math.max(0, ...figures.map((text) => text.length));
  const barWidth = Math.max(
    BAR_CHARACTERS_MIN,
    Math.min(BAR_CHARACTERS_MAX, width - labelWidth - figureWidth - 4),
  );
  // The parts of a bar are drawn end to end, whatever their signs.
  const most = Math.max(0, ...shown.map(([, bar]) => lengthOf(bar)));
  const lines = shown.map(([, bar], index) => {
    const drawn = drawBar(bar, parts, barWidth / (most || 1));
    const name = (labels[index] ?? '').padEnd(labelWidth);
    const value = (figures[index] ?? '').padStart(figureWidth);
    return `${name}  ${value}  ${drawn}`.trimEnd();
  });
  const nameOf = (index: number): string => columns[index]?.name ?? '';
  const legend =
    split === undefined
      ? ''
      : ` by ${nameOf(split)}: ` +
        parts
          .map((part, at) => `${BLOCKS[at] ?? ''} ${shorten(part) || '–'}`)
          .join('  ');
  const left = bars.size - shown.length;
  const more = left > 0 ? [`… and ${formatCount(left)} more`] : [];
  const heading = amount?.heading ?? nameOf(figure);
  return `${[`${heading}${legend}`, ...lines, ...more].join('\n')}\n`;
}

function lengthOf(bar: Bar): number {
  return [...bar.values()].reduce(
    (length, value) => length + Math.abs(Number(value)),
    0,
  );
}

/**
 * Draws the parts of a bar end to end. It rounds where each part ends rather than how
 * long it is, so that rounding errors do not add up along the bar.
 */
function drawBar(
  bar: Bar,
  parts: readonly string[],
  charactersPerUnit: number,
): string {
  let end = 0;
  let drawn = '';
  for (const [at, part] of parts.entries()) {
    end += Math.abs(Number(bar.get(part) ?? 0)) * charactersPerUnit;
    const missing = Math.max(0, Math.round(end) - drawn.length);
    drawn += (BLOCKS[at] ?? '█').repeat(missing);
  }
  return drawn;
}

/**
 * Chooses the column by which each bar is split: the one with the fewest different
 * values, but at least two. Undefined if every column has too few or too many values.
 */
function chooseSplit(
  texts: readonly number[],
  label: number,
  rows: readonly (readonly string[])[],
): number | undefined {
  const count = (index: number): number =>
    new Set(rows.map((row) => row[index])).size;
  // If no label has more than one row, there is nothing to split.
  if (count(label) === rows.length) return undefined;
  return texts
    .filter((index) => count(index) > 1 && count(index) <= BLOCKS.length)
    .toSorted((a, b) => count(a) - count(b))[0];
}

/** Adds up the figures for each label and each of its parts. */
function sumUp(
  rows: readonly (readonly string[])[],
  {
    label,
    figure,
    split,
  }: Readonly<Record<'label' | 'figure', number>> & {
    readonly split: number | undefined;
  },
): ReadonlyMap<string, Bar> {
  const bars = new Map<string, Map<string, string>>();
  for (const row of rows) {
    const name = row[label] ?? '';
    const part = split === undefined ? '' : (row[split] ?? '');
    const value = row[figure];
    if (value === undefined || value === '') continue;
    const bar = bars.get(name) ?? new Map<string, string>();
    bar.set(part, add(bar.get(part) ?? '0', value));
    bars.set(name, bar);
  }
  return bars;
}

/** Writes a figure exactly, unless it is a floating-point number with a power of ten. */
function figureText(figure: string): string {
  return /e/i.test(figure) ? formatRough(Number(figure)) : groupDigits(figure);
}

const WHOLE = /^-?\d+$/;

/** Adds two figures; exactly if both are whole numbers, as amounts are. */
function add(one: string, other: string): string {
  return WHOLE.test(one) && WHOLE.test(other)
    ? String(BigInt(one) + BigInt(other))
    : String(Number(one) + Number(other));
}

/** Drops the time of day if it is midnight, and shortens an id to its beginning. */
function shorten(text: string): string {
  const day = text.replace(/ 00:00:00(?:\+00)?$/, '');
  if (day.length <= LABEL_CHARACTERS_MAX) return day;
  return /^[0-9a-f]{64}$/.test(day)
    ? `${day.slice(0, 8)}…`
    : `${day.slice(0, LABEL_CHARACTERS_MAX - 1)}…`;
}
