/**
 * Reads the export's times (`2023-05-01 10:00:00.123456+00`, Postgres's timestamptz text) to the second: borders are
 * whole seconds, and those fit a double exactly.
 */
const TIME =
  /^(\d{4}-\d\d-\d\d)[ T]([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.\d{1,9})?(?:Z|([+-])(0\d|1[0-8])(?::?([0-5]\d)(?::?([0-5]\d))?)?)$/;

export class VegaTimeReader {
  /** The second the last time read lies in, counted from 1970. */
  second = 0;
  /** Its offset from UTC in seconds, as it was written. */
  zoneSeconds = 0;
  /** The text last read, and its day: entries of one block share the first, those of a day the second. */
  #text = '';
  #day = '';
  #daySecond = 0;

  /** @returns false where `buffer[start, end)` is not such a time */
  read(buffer: Buffer, start: number, end: number): boolean {
    const text = buffer.toString('latin1', start, end);
    if (text === this.#text) return text !== '';
    const match = TIME.exec(text);
    if (match === null) return false;
    const [, day = '', hour, minute, second, sign, ...zone] = match;
    if (day !== this.#day) {
      const midnight = new Date(`${day}T00:00:00Z`);
      // A day that its month lacks becomes one of the next month.
      if (Number.isNaN(midnight.getTime()) || !midnight.toISOString().startsWith(day)) return false;
      this.#day = day;
      this.#daySecond = midnight.getTime() / 1000;
    }
    this.zoneSeconds = secondsOf(...zone) * (sign === '-' ? -1 : 1);
    this.second = this.#daySecond + secondsOf(hour, minute, second) - this.zoneSeconds;
    this.#text = text;
    return true;
  }
}

function secondsOf(hours = '0', minutes = '0', seconds = '0'): number {
  return Number(hours) * 3600 + Number(minutes) * 60 + Number(seconds);
}

/** How an offset is written in a row form: `+00`, `+05:30`. */
export function formatZone(zoneSeconds: number): string {
  const absolute = Math.abs(zoneSeconds);
  const parts = [Math.floor(absolute / 3600), Math.floor(absolute / 60) % 60, absolute % 60];
  while (parts.length > 1 && parts.at(-1) === 0) parts.pop();
  return (zoneSeconds < 0 ? '-' : '+') + parts.map((part) => String(part).padStart(2, '0')).join(':');
}
