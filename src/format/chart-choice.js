// @ts-check
/**
 * Chooses what a chart of a result draws: the axis and the figure. It needs nothing from
 * the server, so that a browser can load it too.
 */

/**
 * What the choice depends on in a column.
 * @typedef {object} ChartColumn
 * @property {string} name
 * @property {number} index the position of the column in each row
 * @property {'time' | 'text'} kind
 */

/** Matches the possible amounts of one row, such as `5 or 7` for a balance. */
export const ALTERNATIVES = /^-?\d+(?: or -?\d+)*$/;

/** Names of figures that an analyst wants to see first, before a count of entries. */
const MEANT = /quantity|paid|held|amount|balance|change|sent/i;

/** Names of times that describe what a row is about, such as its last entry. */
const ATTRIBUTE =
  /^(?:latest|earliest|newest|oldest|as_of)$|(?:^|_)(?:first|last|latest|min|max)(?:_|\()|(?:^|_)(?:since|until)$/i;

const TIME =
  /^(?<year>\d{4})-(?<month>\d\d)(?:-(?<day>\d\d)(?:[ T](?<hour>\d\d):(?<minute>\d\d)(?::(?<second>\d\d)(?:\.(?<fraction>\d{1,9}))?)?(?<zone>Z|[+-]\d\d(?::?\d\d(?::?\d\d)?)?)?)?)?$/;
const NANOS_PER_MS = 1_000_000n;
const NANOS_PER_SECOND = 1_000_000_000n;

/**
 * Returns nanoseconds since 1970, exactly. Reads each form that DuckDB and the API write:
 * a month, a day, or a time with up to nine digits after the second, with or without an
 * offset such as `+00`, `+05:30` or `Z`. A time without an offset is in UTC. Returns
 * undefined for any other text, including `infinity`.
 * @param {string} text
 * @returns {bigint | undefined}
 */
export function readInstant(text) {
  const found = TIME.exec(text)?.groups;
  if (found === undefined) return undefined;
  const {
    year,
    month,
    day = '01',
    hour = '00',
    minute = '00',
    second = '00',
    fraction = '',
    zone = 'Z',
  } = found;
  const date = `${year}-${month}-${day}`;
  const ms = Date.parse(`${date}T${hour}:${minute}:${second}Z`);
  // `Date.parse` turns the 30th of February into a day in March.
  if (Number.isNaN(ms) || !new Date(ms).toISOString().startsWith(date))
    return undefined;
  const nanos = BigInt(ms) * NANOS_PER_MS + BigInt(fraction.padEnd(9, '0'));
  return nanos - offsetSeconds(zone) * NANOS_PER_SECOND;
}

/**
 * @param {string} zone
 * @returns {bigint}
 */
function offsetSeconds(zone) {
  if (zone === 'Z') return 0n;
  const [hours = '0', minutes = '0', seconds = '0'] =
    zone.slice(1).match(/\d\d/g) ?? [];
  const size = BigInt(hours) * 3_600n + BigInt(minutes) * 60n + BigInt(seconds);
  return zone.startsWith('-') ? -size : size;
}

/**
 * Returns the name of the figure to draw first; undefined if there is none.
 * @param {readonly string[]} names
 * @returns {string | undefined}
 */
export function usualFigure(names) {
  return names.find((name) => MEANT.test(name)) ?? names[0];
}

/**
 * Returns the column for the axis: a time if each row is one moment of a series,
 * otherwise a name with several values. A time that only describes a row, as `latest`
 * describes a party, is chosen last.
 * @template {ChartColumn} Column
 * @param {readonly Column[]} columns
 * @param {readonly (readonly unknown[])[]} rows
 * @returns {Column | undefined}
 */
export function usualAxis(columns, rows) {
  const times = columns.filter(({ kind }) => kind === 'time');
  const names = columns.filter(({ kind }) => kind === 'text');
  /** @param {ChartColumn} column */
  const sizeOf = ({ index }) => new Set(rows.map((row) => row[index])).size;
  const series = times.find((time) => !isAttribute(time, names, rows));
  const telling = names.find((name) => sizeOf(name) > 1);
  return series ?? telling ?? times[0] ?? names[0];
}

/**
 * Whether a time only describes its row. It does if its name says so, or if some name
 * identifies every row and the rows are not in the order of the time.
 * @param {ChartColumn} time
 * @param {readonly ChartColumn[]} names
 * @param {readonly (readonly unknown[])[]} rows
 */
function isAttribute(time, names, rows) {
  if (names.length > 0 && ATTRIBUTE.test(time.name)) return true;
  const isIdentified = names.some(
    ({ index }) => new Set(rows.map((row) => row[index])).size === rows.length,
  );
  return rows.length > 1 && isIdentified && !isOrdered(time, rows);
}

/**
 * @param {ChartColumn} time
 * @param {readonly (readonly unknown[])[]} rows
 */
function isOrdered({ index }, rows) {
  const instants = rows
    .map((row) => readInstant(String(row[index])))
    .filter((instant) => instant !== undefined);
  const inOrder = (/** @type {1 | -1} */ sign) =>
    instants.every((instant, at) => {
      const before = instants[at - 1];
      if (before === undefined) return true;
      return sign === 1 ? before <= instant : before >= instant;
    });
  return inOrder(1) || inOrder(-1);
}
