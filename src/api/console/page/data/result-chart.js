// A result as a chart: a column of times or names, a column of figures, and perhaps one
// of few values that splits them. The reader chooses which, and saves what is seen.
import { colour } from '../common/charts.js';
import { el, svg } from '../common/dom.js';
import { grouped, shortId } from '../common/format.js';
import { shapesOf, toCanvas, toSvg } from './figure.js';

const PARTS_MAX = 6;
const NAMES_MAX = 40;
const LABELS_MAX = 5_000;
const BARS_MAX = 150;
const WIDTH_MIN = 240;
const TONES = ['live', 'good', 'warn', 'second', 'bad', 'quiet'];
/** What an analyst wants to see first, before how many entries there are. */
const MEANT = /quantity|paid|held|amount|balance|change|sent/i;

/** Returns the chart's elements; an empty array if a chart would show nothing useful. */
export function resultChart(columns, rows) {
  const ofKind = (kind) => columns.filter((column) => column.kind === kind);
  const figures = columns.filter(({ isAmount }) => isAmount);
  const valuesOf = ({ name }) => distinct(columns, rows, name);
  const names = ofKind('text').filter((column) => {
    const { size } = valuesOf(column);
    return size > 1 && size <= NAMES_MAX;
  });
  const [axis] = [...ofKind('time'), ...names];
  if (axis === undefined || figures.length === 0 || rows.length < 2) return [];
  if (valuesOf(axis).size < 2 || valuesOf(axis).size > LABELS_MAX) return [];
  const splits = names.filter(
    (column) => column !== axis && valuesOf(column).size <= PARTS_MAX,
  );
  return [chooser({ columns, rows, axis, figures, splits })];
}

function distinct(columns, rows, name) {
  const at = columns.findIndex((column) => column.name === name);
  return new Set(rows.map((row) => row[at]).filter((value) => value !== null));
}

function chooser({ columns, rows, axis, figures, splits }) {
  const meant = figures.find(({ name }) => MEANT.test(name)) ?? figures[0];
  const fewest = splits.toSorted(
    (a, b) =>
      distinct(columns, rows, a.name).size -
      distinct(columns, rows, b.name).size,
  )[0];
  const figure = select(
    'Figures',
    figures.map(({ name }) => [name, name]),
    meant.name,
  );
  const split = select(
    'Split by',
    [['', 'nothing'], ...splits.map(({ name }) => [name, name])],
    fewest?.name ?? '',
  );
  const isFine = distinct(columns, rows, axis.name).size > BARS_MAX;
  const isTime = axis.kind === 'time';
  const isPeriod = rows.every(
    (row) => `${row[columns.indexOf(axis)]}`.length <= 10,
  );
  const forms = [
    ['stacked', 'stacked bars'],
    ['bars', 'bars'],
    ...(isTime ? [['line', 'a line']] : []),
  ];
  const form = select(
    'Drawn as',
    forms,
    isTime && (isFine || !isPeriod) ? 'line' : 'stacked',
  );
  const place = el('div.figure');
  const legend = el('ul.figure-legend');
  let drawn;
  const draw = () => {
    const names = { axis: axis.name, figure: figure.value, split: split.value };
    const width = Math.max(place.clientWidth, WIDTH_MIN);
    const data = dataOf(columns, rows, names, isTime);
    const label = `${names.figure}${names.split && ` by ${names.split}`}, by ${names.axis}`;
    const shapes = shapesOf({ ...data, form: form.value, width });
    drawn = { shapes, width, label };
    const colourOf = (tone) => `var(--${tone})`;
    const said = `${label}; the table below has every value.`;
    place.replaceChildren(toSvg(shapes, { width, label: said, colourOf }));
    legend.replaceChildren(...data.series.map(legendItem));
  };
  for (const choice of [figure, split, form])
    choice.addEventListener('change', draw);
  // Draw only after the page contains the chart: a chart is as wide as its container.
  let width = 0;
  new ResizeObserver(() => {
    if (place.clientWidth === width || place.clientWidth === 0) return;
    width = place.clientWidth;
    draw();
  }).observe(place);
  return el(
    'div.result-chart',
    el(
      'p.choices',
      labelled('Figures', figure),
      splits.length > 0 && labelled('Split by', split),
      labelled('Drawn as', form),
      el('button', { type: 'button', click: () => saveSvg(drawn) }, 'SVG'),
      el('button', { type: 'button', click: () => savePng(drawn) }, 'PNG'),
    ),
    place,
    legend,
  );
}

