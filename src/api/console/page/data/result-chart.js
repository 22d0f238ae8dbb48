// Draws a result over time: a line for its first column of figures, or, if the figures
// are by day or month, a line per kind.
import { chart } from '../common/charts.js';
import { el } from '../common/dom.js';
import { count, shortId } from '../common/format.js';

const LINES_MAX = 6;
const TONES = ['live', 'good', 'warn', 'second', 'bad', 'quiet'];

/** Returns the chart's elements; an empty array if a chart would show nothing useful. */
export function resultChart(columns, rows) {
  const places = (kind) =>
    columns.flatMap((column, index) => (column.kind === kind ? [index] : []));
  const [time] = places('time');
  const [figure] = places('number');
  const kinds = places('text');
  const isDaily = rows.every((row) => `${row[time]}`.length <= 10);
  if (
    time === undefined ||
    figure === undefined ||
    rows.length < 3 ||
    (kinds.length > 0 && !isDaily)
  )
    return [];
  const kind = fewest(kinds, rows);
  if (kinds.length > 0 && kind === undefined) return [];
  const lines = linesOf(rows, { time, figure, kind });
  const times = [
    ...new Set(lines.flatMap(({ at }) => [...at.keys()])),
  ].toSorted((a, b) => a - b);
  if (times.length < 2 || times.some(Number.isNaN)) return [];
  const target = el('div.chart');
  const name = columns[figure].name;
  const label = kind === undefined ? name : `${name} by ${columns[kind].name}`;
  // Draw only after the page contains the chart: a chart is as wide as its container.
  queueMicrotask(() =>
    chart(target, {
      label,
      said: `${label}, over time; the table below has every value.`,
      times,
      form: isDaily ? 'day' : 'full',
      series: lines.map(({ name: line, at }, index) => ({
        label: line === undefined ? name : shortId(line),
        tone: TONES[index],
        values: times.map((one) => Number(at.get(one) ?? 0)),
        texts: times.map((one) => shown(at.get(one) ?? '0')),
      })),
    }),
  );
  return [el('p.hint', label), target];
}

/**
 * Returns the column of text with the fewest different values, if there are few enough
 * of them to be distinguishable.
 */
function fewest(kinds, rows) {
  const valuesOf = (index) => new Set(rows.map((row) => row[index])).size;
  const [least] = kinds.toSorted((a, b) => valuesOf(a) - valuesOf(b));
  return least !== undefined && valuesOf(least) <= LINES_MAX
    ? least
    : undefined;
}

/** Adds up the figures of the same time and kind. */
function linesOf(rows, { time, figure, kind }) {
  const lines = new Map();
  for (const row of rows) {
    if (row[time] === null || row[figure] === null) continue;
    const name = kind === undefined ? undefined : `${row[kind] ?? '–'}`;
    if (!lines.has(name)) lines.set(name, { name, at: new Map() });
    const { at } = lines.get(name);
    const when = Date.parse(`${row[time]}`.replace(' ', 'T')) / 1_000;
    const known = at.get(when);
    const value = String(row[figure]);
    at.set(when, known === undefined ? value : sum(known, value));
  }
  return [...lines.values()].toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

function sum(one, other) {
  const isWhole = /^-?\d+$/.test(one) && /^-?\d+$/.test(other);
  return isWhole
    ? String(BigInt(one) + BigInt(other))
    : String(Number(one) + Number(other));
}

function shown(value) {
  return /^-?\d+$/.test(value) ? count(value) : value;
}
