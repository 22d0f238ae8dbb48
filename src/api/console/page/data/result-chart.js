// Draws a result as a chart: the axis is a column of times or names, and the figures come
// from another column, optionally split by a column with few values. The reader chooses
// the columns, and can save the chart as shown.
import { colour } from '../common/charts.js';
import { el, svg } from '../common/dom.js';
import { assetName } from '../common/assets.js';
import { grouped, shortId } from '../common/format.js';
import {
  ALTERNATIVES,
  readInstant,
  usualAxis,
  usualFigure,
} from '../shared/chart-choice.js';
import {
  shapesOf,
  stackCharts,
  toCanvas,
  toSvg,
  withCaption,
} from './figure.js';

const PARTS_MAX = 6;
/** Nobody scrolls through more charts than this. */
const CHARTS_MAX = 12;
const NAMES_MAX = 40;
const LABELS_MAX = 5_000;
const BARS_MAX = 150;
const WIDTH_MIN = 240;
const TONES = ['live', 'good', 'warn', 'second', 'bad', 'quiet'];
const PERIOD = /^\d{4}-\d\d(?:-\d\d(?:[ T]00:00:00(?:\.0+)?(?:\+00|Z)?)?)?$/;

const ONE_ROW =
  'No chart: the result has one row, so there is nothing to compare.';
const NO_AMOUNTS = 'No chart: no column of the result contains amounts.';
const NO_AXIS =
  `No chart: no column of the result contains times, or between 2 and ${NAMES_MAX} ` +
  'names.';
const UNITS_APART =
  'No chart: each asset has its own unit, so amounts of several assets cannot be ' +
  'compared. Add a time or a name.';

/**
 * Returns the chart's elements, or a sentence that says why there is no chart. Most SQL
 * is not meant to be drawn, so its result usually gets no such sentence. The exception is
 * a result whose amounts cannot be compared because they are in different assets.
 * @param units the columns that name a figure's unit, by the figure's name: rows with
 *   different units are never drawn on one axis
 * @param assets the known assets by id
 * @param isReady whether the result answers a ready question
 */
export function resultChart(columns, rows, { units, assets, isReady }) {
  const figures = columns.filter(({ isAmount }) => isAmount);
  const sizes = new Map(
    columns.map(({ name }) => [name, distinct(columns, rows, name).size]),
  );
  const drawable = figures.flatMap(({ name, heading }) => {
    const unit = units[name] ?? [];
    const parts = partsOf(columns, rows, { sizes, unit, assets });
    return parts === undefined ? [] : [{ name, heading, ...parts }];
  });
  if (drawable.length > 0) return [chooser({ columns, rows, drawable })];
  const why = whyNone(columns, rows, { figures, units });
  return isReady || why === UNITS_APART ? [el('p.hint', why)] : [];
}

function whyNone(columns, rows, { figures, units }) {
  if (rows.length === 1) return ONE_ROW;
  if (figures.length > 0) {
    const areUnitsApart = figures
      .flatMap(({ name }) => units[name] ?? [])
      .some((unit) => distinct(columns, rows, unit).size > 1);
    return areUnitsApart ? UNITS_APART : NO_AXIS;
  }
  const several = columns.find(
    ({ kind }, index) =>
      kind === 'text' &&
      rows.every((row) => ALTERNATIVES.test(String(row[index]))),
  );
  if (several === undefined) return NO_AMOUNTS;
  return (
    `No chart: ${several.name} has several possible values in some rows, so these ` +
    'rows have no length. Leave them out to draw the others.'
  );
}

/**
 * Returns the parts of a figure: its axis, the columns that may split it, and the rows
 * grouped by unit. Returns undefined if no column can be the axis.
 * @param sizes how many different values each column has, by its name
 */
