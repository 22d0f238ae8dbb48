/**
 * Reads the export's times (`2023-05-01 10:00:00.123456+00`, the text format of
 * Postgres's timestamptz) fast enough to keep up with the stream. Results are whole
 * seconds, because the bounds of ranges are whole seconds too, and a double represents
 * them exactly.
 */
const TIME =
  /^(?!00)\d{4}-\d\d-\d\d[ T](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-](?:0\d|1[0-8])(?::?[0-5]\d){0,2})$/;
const ZONE = /[Z+-][\d:]*$/;
const ZERO = 0x30;
const SPACE = 0x20;
const LETTER_T = 0x54;
const COLON = 0x3a;
const POINT = 0x2e;
/** The length of `2023-05-01 10:00:00`. */
const TO_SECOND = 19;
const FRACTION_DIGITS_MAX = 9;

export class VegaTimeReader {
  /** The last time that was read, in seconds since 1970. */
  second = 0;
  /** The time's offset from UTC in seconds, as it was written. */
  zoneSeconds = 0;
  /** Days and offsets repeat from row to row, so the last ones are cached. */
  #day = '';
  #daySecond = 0;
  #zone = 'Z';

  /**
   * Reads a time.
   * @returns false if `text` is not a time in this format
   */
  read(text: string): boolean {
    if (!TIME.test(text)) return false;
    const day = text.slice(0, 10);
    if (day !== this.#day) {
      const date = new Date(`${day}T00:00:00Z`);
      // `Date` turns a day that does not exist in its month into a day of the next month.
      if (date.getUTCDate() !== Number(day.slice(8))) return false;
      this.#day = day;
      this.#daySecond = date.getTime() / 1000;
    }
    if (!text.endsWith(this.#zone)) {
      this.#zone = ZONE.exec(text)?.[0] ?? '';
      this.zoneSeconds = secondsOfZone(this.#zone);
    }
    const seconds =
      digits2(text, 11) * 3600 + digits2(text, 14) * 60 + digits2(text, 17);
    this.second = this.#daySecond + seconds - this.zoneSeconds;
    return true;
  }

  /**
   * Reads a time from its bytes if its day and zone are the same as the last one's.
   * @returns the position after the time, or -1 if the time must be read with `read`
   */
  readAgain(block: DataView, from: number, end: number): number {
    const day = this.#day;
    const zone = this.#zone;
    const fractionAt = from + TO_SECOND;
    if (day === '' || fractionAt + zone.length > end) return -1;
    if (!isText(day, block, from)) return -1;
    const parting = block.getUint8(from + day.length);
    if (parting !== SPACE && parting !== LETTER_T) return -1;
    if (
      block.getUint8(from + 13) !== COLON ||
      block.getUint8(from + 16) !== COLON
    )
      return -1;
    const hours = byteDigits2(block, from + 11, 24);
    const minutes = byteDigits2(block, from + 14, 60);
    const seconds = byteDigits2(block, from + 17, 60);
    if (hours === -1 || minutes === -1 || seconds === -1) return -1;
    const zoneAt = fractionEnd(block, fractionAt, end);
    if (zoneAt === -1 || zoneAt + zone.length > end) return -1;
    if (!isText(zone, block, zoneAt)) return -1;
    this.second =
      this.#daySecond +
      hours * 3600 +
      minutes * 60 +
      seconds -
      this.zoneSeconds;
    return zoneAt + zone.length;
  }
}

function isText(text: string, block: DataView, from: number): boolean {
  for (let at = 0; at < text.length; at += 1)
    if (text.charCodeAt(at) !== block.getUint8(from + at)) return false;
  return true;
}

/**
 * Parses two digits.
 * @returns their value, or -1 if they are not digits or not below `limit`
 */
function byteDigits2(block: DataView, at: number, limit: number): number {
  const tens = block.getUint8(at) - ZERO;
  const ones = block.getUint8(at + 1) - ZERO;
  if (tens < 0 || tens > 9 || ones < 0 || ones > 9) return -1;
  const value = tens * 10 + ones;
  return value < limit ? value : -1;
}

/**
 * Skips a fraction of one to nine digits, if there is one.
 * @returns the position after it, or -1 if it is malformed
 */
function fractionEnd(block: DataView, from: number, end: number): number {
  if (block.getUint8(from) !== POINT) return from;
  let at = from + 1;
  while (at < end) {
    const digit = block.getUint8(at) - ZERO;
    if (digit < 0 || digit > 9) break;
    at += 1;
  }
  const digits = at - from - 1;
  return digits === 0 || digits > FRACTION_DIGITS_MAX ? -1 : at;
}

function digits2(text: string, at: number): number {
  return (text.charCodeAt(at) - ZERO) * 10 + text.charCodeAt(at + 1) - ZERO;
}

/** Parses an offset: `+00`, `-0530`, `+05:30`, `+05:30:15` or `Z`. */
function secondsOfZone(zone: string): number {
  const digits = zone.replaceAll(/\D/g, '');
  const [hours, minutes, seconds] = [0, 2, 4].map((at) =>
    Number(digits.slice(at, at + 2)),
  );
  const absolute = (hours ?? 0) * 3600 + (minutes ?? 0) * 60 + (seconds ?? 0);
  return zone.startsWith('-') ? -absolute : absolute;
}

/** Formats an offset as used in row forms: `+00`, `+05:30`. */
export function formatZone(zoneSeconds: number): string {
  const absolute = Math.abs(zoneSeconds);
  const parts = [
    Math.floor(absolute / 3600),
    Math.floor(absolute / 60) % 60,
    absolute % 60,
  ];
  while (parts.length > 1 && parts.at(-1) === 0) parts.pop();
  return (
    (zoneSeconds < 0 ? '-' : '+') +
    parts.map((part) => String(part).padStart(2, '0')).join(':')
  );
}
