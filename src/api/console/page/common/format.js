// Formats names for readers. Counts, sizes and durations are formatted as on the command
// line: the server serves src/format/ as `shared/`.
export {
  formatBytes as bytes,
  formatCount as count,
  formatDuration as duration,
  formatPlural as plural,
  groupDigits as grouped,
} from '../shared/format.js';

const THIN = '\u202F';

/**
 * Shortens an id to its beginning and end, which are enough to distinguish ids. Callers
 * put the whole id into the element's title.
 */
export function shortId(id) {
  return id.length > 20 ? `${id.slice(0, 8)}…${id.slice(-4)}` : id;
}

/** Rounds a number for the axis of a chart; the legend shows exact numbers. */
export function rough(value) {
  if (value === 0) return '0';
  const size = Math.floor(Math.log10(Math.abs(value)) / 3);
  if (size < 1) return String(Number(value.toPrecision(3)));
  if (size > 4) return value.toExponential(1).replace('e+', 'e');
  return `${Number((value / 1_000 ** size).toPrecision(3))}${THIN}${['', 'k', 'M', 'G', 'T'][size]}`;
}

/** Turns names such as `MARGIN_LOW` and `newRows` into words. */
export function words(name) {
  return name
    .replaceAll('_', ' ')
    .replaceAll(/([a-z0-9])([A-Z])/g, '$1 $2')
    .toLowerCase();
}

export function kindName(kind) {
  return kind === 'nightly' ? 'nightly run' : kind;
}
