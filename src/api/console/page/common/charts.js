// Charts by uPlot, in the page's colours. What a chart shows is also said in words beside it.
/* global uPlot */
import { el, place } from './dom.js';
import { rough } from './format.js';
import { formatTime, timeZone } from './time.js';

const HEIGHT = 220;
const DAY_SECONDS = 86_400;
const DAYS_BETWEEN_MARKS = [1, 2, 7, 14, 28, 91, 182, 364].map((days) => days * DAY_SECONDS);
const charts = new Set();

/** Canvas knows neither variables nor `light-dark()`: an element's computed colour is a plain one. */
function colour(name) {
  const probe = place('announce');
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

/** Colours are painted, not styled: another theme means another painting. */
export function redrawCharts() {
  for (const chart of charts) {
    if (chart.target.isConnected) chart.draw();
    else charts.delete(chart);
  }
}

/**
 * @param series `{ label, tone, values, texts, scale, bars }`: `values` place the line, `texts` are exact
 * @param times seconds since 1970
 */
export function chart(target, { label, times, series, form = 'minute', said }) {
  let plot;
  const draw = () => {
    plot?.destroy();
    const powers = powersOf(series);
    const lines = series.map(({ values, scale = 'y' }) => values.map((value) => value / 10 ** powers[scale]));
    plot = new uPlot(optionsOf(target, times, series, form, powers), [times, ...lines], target);
  };
  target.replaceChildren(el('p', { class: 'hidden' }, said));
  target.setAttribute('role', 'group');
  target.setAttribute('aria-label', label);
  const entry = { target, draw };
  charts.add(entry);
  draw();
  const watcher = new ResizeObserver(() => {
    if (!target.isConnected) watcher.disconnect();
    else if (target.clientWidth > 0 && target.clientWidth !== plot.width)
      plot.setSize({ width: target.clientWidth, height: HEIGHT });
  });
  watcher.observe(target);
}

/** The library's marks end long before a ledger's amounts do: it is given numbers near one. */
function powersOf(series) {
  const powers = {};
  for (const { values, scale = 'y' } of series) {
    const power = Math.floor(Math.log10(Math.max(...values.map(Math.abs), 1)));
    powers[scale] = Math.max(powers[scale] ?? 0, power);
  }
  return powers;
}

function optionsOf(target, times, series, form, powers) {
  const axis = {
    stroke: colour('quiet'),
    grid: { stroke: colour('line'), width: 1 },
    ticks: { stroke: colour('line'), size: 4 },
    font: '12px system-ui',
    size: 64,
  };
  const scales = [...new Set(series.map(({ scale }) => scale ?? 'y'))];
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
        // Where nothing is pointed at, the legend tells the latest values.
        value: (_plot, seconds) => formatTime((seconds ?? times.at(-1)) * 1_000, form),
      },
      ...series.map((one) => seriesOf(one)),
    ],
    axes: [
      {
        ...axis,
        size: 32,
        space: 76,
        ...(form === 'day' ? { incrs: DAYS_BETWEEN_MARKS } : {}),
        values: (_plot, marks, _index, _space, stepSeconds) => marks.map((at) => tick(at, stepSeconds)),
      },
      ...scales.map((scale, index) => ({
        ...axis,
        scale,
        side: index === 0 ? 3 : 1,
        grid: index === 0 ? axis.grid : { show: false },
        values: (_plot, marks) => marks.map((mark) => shownOf(series, scale)(mark * 10 ** powers[scale])),
      })),
    ],
  };
}

function shownOf(series, scale) {
  return series.find((one) => (one.scale ?? 'y') === scale)?.shown ?? rough;
}

function tick(seconds, stepSeconds) {
  const text = formatTime(seconds * 1_000, 'full');
  if (stepSeconds >= 86_400) return text.slice(5, 10);
  return stepSeconds >= 60 ? text.slice(11, 16) : text.slice(11);
}

/** A chart of one instant would have no width. */
function xRange(times, form) {
  const [first = 0, last = 0] = [times[0], times.at(-1)];
  const spare = Math.max((last - first) * 0.02, form === 'day' ? DAY_SECONDS / 2 : 1);
  return [first - spare, last + spare];
}

/** A bar is as long as it is from zero. */
function fromZero(_plot, least, most) {
  return least < 0 || most > 0 ? [Math.min(least * 1.05, 0), Math.max(most * 1.05, 0)] : [0, 1];
}

function seriesOf({ label, tone, scale = 'y', texts, bars = false }) {
  const stroke = colour(tone);
  return {
    label,
    scale,
    stroke,
    width: 2,
    ...(bars ? { fill: `color-mix(in srgb, ${stroke} 40%, transparent)`, width: 1 } : {}),
    points: { show: false },
    paths: bars ? uPlot.paths.bars({ size: [0.7, 40], align: 0 }) : uPlot.paths.stepped({ align: 1 }),
    value: (_plot, _value, _series, index) => texts[index ?? texts.length - 1] ?? '–',
  };
}
