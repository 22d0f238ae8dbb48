// @ts-check
/**
 * The one format for counts, sizes, durations and times, on the command line, in
 * sentences and in the console. Whole numbers keep all their digits: nothing here
 * converts one to a JavaScript number.
 *
 * It is JavaScript, with its types in comments, because the browser loads this very file:
 * the console has no build step.
 */

/**
 * A whole number, as a number or as decimal text; the fraction of a `number` is dropped.
 * @typedef {bigint | number | string} Count
 */

const GROUP = ',';
const SECOND_MS = 1000;
const BYTE_UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
/** @type {readonly (readonly [name: string, ms: number])[]} */
const TIME_UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['min', 60_000],
  ['s', SECOND_MS],
];

/**
 * @param {Count} count
 * @returns {bigint}
 */
function wholeOf(count) {
  return BigInt(typeof count === 'number' ? Math.trunc(count) : count);
}

/**
 * Groups the digits of a count: `1234567n` → `1,234,567`.
 * @param {Count} count
 * @returns {string}
 */
export function formatCount(count) {
  return groupDigits(String(wholeOf(count)));
}

/**
 * Groups the digits before the decimal point: `-1234.5678` → `-1,234.5678`. Text that
 * does not begin with a number stays as it is.
 * @param {string} text
 * @returns {string}
 */
export function groupDigits(text) {
  return text.replace(/^-?\d+/, (digits) =>
    digits.replaceAll(/\B(?=(?:\d{3})+$)/g, GROUP),
  );
}

/**
 * Formats a count and its noun: `1 segment`, `20,224 rows`.
 * @param {Count} count
 * @param {string} one
 * @param {string} many
 * @returns {string}
 */
export function formatPlural(count, one, many = `${one}s`) {
  return `${formatCount(count)} ${wholeOf(count) === 1n ? one : many}`;
}

const THIN = '\u202F';
const SI_PREFIXES = ['', 'k', 'M', 'G', 'T', 'P', 'E', 'Z', 'Y'];
const SUPERSCRIPTS = '⁰¹²³⁴⁵⁶⁷⁸⁹';

/**
 * Rounds a figure to three digits, for places that have no room for all digits, such as
 * an axis: `1234567` → `1.23 M`. The prefixes are those of the SI. A figure too large for
 * them, or far below one, is written with a power of ten, as in `2 × 10³³`. The space is
 * narrow and does not break.
 * @param {number} value
 * @returns {string}
 */
export function formatRough(value) {
  // Rounding comes first: it can turn 999,999 into the next prefix.
  const rounded = Number(value.toPrecision(3));
  if (rounded === 0 || !Number.isFinite(value)) return String(rounded);
  const power = powerOf(rounded);
  const size = Math.floor(power / 3);
  const prefix = SI_PREFIXES[size];
  if (prefix === '') return String(rounded);
  if (prefix !== undefined)
    return `${shift(rounded, 3 * size)}${THIN}${prefix}`;
  if (power < 0 && power >= -3) return String(rounded);
  return `${shift(rounded, power)}${THIN}×${THIN}10${superscript(power)}`;
}

/**
 * Returns the power of ten of a figure. The logarithm of a power of ten may be a little
 * too small, so the decimal form decides.
 * @param {number} value
 * @returns {number}
 */
function powerOf(value) {
  return Number(value.toExponential().split('e')[1]);
}

/**
 * Divides a figure of three digits by a power of ten, without a rounding error.
 * @param {number} value
 * @param {number} power
 * @returns {number}
 */
function shift(value, power) {
  const [digits, ten] = value.toExponential().split('e');
  return Number(`${digits}e${Number(ten) - power}`);
}

/**
 * @param {number} power
 * @returns {string}
 */
function superscript(power) {
  const digits = String(Math.abs(power)).replaceAll(
    /\d/g,
    (digit) => SUPERSCRIPTS[Number(digit)] ?? '',
  );
  return power < 0 ? `⁻${digits}` : digits;
}