function partsOf(columns, rows, { sizes, unit, assets }) {
  const sizeOf = ({ name }) => sizes.get(name);
  const others = columns.filter(({ name }) => !unit.includes(name));
  const ofKind = (kind) => others.filter((column) => column.kind === kind);
  const names = ofKind('text').filter(
    (column) => sizeOf(column) > 1 && sizeOf(column) <= NAMES_MAX,
  );
  // A column of names is a candidate even if it has too many names to draw. Otherwise, a
  // time that only describes its row would become the axis. A time that all rows share,
  // such as the month of a question, leaves the axis to the names.
  const times = ofKind('time').filter(
    (column) => sizeOf(column) > 1 || names.length === 0,
  );
  const candidates = [...times, ...ofKind('text')].map((column) => ({
    ...column,
    index: columns.indexOf(column),
  }));
  const chosen = usualAxis(candidates, rows);
  const axis = columns[chosen?.index];
  if (axis === undefined || rows.length < 2) return undefined;
  if (axis.kind === 'text' && !names.includes(axis)) return undefined;
  if (sizeOf(axis) < 2 || sizeOf(axis) > LABELS_MAX) return undefined;
  const splits = names
    .filter((column) => column !== axis && sizeOf(column) <= PARTS_MAX)
    .toSorted((a, b) => sizeOf(a) - sizeOf(b));
  return { axis, splits, groups: groupsOf(columns, rows, unit, assets) };
}

/**
 * Whether a column has months or days, written as such or as the instant at which they
 * begin.
 */
function arePeriods(rows, at) {
  return rows.every((row) => row[at] === null || PERIOD.test(String(row[at])));
}

/**
 * Groups the rows by unit, each group with its unit's name. If all rows share a unit,
 * there is one group without a name.
 */
function groupsOf(columns, rows, unit, assets) {
  const at = unit.map((name) => columns.findIndex((one) => one.name === name));
  const unitOf = (row) => at.map((index) => row[index]);
  const groups = Map.groupBy(rows, (row) => JSON.stringify(unitOf(row)));
  if (groups.size < 2) return [{ rows }];
  return [...groups].map(([key, own]) => ({
    key,
    title: unitOf(own[0])
      .map((value) => assetName(assets, String(value ?? '–')))
      .join(' '),
    rows: own,
  }));
}

function distinct(columns, rows, name) {
  const at = columns.findIndex((column) => column.name === name);
  return new Set(rows.map((row) => row[at]).filter((value) => value !== null));
}

