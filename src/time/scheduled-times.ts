/**
 * Computes when a schedule fires. The queue, the check for missed runs and every view use
 * these functions, so that they agree even across daylight saving changes.
 *
 * A schedule names local times of day. On the day the clocks go forward, a time that does
 * not exist is moved later by the amount of the change. On the day they go back, a time
 * that occurs twice counts once, at its first occurrence. So on each local day that the
 * pattern matches, each of its times occurs exactly once. A pattern that names every hour
 * means instants instead: it fires in both of the repeated hours, and skips times that do
 * not exist.
 */
import { type CronPattern, parseCron } from './cron.ts';

export interface Schedule {
  /** A cron pattern; see cron.ts. */
  readonly pattern: string;
  /** The IANA time zone of the pattern's times. */
  readonly tz: string;
}

/** The schedules of a mirror: `SCHEDULE` and `AUDIT_SCHEDULE`, both in `SCHEDULE_TZ`. */
export interface Schedules {
  readonly nightly: Schedule;
  readonly audit: Schedule;
}

const DAY_MS = 86_400_000;
/**
 * The step at which offsets are looked up. Since 2012, every zone has changed its offset
 * on a quarter-hour boundary of UTC.
 */
const OFFSET_STEP_MS = 900_000;
/**
 * How many days to search for a scheduled time: more than the longest gap between two
 * leap days (1896 to 1904, or 2096 to 2104).
 */
const DAYS_MAX = 9 * 366;
const OFFSETS_CACHED_MAX = 10_000;
const ZONES_CACHED_MAX = 16;

/**
 * Returns the first scheduled time after an instant.
 * @param afterMs in milliseconds since 1970, like the result
 * @throws RangeError if the pattern or the time zone is invalid
 */
export function nextScheduledMs(
  { pattern, tz }: Schedule,
  afterMs: number,
): number {
  const cron = readPattern(pattern);
  const zone = Zone.of(tz);

  // Start a day early, because one of yesterday's times may have been moved past
  // midnight.
  const today = localMidnight(zone, afterMs);
  for (let days = -1; days < DAYS_MAX; days += 1) {
    const times = timesOn(cron, zone, today + days * DAY_MS);
    const next = times.find((timeMs) => timeMs > afterMs);
    if (next !== undefined) return next;
  }
  throw new RangeError(`no time of ${pattern} within ${DAYS_MAX} days`);
}

/**
 * Returns the last scheduled time at or before an instant.
 * @throws as nextScheduledMs
 */
export function lastScheduledMs(
  { pattern, tz }: Schedule,
  nowMs: number,
): number {
  const cron = readPattern(pattern);
  const zone = Zone.of(tz);

  const today = localMidnight(zone, nowMs);
  for (let days = 1; days > -DAYS_MAX; days -= 1) {
    const times = timesOn(cron, zone, today + days * DAY_MS);
    const last = times.findLast((timeMs) => timeMs <= nowMs);
    if (last !== undefined) return last;
  }
  throw new RangeError(`no time of ${pattern} within ${DAYS_MAX} days`);
}

const SHOWN_TIMES = 3;

/**
 * Returns the next three times of a schedule in readable form: `Sun 2026-11-29 02:00, Mon
 * … (Europe/Zurich)`.
 * @throws as nextScheduledMs
 */
export function describeNextTimes(schedule: Schedule, nowMs: number): string {
  const format = new Intl.DateTimeFormat('en-CA', {
    timeZone: schedule.tz,
    weekday: 'short',
    year: 'numeric',
    month: '2-digit',
    day: '2-digit',
    hour: '2-digit',
    minute: '2-digit',
    hourCycle: 'h23',
  });
  const shown: string[] = [];
  let timeMs = nowMs;
  for (let times = 0; times < SHOWN_TIMES; times += 1) {
    timeMs = nextScheduledMs(schedule, timeMs);
    const parts = new Map(
      format.formatToParts(timeMs).map(({ type, value }) => [type, value]),
    );
    const day = `${parts.get('year')}-${parts.get('month')}-${parts.get('day')}`;
    shown.push(
      `${parts.get('weekday')} ${day} ${parts.get('hour')}:${parts.get('minute')}`,
    );
  }
  return `${shown.join(', ')} (${schedule.tz})`;
}

