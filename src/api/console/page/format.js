// Numbers and names as people read them. Counts are decimal text of any length.

const THIN = '\u202F';
const UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];

export function count(digits) {
  return String(digits).replaceAll(/\B(?=(\d{3})+$)/g, THIN);
}

/** Three digits that matter: `8.33 MB`. */
export function bytes(digits) {
  let value = Number(digits);
  let unit = 0;
  while (value >= 999.5 && unit < UNITS.length - 1) {
    value /= 1_000;
    unit += 1;
  }
  const places = unit === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return `${value.toFixed(places)}${THIN}${UNITS[unit]}`;
}

/** Beginning and end tell ids apart; the whole lies in the title. */
export function shortId(id) {
  return id.length > 20 ? `${id.slice(0, 8)}…${id.slice(-4)}` : id;
}

export function plural(amount, one, many = `${one}s`) {
  return `${count(amount)} ${String(amount) === '1' ? one : many}`;
}

export function duration(ms) {
  const seconds = Math.max(Math.round(ms / 1_000), 0);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${String(seconds % 60).padStart(2, '0')} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, '0')} min`;
  return `${Math.floor(hours / 24)} days`;
}

/** For the axis of a chart: exactness is in the legend. */
export function rough(value) {
  if (value === 0) return '0';
  const size = Math.floor(Math.log10(Math.abs(value)) / 3);
  if (size < 1) return String(Number(value.toPrecision(3)));
  if (size > 4) return value.toExponential(1).replace('e+', 'e');
  return `${Number((value / 1_000 ** size).toPrecision(3))}${THIN}${['', 'k', 'M', 'G', 'T'][size]}`;
}

const KINDS = { nightly: 'night' };
export function kindName(kind) {
  return KINDS[kind] ?? kind;
}
