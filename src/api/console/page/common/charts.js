// Charts by uPlot, in the page's colours. A hidden text next to each chart describes
// its content.
/* global uPlot */
import { byId, el, show } from './dom.js';
import { count, rough } from './format.js';
import { formatTime, timeZone } from './time.js';

const HEIGHT = 220;
const DAY_SECONDS = 86_400;
const DAYS_BETWEEN_MARKS = [1, 2, 7, 14, 28, 91, 182, 364].map(
  (days) => days * DAY_SECONDS,
);
/** The charts, by the element that contains each. */
const charts = new Map();

/**
 * Returns a colour of the style sheet as a plain value. A canvas understands neither
 * variables nor `light-dark()`, but the computed colour of an element is a plain value.
 */
export function colour(name) {
  const probe = byId('announce');
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

/** Redraws the charts after the theme has changed, because a canvas is not restyled. */
export function redrawCharts() {
  for (const { redraw } of charts.values()) redraw();
}

/**
 * Returns a series of amounts, drawn as a line or as bars. Numbers determine the
 * positions of the points; the texts shown are exact.
 * @param text formats an amount
 * @param decimal returns an amount as decimal text
 */
export function amounts(
  label,
  tone,
  exact,
  { bars = false, isBelow = false, text = count, decimal = String } = {},
) {
  const values = exact.map((amount) =>
    isBelow ? -Number(decimal(amount)) : Number(decimal(amount)),
  );
  return { label, tone, bars, values, texts: exact.map((one) => text(one)) };
}

/**
 * Draws a chart in place of the target's content.
 * @param series as `amounts` returns them
 * @param times seconds since 1970
 * @param said a description of the chart's content in words
 */
export function chart(target, { label, times, series, form, said }) {
  charts.get(target)?.end();
  show(target, el('p.hidden', said));
  target.setAttribute('role', 'group');
  target.setAttribute('aria-label', label);
  const power = powerOf(series);
  const lines = series.map(({ values }) =>
    values.map((value) => value / 10 ** power),
  );
  const paint = () => {
    const made = new uPlot(
      optionsOf(target, times, series, form, power),
      [times, ...lines],
      target,
    );
    reachLegend(made);
    return made;
  };
  let plot = paint();
  const end = () => {
    watcher.disconnect();
    plot.destroy();
    charts.delete(target);
  };
  const whileShown = (change) => () => {
    if (plot.root.isConnected) change();
    else end();
  };
  const watcher = new ResizeObserver(
    whileShown(() => {
      const width = target.clientWidth;
      if (width > 0 && width !== plot.width)
        plot.setSize({ width, height: HEIGHT });
    }),
  );
  const redraw = whileShown(() => {
    plot.destroy();
    plot = paint();
  });
  charts.set(target, { redraw, end });
  watcher.observe(target);
}

/**
 * Makes each name in the legend a button that the keyboard reaches. The library itself
 * shows and hides a series only when the name is clicked.
 */
function reachLegend({ root, series }) {
  const names = root.querySelectorAll('.u-legend .u-series .u-label');
  names.forEach((name, index) => {
    // The first series is the time, which cannot be hidden.
    if (index === 0) return;
    const tell = () => {
      name.setAttribute('aria-pressed', String(series[index].show));
    };
    name.tabIndex = 0;
    name.setAttribute('role', 'button');
    tell();
    // The library's own listener is on the cell around the name and runs after this one,
    // so wait for it before reading the state.
    name.addEventListener('click', () => queueMicrotask(tell));
    name.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' && event.key !== ' ') return;
      event.preventDefault();
      name.click();
      tell();
    });
  });
}

/**
 * Returns the power of ten to divide the amounts by. The library cannot label axes for
 * numbers as large as a ledger's amounts, so it gets numbers near one.
 */
function powerOf(series) {
  const most = series
    .flatMap(({ values }) => values)
    .reduce((max, value) => Math.max(max, Math.abs(value)), 1);
  return Math.floor(Math.log10(most));
}

function optionsOf(target, times, series, form, power) {
  const axis = {
    stroke: colour('quiet'),
    grid: { stroke: colour('line'), width: 1 },
    ticks: { stroke: colour('line'), size: 4 },
    font: '12px system-ui',
    size: 64,
  };
  return {
    width: Math.max(target.clientWidth, 240),
    height: HEIGHT,
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1_000), timeZone()),
    cursor: { drag: { x: false, y: false } },
    legend: { live: true },
    scales: {
      x: { range: xRange(times, form) },
      ...(series.some(({ bars }) => bars) ? { y: { range: fromZero } } : {}),
    },
    series: [
      {
        label: 'Time',
        // While the pointer is elsewhere, the legend shows the latest values.
        value: (_plot, seconds) =>
          formatTime((seconds ?? times.at(-1)) * 1_000, form),
      },
      ...series.map((one) => seriesOf(one)),
    ],
    axes: [
      {
        ...axis,
        size: 32,
        space: 76,
        ...(form === 'day' ? { incrs: DAYS_BETWEEN_MARKS } : {}),
        values: (_plot, marks, _index, _space, stepSeconds) =>
          marks.map((at) => tick(at, stepSeconds)),
      },
      {
        ...axis,
        values: (_plot, marks) =>
          marks.map((mark) => rough(mark * 10 ** power)),
      },
    ],
  };
}

function tick(seconds, stepSeconds) {
  const text = formatTime(seconds * 1_000, 'full');
  if (stepSeconds >= 86_400) return text.slice(5, 10);
  return stepSeconds >= 60 ? text.slice(11, 16) : text.slice(11);
}

/**
 * Adds a margin at both ends; without it, a chart of a single instant would have no
 * width.
 */
function xRange(times, form) {
  const first = times[0] ?? 0;
  const last = times.at(-1) ?? 0;
  const spare = Math.max(
    (last - first) * 0.02,
    form === 'day' ? DAY_SECONDS / 2 : 1,
  );
  return [first - spare, last + spare];
}

/** Makes the axis include zero, because the length of a bar is its distance from zero. */
function fromZero(_plot, least, most) {
  return least < 0 || most > 0
    ? [Math.min(least * 1.05, 0), Math.max(most * 1.05, 0)]
    : [0, 1];
}

function seriesOf({ label, tone, texts, bars }) {
  const stroke = colour(tone);
  return {
    label,
    stroke,
    width: 2,
    ...(bars
      ? { fill: `color-mix(in srgb, ${stroke} 40%, transparent)`, width: 1 }
      : {}),
    points: { show: false },
    paths: bars
      ? uPlot.paths.bars({ size: [0.7, 40], align: 0 })
      : uPlot.paths.stepped({ align: 1 }),
    value: (_plot, _value, _series, index) =>
      texts[index ?? texts.length - 1] ?? '–',
  };
}