function select(label, options, value) {
  const made = el(
    'select',
    { 'aria-label': label },
    ...options.map(([name, text]) => el('option', { value: name }, text)),
  );
  made.value = value;
  return made;
}

function labelled(label, field) {
  return el('label.choice', label, field);
}

/** Adds up the figures of each label and part, exactly. */
function dataOf(columns, rows, names, isTime) {
  const at = (name) => columns.findIndex((column) => column.name === name);
  const axis = at(names.axis);
  const figure = at(names.figure);
  const split = at(names.split);
  const parts = new Map();
  const known = new Set();
  for (const row of rows) {
    if (row[axis] === null || row[figure] === null) continue;
    const label = String(row[axis]);
    const part = split === -1 ? names.figure : String(row[split] ?? '–');
    known.add(label);
    if (!parts.has(part)) parts.set(part, new Map());
    const sums = parts.get(part);
    sums.set(label, add(sums.get(label), String(row[figure])));
  }
  const labels = isTime ? withGaps([...known].toSorted(byText)) : [...known];
  const whole = labels.map(momentOf);
  const span = whole.at(-1) - whole[0] || 1;
  const sorted = [...parts].toSorted(([a], [b]) => byText(a, b));
  return {
    labels: labels.map(shortId),
    places: whole.map((moment) => (moment - whole[0]) / span),
    series: sorted.map(([name, sums], index) => ({
      name: shortId(name),
      tone: TONES[index],
      values: labels.map((label) => asNumber(sums.get(label))),
      texts: labels.map((label) => shown(sums.get(label))),
    })),
  };
}

function asNumber(text) {
  return text === undefined ? undefined : Number(text);
}

function byText(a, b) {
  return a < b ? -1 : 1;
}

function shown(text) {
  return text === undefined ? '–' : grouped(text);
}

function momentOf(label) {
  return Date.parse(label.replace(' ', 'T'));
}

/** Adds months without a row, so that equal distances mean equal times. */
function withGaps(labels) {
  if (!labels.every((label) => /^\d{4}-\d\d$/.test(label))) return labels;
  const numberOf = (label) =>
    Number(label.slice(0, 4)) * 12 + Number(label.slice(5)) - 1;
  const first = numberOf(labels[0]);
  const months = numberOf(labels.at(-1)) - first + 1;
  if (months > BARS_MAX) return labels;
  return Array.from({ length: months }, (_, index) => {
    const month = first + index;
    const year = String(Math.floor(month / 12)).padStart(4, '0');
    return `${year}-${String((month % 12) + 1).padStart(2, '0')}`;
  });
}

function add(known, value) {
  if (known === undefined) return value;
  const isWhole = /^-?\d+$/.test(known) && /^-?\d+$/.test(value);
  return isWhole
    ? String(BigInt(known) + BigInt(value))
    : String(Number(known) + Number(value));
}

function legendItem({ name, tone, texts }) {
  const sample = svg(
    'svg',
    { width: 12, height: 12, 'aria-hidden': 'true' },
    svg('rect', { width: 12, height: 12, fill: `var(--${tone})` }),
  );
  return el('li', sample, ` ${name}: ${texts.at(-1)} at the end`);
}

// A file knows no style sheet, so its colours are plain values.
function saveSvg({ shapes, width, label }) {
  const made = toSvg(shapes, { width, label, colourOf: colour });
  const text = new XMLSerializer().serializeToString(made);
  save(new Blob([text], { type: 'image/svg+xml' }), 'svg');
}

function savePng({ shapes, width }) {
  toCanvas(shapes, { width, colourOf: colour }).toBlob(
    (file) => save(file, 'png'),
    'image/png',
  );
}

function save(file, ending) {
  const url = URL.createObjectURL(file);
  const day = new Date().toISOString().slice(0, 10);
  el('a', { href: url, download: `chart-${day}.${ending}` }).click();
  URL.revokeObjectURL(url);
}
