/**
 * Formats values and tables for people. Counts are shown with all their digits, never
 * rounded.
 */
/** Created on first use, because creating it loads Node's locale data. */
let grouped: Intl.NumberFormat | undefined;
const BYTE_UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
const SECOND_MS = 1000;
const SECOND = ['s', SECOND_MS] as const;
const TIME_UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['min', 60_000],
  SECOND,
] as const;

/**
 * A whole number, as a number or a decimal string; the fraction of a `number` is dropped.
 */
export type Count = bigint | number | string;

function wholeOf(count: Count): bigint {
  return BigInt(typeof count === 'number' ? Math.trunc(count) : count);
}

/** Groups the digits of a count: `1234567n` → `1,234,567`. */
export function formatCount(count: Count): string {
  grouped ??= new Intl.NumberFormat('en-US');
  return grouped.format(wholeOf(count));
}

/** Formats bytes in the largest unit that fits: `1536n` → `1.5 KiB`. */
export function formatBytes(bytes: Count): string {
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
 * seconds: `3_725_000` → `1 h 2 min`.
 */
export function formatDuration(durationMs: number): string {
  if (durationMs < SECOND_MS)
    return `${Math.max(0, Math.round(durationMs))} ms`;
  if (durationMs < 10 * SECOND_MS)
    return `${(Math.floor(durationMs / 100) / 10).toFixed(1)} s`;
  const largest = TIME_UNITS.findIndex(([, ms]) => durationMs >= ms);
  const [[unit, ms] = SECOND, [smaller, smallerMs] = SECOND] =
    TIME_UNITS.slice(largest);
  const first = `${Math.floor(durationMs / ms)} ${unit}`;
  const rest = Math.floor((durationMs % ms) / smallerMs);
  return rest === 0 ? first : `${first} ${rest} ${smaller}`;
}

/**
 * Formats how long before `nowMs` an instant was: `3 min 5 s ago`, `just now`, or `in 2
 * h`.
 */
export function formatAge(instantMs: number, nowMs: number): string {
  const ageMs = nowMs - instantMs;
  if (Math.abs(ageMs) < SECOND_MS) return 'just now';
  return ageMs > 0
    ? `${formatDuration(ageMs)} ago`
    : `in ${formatDuration(-ageMs)}`;
}

/** Formats a quantity with its unit: bytes are scaled, everything else is counted. */
export function formatQuantity(quantity: Count, unit: string): string {
  return unit === 'bytes'
    ? formatBytes(quantity)
    : `${formatCount(quantity)} ${unit}`;
}

/** Formats how much of a total is done: `103 of 134 parties`. */
export function formatShare(
  done: Count,
  total: Count,
  unit: string,
  between = ' of ',
): string {
  return `${unit === 'bytes' ? formatBytes(done) : formatCount(done)}${between}${formatQuantity(total, unit)}`;
}

/**
 * Makes untrusted text safe for a terminal: it replaces control characters, so that no
 * value can move the cursor, hide a line or ring the bell.
 */
export function printable(text: string): string {
  return text.replaceAll(
    // oxlint-disable-next-line no-control-regex -- this function replaces control characters
    /[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g,
    '·',
  );
}

/** Truncates a string to at most `characters` characters, including an ellipsis. */
export function truncate(text: string, characters: number): string {
  if (text.length <= characters) return text;
  return characters <= 1
    ? '…'.slice(0, characters)
    : `${text.slice(0, characters - 1)}…`;
}

type Cell = string | number | bigint | boolean | null | undefined;

/**
 * Formats a table for terminals.
 * @param header names of the columns
 * @param rows cells in the order of the header; columns with only numbers are
 *   right-aligned
 * @returns lines, each with a trailing line break
 */
export function formatTable(
  header: readonly string[],
  rows: readonly (readonly Cell[])[],
): string {
  const columns = header.map((name, column) => {
    const cells = rows.map((row) => row[column]);
    const texts = [name, ...cells.map(cellText)];
    const width = Math.max(...texts.map((text) => text.length));
    const isRight = isNumeric(cells);
    const [first, ...others] = texts.map((text) =>
      isRight ? text.padStart(width) : text.padEnd(width),
    );
    return [first, '─'.repeat(width), ...others];
  });
  const lines = ['', '', ...rows].map((_, line) =>
    columns.map((column) => column[line]).join('  '),
  );
  return lines.map((line) => `${line.trimEnd()}\n`).join('');
}

function cellText(cell: Cell): string {
  if (cell === null || cell === undefined) return '–';
  if (typeof cell === 'bigint') return formatCount(cell);
  if (typeof cell === 'number')
    return Number.isInteger(cell) ? formatCount(cell) : String(cell);
  if (typeof cell === 'boolean') return cell ? 'yes' : 'no';
  return printable(cell);
}

function isNumeric(cells: readonly Cell[]): boolean {
  const given = cells.filter((cell) => cell !== null && cell !== undefined);
  const isNumber = (cell: Cell) =>
    typeof cell !== 'boolean' && /^-?[\d,]+(?:\.\d+)?$/.test(String(cell));
  return given.length > 0 && given.every(isNumber);
}