/**
 * Formats bytes in the largest unit that fits, truncated and never rounded up: `1536n` →
 * `1.5 KiB`.
 * @param {Count} bytes
 * @returns {string}
 */
export function formatBytes(bytes) {
  const whole = wholeOf(bytes);
  // Each unit is 2^10 times the previous one, so ten more bits mean the next unit.
  const unit = Math.min(
    Math.floor((whole.toString(2).length - 1) / 10),
    BYTE_UNITS.length - 1,
  );
  const tenths = (whole * 10n) >> BigInt(10 * unit);
  const fraction = unit === 0 ? '' : `.${tenths % 10n}`;
  return `${formatCount(tenths / 10n)}${fraction} ${BYTE_UNITS[unit] ?? ''}`;
}

/**
 * Formats a duration in its two largest units, or in tenths of a second below ten
 * seconds, truncated and never rounded up: `3_725_000` → `1 h 2 min`.
 * @param {number} durationMs
 * @returns {string}
 */
export function formatDuration(durationMs) {
  if (durationMs < SECOND_MS)
    return `${Math.max(0, Math.round(durationMs))} ms`;
  if (durationMs < 10 * SECOND_MS)
    return `${(Math.floor(durationMs / 100) / 10).toFixed(1)} s`;
  const largest = TIME_UNITS.findIndex(([, ms]) => durationMs >= ms);
  const [unit, ms] = TIME_UNITS[largest] ?? ['s', SECOND_MS];
  const first = `${formatCount(Math.floor(durationMs / ms))} ${unit}`;
  const smaller = TIME_UNITS[largest + 1];
  if (smaller === undefined) return first;
  const rest = Math.floor((durationMs % ms) / smaller[1]);
  return rest === 0 ? first : `${first} ${rest} ${smaller[0]}`;
}

/**
 * Formats how long before `nowMs` an instant was: `3 min 5 s ago`, `just now`, or `in 2
 * h`.
 * @param {number} instantMs
 * @param {number} nowMs
 * @returns {string}
 */
export function formatAge(instantMs, nowMs) {
  const ageMs = nowMs - instantMs;
  if (Math.abs(ageMs) < SECOND_MS) return 'just now';
  return ageMs > 0
    ? `${formatDuration(ageMs)} ago`
    : `in ${formatDuration(-ageMs)}`;
}

/** The characters of RFC 3339 that each form of a time keeps. */
const TIME_CHARACTERS = { day: 10, minute: 16, second: 19 };

/**
 * Formats an instant without its time zone, for a column whose heading names the zone:
 * `2026-03-01 12:00:00`.
 * @param {string} instant RFC 3339 in UTC
 * @param {'day' | 'minute' | 'second'} form
 * @returns {string}
 */
export function formatTime(instant, form = 'second') {
  return instant.slice(0, TIME_CHARACTERS[form]).replace('T', ' ');
}

/**
 * Formats an instant within a sentence: `2026-03-01 12:00 UTC`.
 * @param {string} instant RFC 3339 in UTC
 * @param {'minute' | 'second'} form
 * @returns {string}
 */
export function formatTimeUtc(instant, form = 'second') {
  return `${formatTime(instant, form)} UTC`;
}

/**
 * Formats a quantity with its unit: bytes are scaled, everything else is counted.
 * @param {Count} quantity
 * @param {string} unit
 * @returns {string}
 */
export function formatQuantity(quantity, unit) {
  return unit === 'bytes'
    ? formatBytes(quantity)
    : `${formatCount(quantity)} ${unit}`;
}

/**
 * Formats how much of a total is done: `103 of 134 parties`.
 * @param {Count} done
 * @param {Count} total
 * @param {string} unit
 * @param {string} between
 * @returns {string}
 */
export function formatShare(done, total, unit, between = ' of ') {
  const first = unit === 'bytes' ? formatBytes(done) : formatCount(done);
  return `${first}${between}${formatQuantity(total, unit)}`;
}