function chooser({ columns, rows, drawable }) {
  const usual = usualFigure(drawable.map(({ name }) => name));
  const meant = drawable.find(({ name }) => name === usual);
  const figure = select('Figures', namesOf(drawable), meant.name);
  const unit = select('Asset', [], '');
  const split = select('Split by', [], '');
  const form = select('Drawn as', [], '');
  const place = el('div.figure');
  const legend = el('ul.figure-legend');
  const note = el('p.hint');
  const fields = {
    figure: labelled('Figures', figure),
    unit: labelled('Asset', unit),
    split: labelled('Split by', split),
  };
  const chosen = () => drawable.find(({ name }) => name === figure.value);
  let drawn;
  const offer = () => {
    const { axis, groups, splits } = chosen();
    const units = groups.map(({ key, title }) => [key, title]);
    setOptions(unit, [['', 'each by itself'], ...units], '');
    const [fewest] = splits;
    setOptions(
      split,
      [['', 'nothing'], ...namesOf(splits)],
      fewest?.name ?? '',
    );
    fields.unit.remove();
    fields.split.remove();
    fields.figure.after(
      ...(groups.length > 1 ? [fields.unit] : []),
      ...(splits.length > 0 ? [fields.split] : []),
    );
    const kept = form.value;
    setOptions(form, FORMS[axis.kind], kept || usualForm(columns, rows, axis));
  };
  const draw = () => {
    const { axis, groups, heading } = chosen();
    const names = { axis: axis.name, figure: figure.value, split: split.value };
    const width = Math.max(place.clientWidth, WIDTH_MIN);
    const wanted = groups.filter(
      ({ key }) => unit.value === '' || key === unit.value,
    );
    const parts = partNames(columns, rows, names);
    const shared = wanted.slice(0, CHARTS_MAX);
    const labels = labelsOf(columns, shared, names, axis.kind === 'time');
    const charts = shared.flatMap(({ title, rows: own }) => {
      const data = dataOf(columns, own, names, { labels, parts });
      if (data.series.length === 0) return [];
      const shapes = shapesOf({ ...data, form: form.value, width });
      return [{ title, shapes, series: data.series }];
    });
    const label = `${heading}${names.split && ` by ${names.split}`}, by ${names.axis}${wanted.length > 1 ? ', for each asset' : ''}`;
    const { shapes, height } = stackCharts(charts);
    const entries = legendOf(charts, axis.kind === 'time');
    drawn = withCaption({ shapes, width, height, label, legend: entries });
    const colourOf = (tone) => `var(--${tone})`;
    const said = `${label}; the table below has every value.`;
    place.replaceChildren(
      toSvg(shapes, { width, height, label: said, colourOf }),
    );
    legend.replaceChildren(...entries.map(legendItem));
    note.textContent =
      wanted.length > shared.length
        ? `The first ${CHARTS_MAX} of ${wanted.length} assets are drawn: choose one to see another.`
        : '';
  };
  figure.addEventListener('change', () => {
    offer();
    draw();
  });
  for (const choice of [unit, split, form])
    choice.addEventListener('change', draw);
  // Draw only after the page contains the chart: a chart is as wide as its container.
  let width = 0;
  new ResizeObserver(() => {
    if (place.clientWidth === width || place.clientWidth === 0) return;
    width = place.clientWidth;
    draw();
  }).observe(place);
  const made = el(
    'div.result-chart',
    el(
      'p.choices',
      fields.figure,
      labelled('Drawn as', form),
      el('button', { type: 'button', click: () => saveSvg(drawn) }, 'SVG'),
      el('button', { type: 'button', click: () => savePng(drawn) }, 'PNG'),
    ),
    place,
    legend,
    note,
  );
  offer();
  return made;
}

const BARS = [
  ['stacked', 'stacked bars'],
  ['bars', 'bars'],
];
const FORMS = { time: [...BARS, ['line', 'a line']], text: BARS };

/**
 * Bars suit names, months and days. A line suits other times, and any times that are too
 * many for bars.
 */
function usualForm(columns, rows, axis) {
  const isFine = distinct(columns, rows, axis.name).size > BARS_MAX;
  const at = columns.indexOf(axis);
  const isLine = axis.kind === 'time' && (isFine || !arePeriods(rows, at));
  return isLine ? 'line' : 'stacked';
}

function namesOf(columns) {
  return columns.map(({ name, heading }) => [name, heading]);
}

function setOptions(choice, options, value) {
  choice.replaceChildren(
    ...options.map(([name, text]) => el('option', { value: name }, text)),
  );
  choice.value = value;
}

/**
 * Returns the parts in the same order for all charts, so that each part has the same
 * colour in all of them.
 */
function partNames(columns, rows, { figure, split }) {
  if (split === '') return [figure];
  const at = columns.findIndex(({ name }) => name === split);
  const values = new Set(rows.map((row) => String(row[at] ?? '–')));
  return [...values].toSorted(byText);
}

function select(label, options, value) {
  const made = el('select', { 'aria-label': label });
  setOptions(made, options, value);
  return made;
}

function labelled(label, field) {
  return el('label.choice', label, field);
}

/** Returns the labels of all groups, so that charts below one another share an axis. */
function labelsOf(columns, groups, names, isTime) {
  const at = (name) => columns.findIndex((column) => column.name === name);
  const axis = at(names.axis);
  const figure = at(names.figure);
  const drawn = groups
    .flatMap(({ rows }) => rows)
    .filter((row) => row[axis] !== null && row[figure] !== null);
  const known = [...new Set(drawn.map((row) => String(row[axis])))];
  return isTime ? withGaps(known.toSorted(byText)) : known;
}

