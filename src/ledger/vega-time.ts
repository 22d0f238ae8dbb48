/**
 * Reads the export's times (`2023-05-01 10:00:00.123456+00`, Postgres's timestamptz text)
 * at the speed of the stream, to the second: borders are whole seconds, and those fit a
 * double exactly.
 */
const TIME =
  /^(?!00)\d{4}-\d\d-\d\d[ T](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-](?:0\d|1[0-8])(?::?[0-5]\d){0,2})$/;
const ZONE = /[Z+-][\d:]*$/;
const ZERO = 0x30;

export class VegaTimeReader {
  /** The second the last time read lies in, counted from 1970. */
  second = 0;
  /** Its offset from UTC in seconds, as it was written. */
  zoneSeconds = 0;
  /** Days and offsets repeat from row to row, so the last ones are kept. */
  #day = '';
  #daySecond = 0;
  #zone = 'Z';

  /** @returns false where `text` is not such a time */
  read(text: string): boolean {
    if (!TIME.test(text)) return false;
    const day = text.slice(0, 10);
    if (day !== this.#day) {
      const date = new Date(`${day}T00:00:00Z`);
      // A day that its month lacks becomes one of the next month.
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
}

function digits2(text: string, at: number): number {
  return (text.charCodeAt(at) - ZERO) * 10 + text.charCodeAt(at + 1) - ZERO;
}

/** `+00`, `-0530`, `+05:30`, `+05:30:15` or `Z`. */
function secondsOfZone(zone: string): number {
  const digits = zone.replaceAll(/\D/g, '');
  const [hours, minutes, seconds] = [0, 2, 4].map((at) =>
    Number(digits.slice(at, at + 2)),
  );
  const absolute = (hours ?? 0) * 3600 + (minutes ?? 0) * 60 + (seconds ?? 0);
  return zone.startsWith('-') ? -absolute : absolute;
}

/** How an offset is written in a row form: `+00`, `+05:30`. */
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