function readPattern(pattern: string): CronPattern {
  const cron = parseCron(pattern);
  if (cron === undefined)
    throw new RangeError(`not a cron pattern: ${pattern}`);
  return cron;
}

/**
 * Returns the midnight that begins the local day of an instant, as if the zone were
 * UTC.
 */
function localMidnight(zone: Zone, ms: number): number {
  const localMs = ms + zone.offsetMs(ms);
  return localMs - (((localMs % DAY_MS) + DAY_MS) % DAY_MS);
}

/**
 * Converts the scheduled times of one local day to instants, in ascending order.
 * @param midnight the start of that local day, expressed as if the zone were UTC
 */
function timesOn(
  cron: CronPattern,
  zone: Zone,
  midnight: number,
): readonly number[] {
  const date = new Date(midnight);
  const year = date.getUTCFullYear();
  const month = date.getUTCMonth() + 1;
  if (!cron.matchesDay(year, month, date.getUTCDate())) return [];

  const before = zone.offsetMs(midnight - DAY_MS);
  const after = zone.offsetMs(midnight + 2 * DAY_MS);
  if (before === after)
    return cron.timesOfDay.map((time) => midnight + time - before);

  const instants = new Set<number>();
  for (const time of cron.timesOfDay) {
    const localMs = midnight + time;
    const candidates = [localMs - before, localMs - after].toSorted(
      (a, b) => a - b,
    );
    const existing = candidates.filter(
      (ms) => ms + zone.offsetMs(ms) === localMs,
    );

    if (cron.isHourly) for (const ms of existing) instants.add(ms);
    // A time that the clocks skip uses the offset before the change.
    else instants.add(existing[0] ?? localMs - before);
  }
  return [...instants].toSorted((a, b) => a - b);
}

/**
 * The offsets of a time zone, looked up once for each quarter of an hour and then cached.
 */
class Zone {
  /**
   * The zones in use, cached because creating a formatter is the most expensive step here
   * and a process uses only one or two zones.
   */
  static readonly #known = new Map<string, Zone>();

  /**
   * Returns the zone with an IANA name.
   * @throws RangeError if the time zone is invalid
   */
  static of(tz: string): Zone {
    const known = Zone.#known.get(tz);
    if (known !== undefined) return known;

    if (Zone.#known.size >= ZONES_CACHED_MAX) Zone.#known.clear();
    const zone = new Zone(tz);
    Zone.#known.set(tz, zone);
    return zone;
  }

  readonly #format: Intl.DateTimeFormat;
  readonly #offsets = new Map<number, number>();

  private constructor(tz: string) {
    this.#format = new Intl.DateTimeFormat('en-US', {
      timeZone: tz,
      hourCycle: 'h23',
      year: 'numeric',
      month: 'numeric',
      day: 'numeric',
      hour: 'numeric',
      minute: 'numeric',
      second: 'numeric',
    });
  }

  /** Returns how far local clocks are ahead of UTC at an instant, in milliseconds. */
  offsetMs(ms: number): number {
    const stepMs = Math.floor(ms / OFFSET_STEP_MS) * OFFSET_STEP_MS;
    const cached = this.#offsets.get(stepMs);
    if (cached !== undefined) return cached;

    if (this.#offsets.size >= OFFSETS_CACHED_MAX) this.#offsets.clear();
    const offsetMs = this.#readOffset(stepMs);
    this.#offsets.set(stepMs, offsetMs);
    return offsetMs;
  }

  #readOffset(ms: number): number {
    const parts = this.#format.formatToParts(ms);
    const numberOf = (type: Intl.DateTimeFormatPartTypes): number =>
      Number(parts.find((part) => part.type === type)?.value);

    const localMs = Date.UTC(
      numberOf('year'),
      numberOf('month') - 1,
      numberOf('day'),
      numberOf('hour'),
      numberOf('minute'),
      numberOf('second'),
    );
    return localMs - ms;
  }
}
