// Formats numbers and names for readers. Counts are decimal text of any length.

const THIN = '\u202F';
const GROUP = ',';
const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

export function count(digits) {
  return String(digits).replaceAll(/\B(?=(\d{3})+$)/g, GROUP);
}

/** Groups the whole part of an amount, which may have decimals or be no number at all. */
export function grouped(text) {
  return text.replace(/^-?\d+/, count);
}

/** Formats a size as the command line does: `8.3 MiB`, truncated and never rounded up. */
export function bytes(digits) {
  const whole = BigInt(digits);
  let unit = 0;
  let size = 1n;
  while (unit < UNITS.length - 1 && whole >= size * 1_024n) {
    size *= 1_024n;
    unit += 1;
  }
  const tenths = (whole * 10n) / size;
  return `${count(tenths / 10n)}${unit === 0 ? '' : `.${tenths % 10n}`} ${UNITS[unit]}`;
}

/**
 * Shortens an id to its beginning and end, which are enough to distinguish ids. Callers
 * put the whole id into the element's title.
 */
export function shortId(id) {
  return id.length > 20 ? `${id.slice(0, 8)}…${id.slice(-4)}` : id;
}

export function plural(amount, one, many = `${one}s`) {
  return `${count(amount)} ${String(amount) === '1' ? one : many}`;
}

/**
 * Formats a duration as the command line does: the two largest units, or tenths of a
 * second below ten seconds; truncated and never rounded up.
 */
export function duration(ms) {
  if (ms < SECOND_MS) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 10 * SECOND_MS) return `${(Math.floor(ms / 100) / 10).toFixed(1)} s`;
  if (ms < MINUTE_MS) return `${Math.floor(ms / SECOND_MS)} s`;
  if (ms < HOUR_MS) return two(ms, [MINUTE_MS, 'min'], [SECOND_MS, 's']);
  if (ms < DAY_MS) return two(ms, [HOUR_MS, 'h'], [MINUTE_MS, 'min']);
  return two(ms, [DAY_MS, 'd'], [HOUR_MS, 'h']);
}

function two(ms, [largeMs, large], [smallMs, small]) {
  const rest = Math.floor((ms % largeMs) / smallMs);
  const first = `${Math.floor(ms / largeMs)} ${large}`;
  return rest === 0 ? first : `${first} ${rest} ${small}`;
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
