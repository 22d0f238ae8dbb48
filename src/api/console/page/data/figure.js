// Draws lines and bars as a list of shapes, which become SVG on the page, an SVG file or
// a PNG. The shapes do not depend on where they are drawn, so a saved file has those of
// the page, with a caption below them.
import { svg } from '../common/dom.js';
import { rough } from '../common/format.js';

const HEIGHT = 260;
const LEFT = 64;
const RIGHT = 12;
const TOP = 12;
const BOTTOM = 30;
const TICKS = 4;
const MARK_WIDTH = 84;
const FONT = 12;
const FAMILY = 'system-ui, sans-serif';
const LABEL_GAP = 8;
const EDGE = 2;
const TITLE_HEIGHT = 24;
const CAPTION_LINE = 20;
const SAMPLE = 12;

/**
 * Returns the shapes of a chart.
 * @param labels the texts below the axis, in order
 * @param places the position of each label, from 0 to 1; used only for lines
 * @param series `{ name, tone, values, texts }`: numbers for the positions, and the exact
 *   texts that are shown
 * @param form `line`, `bars` or `stacked`
 */
export function shapesOf({ labels, places, series, form, width }) {
  const { least, most, step: tick } = scaleOf(...extremes(series, form));
  const inner = { width: width - LEFT - RIGHT, height: HEIGHT - TOP - BOTTOM };
  const y = (value) =>
    TOP + inner.height * (1 - (value - least) / (most - least || 1));
  const step = inner.width / labels.length;
  const centre = (index) =>
    form === 'line'
      ? LEFT + places[index] * inner.width
      : LEFT + (index + 0.5) * step;
  const drawn = form === 'line' ? lines : bars;
  return [
    ...ticks(least, most, tick).flatMap((value) =>
      gridLine(value, y(value), width),
    ),
    ...marks(labels, centre, width),
    ...drawn({ labels, series, form, y, step, centre }),
  ];
}

function extremes(series, form) {
  const sums = series[0].values.map((_, index) => {
    const values = series.map(({ values: all }) => all[index] ?? 0);
    const above = values.filter((value) => value > 0);
    const below = values.filter((value) => value < 0);
    const join = (some, pick) =>
      form === 'stacked'
        ? some.reduce((sum, value) => sum + value, 0)
        : pick(0, ...some);
    return [join(below, Math.min), join(above, Math.max)];
  });
  // The axis includes zero: the length of a bar is its distance from zero.
  const least = Math.min(0, ...sums.map(([low]) => low));
  const most = Math.max(0, ...sums.map(([, high]) => high));
  return least === 0 && most === 0 ? [0, 1] : [least, most];
}

/** Widens the axis to whole ticks, so that no bar extends beyond the last tick. */
function scaleOf(least, most) {
  const raw = (most - least) / TICKS;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((one) => one * power >= raw) * power;
  return {
    least: Math.floor(least / step) * step,
    most: Math.ceil(most / step) * step,
    step,
  };
}

function ticks(least, most, step) {
  const first = Math.round(least / step);
  const count = Math.round(most / step) - first + 1;
  return Array.from({ length: count }, (_, index) => (first + index) * step);
}

function gridLine(value, y, width) {
  return [
    {
      kind: 'line',
      tone: 'line',
      points: [
        [LEFT, y],
        [width - RIGHT, y],
      ],
    },
    { kind: 'text', x: LEFT - 6, y: y + 4, anchor: 'end', text: rough(value) },
  ];
}

/**
 * Draws only as many labels as fit side by side. A label that would extend beyond the
 * picture begins or ends at its edge.
 */
function marks(labels, centre, width) {
  let last = -Infinity;
  let end = -Infinity;
  return labels.flatMap((text, index) => {
    const x = centre(index);
    const { anchor, at, from, to } = within(x, sizeOf(text), width);
    if (x - last < MARK_WIDTH || from < end + LABEL_GAP) return [];
    last = x;
    end = to;
    return [{ kind: 'text', x: at, y: HEIGHT - 10, anchor, text }];
  });
}

let ruler;

/** Returns how wide a text is, in pixels. */
function sizeOf(text) {
  ruler ??= document.createElement('canvas').getContext('2d');
  ruler.font = `${FONT}px ${FAMILY}`;
  return ruler.measureText(text).width;
}

/** Returns where to draw a label of this width, and its left and right edges. */
function within(x, size, width) {
  if (x - size / 2 < EDGE)
    return { anchor: 'start', at: EDGE, from: EDGE, to: EDGE + size };
  const right = width - EDGE;
  if (x + size / 2 > right)
    return { anchor: 'end', at: right, from: right - size, to: right };
  return { anchor: 'middle', at: x, from: x - size / 2, to: x + size / 2 };
}

function lines({ labels, series, y, centre }) {
  return series.map(({ name, tone, values, texts }) => ({
    kind: 'line',
    tone,
    width: 2,
    title: `${name}: ${texts.at(-1) ?? '–'} at ${labels.at(-1)}`,
    points: values.flatMap((value, index) =>
      value === undefined ? [] : [[centre(index), y(value)]],
    ),
  }));
}