/** Adds up the figures of each label and part, exactly. */
function dataOf(columns, rows, names, { labels, parts: order }) {
  const at = (name) => columns.findIndex((column) => column.name === name);
  const axis = at(names.axis);
  const figure = at(names.figure);
  const split = at(names.split);
  const parts = new Map();
  for (const row of rows) {
    if (row[axis] === null || row[figure] === null) continue;
    const label = String(row[axis]);
    const part = split === -1 ? names.figure : String(row[split] ?? '–');
    if (!parts.has(part)) parts.set(part, new Map());
    const sums = parts.get(part);
    sums.set(label, add(sums.get(label), String(row[figure])));
  }
  // All rows belong to one asset, so the first row stands for all of them.
  const { amount } = columns[figure];
  const inRow = (text) => rows[0].with(figure, text);
  const positionOf = (text) =>
    text === undefined
      ? undefined
      : Number(amount?.decimal(inRow(text)) ?? text);
  const textOf = (text) =>
    text === undefined ? '–' : (amount?.format(inRow(text)) ?? grouped(text));
  return {
    labels: labels.map(shortId),
    places: placesOf(labels),
    series: order.flatMap((name, index) => {
      const sums = parts.get(name);
      if (sums === undefined) return [];
      return [
        {
          name: shortId(name),
          tone: TONES[index] ?? 'quiet',
          values: labels.map((label) => positionOf(sums.get(label))),
          texts: labels.map((label) => textOf(sums.get(label))),
        },
      ];
    }),
  };
}

function byText(a, b) {
  return a < b ? -1 : 1;
}

/**
 * Returns the position of each label, from 0 to 1. The labels are spaced like their
 * times, or evenly if one of them is not a time but, for example, a name or `infinity`.
 */
function placesOf(labels) {
  const instants = labels.map(readInstant);
  const evenly = (_, index) => index / Math.max(1, labels.length - 1);
  const areTimes = instants.length > 0 && !instants.includes(undefined);
  if (!areTimes) return labels.map(evenly);
  const [first] = instants;
  const sinceFirst = (instant) => Number(BigInt(instant) - BigInt(first));
  const span = sinceFirst(instants.at(-1)) || 1;
  return instants.map((instant) => sinceFirst(instant) / span);
}

/** Adds months without a row, so that equal distances mean equal times. */
function withGaps(labels) {
  const areMonths = labels.every((label) => /^\d{4}-\d\d$/.test(label));
  if (labels.length === 0 || !areMonths) return labels;
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

/**
 * Returns the legend: the name of each part, with its last value if there is only one
 * chart and its axis is time.
 */
function legendOf(charts, isTime) {
  if (isTime && charts.length === 1)
    return charts[0].series.map(({ name, tone, texts }) => ({
      tone,
      text: `${name}: ${texts.at(-1)} at the end`,
    }));
  const tones = new Map(
    charts.flatMap(({ series }) =>
      series.map(({ name, tone }) => [name, tone]),
    ),
  );
  return [...tones].map(([text, tone]) => ({ tone, text }));
}

function legendItem({ tone, text }) {
  const sample = svg(
    'svg',
    { width: 12, height: 12, 'aria-hidden': 'true' },
    svg('rect', { width: 12, height: 12, fill: `var(--${tone})` }),
  );
  return el('li', sample, ` ${text}`);
}

// A file has no style sheet, so its colours are plain values.
function saveSvg({ shapes, width, height, label }) {
  const made = toSvg(shapes, { width, height, label, colourOf: colour });
  const text = new XMLSerializer().serializeToString(made);
  save(new Blob([text], { type: 'image/svg+xml' }), 'svg');
}

function savePng({ shapes, width, height }) {
  toCanvas(shapes, { width, height, colourOf: colour }).toBlob(
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
