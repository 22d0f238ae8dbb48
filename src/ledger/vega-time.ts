/**
 * Reads the export's times (`2023-05-01 10:00:00.123456+00`, Postgres's timestamptz text) at the speed
 * of the stream, to the second: borders are whole seconds, and those fit a double exactly.
 */
const ZERO = 0x30;
const [SPACE, LETTER_T, DASH, COLON, DOT, PLUS, LETTER_Z] = [0x20, 0x54, 0x2d, 0x3a, 0x2e, 0x2b, 0x5a];
const FRACTION_DIGITS_MAX = 9;
const TEXT_CHARACTERS_MIN = '2023-05-01 10:00:00Z'.length;

export class VegaTimeReader {
  /** The second the last time read lies in, counted from 1970. */
  second = 0;
  /** Its offset from UTC in seconds, as it was written. */
  zoneSeconds = 0;
  #dayCode = -1;
  #daySecond = 0;

  /** @returns false where `buffer[start, end)` is not such a time */
  read(buffer: Buffer, start: number, end: number): boolean {
    if (end - start < TEXT_CHARACTERS_MIN) return false;
    const daySecond = this.#day(buffer, start);
    const separator = buffer[start + 10];
    if (Number.isNaN(daySecond) || (separator !== SPACE && separator !== LETTER_T)) return false;
    const hour = digits2(buffer, start + 11);
    const minute = digits2(buffer, start + 14);
    const second = digits2(buffer, start + 17);
    if (buffer[start + 13] !== COLON || buffer[start + 16] !== COLON) return false;
    if (!(hour < 24 && minute < 60 && second < 60)) return false;
    let position = start + 19;
    if (buffer[position] === DOT) {
      const first = position + 1;
      position = first;
      while (position < end && isDigit(buffer[position])) position += 1;
      const digits = position - first;
      if (digits === 0 || digits > FRACTION_DIGITS_MAX) return false;
    }
    const zone = zoneSeconds(buffer, position, end);
    if (Number.isNaN(zone)) return false;
    this.zoneSeconds = zone;
    this.second = daySecond + hour * 3600 + minute * 60 + second - zone;
    return true;
  }

  /** The day's first second; days repeat from row to row, so the last one is kept. */
  #day(buffer: Buffer, start: number): number {
    const year = digits2(buffer, start) * 100 + digits2(buffer, start + 2);
    const month = digits2(buffer, start + 5);
    const day = digits2(buffer, start + 8);
    if (buffer[start + 4] !== DASH || buffer[start + 7] !== DASH) return Number.NaN;
    const code = year * 10_000 + month * 100 + day;
    if (code !== this.#dayCode) {
      const date = new Date(Date.UTC(year, month - 1, day));
      if (!(year >= 100) || date.getUTCMonth() !== month - 1 || date.getUTCDate() !== day) return Number.NaN;
      this.#dayCode = code;
      this.#daySecond = date.getTime() / 1000;
    }
    return this.#daySecond;
  }
}

/** `+00`, `-0530`, `+05:30`, `+05:30:15` or `Z`, up to the end; NaN where it is none of these. */
function zoneSeconds(buffer: Buffer, start: number, end: number): number {
  const sign = buffer[start];
  if (sign === LETTER_Z) return end === start + 1 ? 0 : Number.NaN;
  if (sign !== PLUS && sign !== DASH) return Number.NaN;
  let seconds = 0;
  let position = start + 1;
  for (const [unit, below] of ZONE_UNITS) {
    const value = digits2(buffer, position);
    if (!(value < below) || position + 2 > end) return Number.NaN;
    seconds += value * unit;
    position += 2;
    if (position === end) return sign === DASH ? -seconds : seconds;
    if (buffer[position] === COLON) position += 1;
  }
  return Number.NaN;
}

/** Seconds in each part of an offset, and what the part stays below (offsets reach ±18 h at most). */
const ZONE_UNITS: readonly (readonly [number, number])[] = [
  [3600, 19],
  [60, 60],
  [1, 60],
];

/** How an offset is written in a row form: `+00`, `+05:30`. */
export function formatZone(zoneSeconds: number): string {
  const absolute = Math.abs(zoneSeconds);
  const parts = [Math.floor(absolute / 3600), Math.floor(absolute / 60) % 60, absolute % 60];
  while (parts.length > 1 && parts.at(-1) === 0) parts.pop();
  return (zoneSeconds < 0 ? '-' : '+') + parts.map((part) => String(part).padStart(2, '0')).join(':');
}

function isDigit(byte: number | undefined): boolean {
  return byte !== undefined && byte >= ZERO && byte <= ZERO + 9;
}

/** Two digits as a number; NaN where they are not digits. */
function digits2(buffer: Buffer, position: number): number {
  const tens = (buffer[position] ?? 0) - ZERO;
  const ones = (buffer[position + 1] ?? 0) - ZERO;
  return tens >= 0 && tens <= 9 && ones >= 0 && ones <= 9 ? tens * 10 + ones : Number.NaN;
}