function bars({ labels, series, form, y, step, centre }) {
  const isStacked = form === 'stacked';
  const whole = Math.min(step * 0.8, 60);
  const width = isStacked ? whole : whole / series.length;
  return labels.flatMap((label, index) => {
    const ends = { above: 0, below: 0 };
    return series.flatMap(({ name, tone, values, texts }, at) => {
      const value = values[index];
      if (value === undefined || value === 0) return [];
      const side = value > 0 ? 'above' : 'below';
      const from = isStacked ? ends[side] : 0;
      ends[side] = from + value;
      const top = Math.min(y(from), y(from + value));
      return [
        {
          kind: 'bar',
          tone,
          x: centre(index) - whole / 2 + (isStacked ? 0 : at * width),
          y: top,
          width: Math.max(width - 1, 1),
          height: Math.max(Math.abs(y(from) - y(from + value)), 0.5),
          title: `${label} · ${name}: ${texts[index]}`,
        },
      ];
    });
  });
}

/**
 * Stacks charts vertically, each below its title, so that they are shown and saved as one
 * picture. A chart without a title takes up no extra room.
 * @param charts `{ title, shapes }`
 */
export function stackCharts(charts) {
  let top = 0;
  const shapes = charts.flatMap(({ title, shapes: own }) => {
    const from = top + (title ? TITLE_HEIGHT : 0);
    const heading = {
      kind: 'text',
      x: LEFT,
      y: from - 6,
      anchor: 'start',
      text: title,
    };
    top = from + HEIGHT;
    return [...(title ? [heading] : []), ...own.map((one) => moved(one, from))];
  });
  return { shapes, height: top };
}

/**
 * Adds below a picture what it needs without its page: what it shows, and what each
 * colour stands for.
 * @param legend `{ tone, text }` of each colour
 */
export function withCaption({ shapes, width, height, label, legend }) {
  const written = [{ text: label }, ...legend];
  const caption = written.flatMap(({ tone, text }, index) => {
    const y = height + (index + 1) * CAPTION_LINE;
    const words = {
      kind: 'text',
      x: tone === undefined ? LEFT : LEFT + SAMPLE + LABEL_GAP,
      y,
      anchor: 'start',
      text,
    };
    const sample = {
      kind: 'rect',
      tone,
      x: LEFT,
      y: y - SAMPLE + EDGE,
      width: SAMPLE,
      height: SAMPLE,
    };
    return tone === undefined ? [words] : [sample, words];
  });
  return {
    shapes: [...shapes, ...caption],
    width,
    height: height + written.length * CAPTION_LINE + LABEL_GAP,
    label,
  };
}

function moved(shape, down) {
  return shape.kind === 'line'
    ? { ...shape, points: shape.points.map(([x, y]) => [x, y + down]) }
    : { ...shape, y: shape.y + down };
}

/** Returns the shapes as an SVG element; `colourOf` turns a tone into a colour. */
export function toSvg(shapes, { width, height, label, colourOf }) {
  return svg(
    'svg',
    {
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      role: 'img',
      'aria-label': label,
      'font-family': FAMILY,
      'font-size': FONT,
    },
    ...shapes.map((shape) => element(shape, colourOf)),
  );
}

function element(shape, colourOf) {
  const title = shape.title && svg('title', shape.title);
  if (shape.kind === 'text')
    return svg(
      'text',
      {
        x: shape.x,
        y: shape.y,
        'text-anchor': shape.anchor,
        fill: colourOf('quiet'),
      },
      shape.text,
    );
  if (shape.kind === 'line')
    return svg(
      'polyline',
      {
        points: shape.points.map((point) => point.join(',')).join(' '),
        fill: 'none',
        stroke: colourOf(shape.tone),
        'stroke-width': shape.width ?? 1,
      },
      title,
    );
  const { x, y, width, height } = shape;
  return svg(
    'rect',
    { x, y, width, height, fill: colourOf(shape.tone) },
    title,
  );
}

/** Draws the shapes on a canvas, at twice the size so that it prints sharply. */
export function toCanvas(shapes, { width, height, colourOf }) {
  const canvas = document.createElement('canvas');
  canvas.width = width * 2;
  canvas.height = height * 2;
  const brush = canvas.getContext('2d');
  brush.scale(2, 2);
  brush.fillStyle = colourOf('card');
  brush.fillRect(0, 0, width, height);
  brush.font = `${FONT}px ${FAMILY}`;
  for (const shape of shapes) paint(brush, shape, colourOf);
  return canvas;
}

const ALIGNED = { start: 'left', end: 'right', middle: 'center' };

function paint(brush, shape, colourOf) {
  if (shape.kind === 'text') {
    brush.fillStyle = colourOf('quiet');
    brush.textAlign = ALIGNED[shape.anchor];
    brush.fillText(shape.text, shape.x, shape.y);
  } else if (shape.kind === 'line') {
    brush.strokeStyle = colourOf(shape.tone);
    brush.lineWidth = shape.width ?? 1;
    brush.beginPath();
    for (const [x, y] of shape.points) brush.lineTo(x, y);
    brush.stroke();
  } else {
    brush.fillStyle = colourOf(shape.tone);
    brush.fillRect(shape.x, shape.y, shape.width, shape.height);
  }
}
