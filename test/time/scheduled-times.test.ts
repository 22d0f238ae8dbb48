/**
 * Scheduled times through the changes of the clocks, in zones that change them in every
 * way.
 */
import { describe, expect, test } from 'vitest';
import {
  describeNextTimes,
  lastScheduledMs,
  nextScheduledMs,
} from '../../src/time/scheduled-times.ts';
import { fc } from '../support/properties.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

const ZONES = [
  'UTC',
  'Europe/Berlin',
  'Europe/Zurich',
  'America/New_York',
  'America/Santiago',
  'America/Havana',
  'Africa/Cairo',
  'Asia/Beirut',
  'Asia/Kolkata',
  'Australia/Lord_Howe',
  'Africa/Casablanca',
  'Pacific/Apia',
  'Asia/Tehran',
  'America/St_Johns',
  'Antarctica/Troll',
  'Pacific/Chatham',
  'America/Nuuk',
] as const;
/** Zones that change their clocks in ways of their own, and when to look at each. */
const CHANGES: readonly (readonly [zone: string, years: readonly number[]])[] =
  [
    ['Australia/Lord_Howe, by half an hour', [2026, 2027]],
    ['Africa/Casablanca, for Ramadan', [2026, 2027]],
    ['America/Havana, at midnight', [2026, 2027]],
    ['America/Santiago, at midnight', [2026, 2027]],
    ['Asia/Beirut, at midnight', [2026, 2027]],
    ['America/St_Johns, half an hour beside the others', [2026, 2027]],
    ['Antarctica/Troll, by two hours', [2026, 2027]],
    ['Pacific/Apia, its last summer', [2021]],
    ['Asia/Tehran, its last summer', [2022]],
    ['Pacific/Chatham, at a quarter to three', [2026]],
    ['America/Nuuk, in the evening', [2026]],
    ['Pacific/Easter, in the evening', [2026]],
  ];

const zones = fc.constantFrom(...ZONES);
const minutes = fc.integer({ min: 0, max: 59 });
const hours = fc.integer({ min: 0, max: 23 });
const instants = fc.integer({ min: Date.UTC(2023, 0), max: Date.UTC(2029, 0) });

describe('scheduled times', () => {
  test('a daily schedule has exactly one time on each local day', () => {
    const property = fc.property(
      zones,
      minutes,
      hours,
      instants,
      (tz, minute, hour, from) => {
        const schedule = { pattern: `${minute} ${hour} * * *`, tz };
        const days: string[] = [];
        let time = from;
        for (let count = 0; count < 370; count += 1) {
          time = nextScheduledMs(schedule, time);
          days.push(localDay(time, tz));
        }

        const first = Date.parse(`${days[0]}T00:00Z`);
        const expected = days.map((_, index) =>
          new Date(first + index * DAY_MS).toISOString().slice(0, 10),
        );
        expect(days).toEqual(expected);
      },
    );
    fc.assert(property, { numRuns: 10 });
  });

  test('the last and the next time agree, whatever the pattern and the instant', () => {
    const patterns = fc.oneof(
      fc
        .tuple(minutes, hours)
        .map(([minute, hour]) => `${minute} ${hour} * * *`),
      fc
        .tuple(minutes, hours)
        .map(([minute, hour]) => `${minute} ${hour} * * 0`),
      fc.constantFrom(
        '*/15 * * * *',
        '0 * * * *',
        '0 */6 * * *',
        '30 1,2,3 * * *',
      ),
    );
    const property = fc.property(
      zones,
      patterns,
      instants,
      (tz, pattern, now) => {
        const schedule = { pattern, tz };
        const last = lastScheduledMs(schedule, now);
        const next = nextScheduledMs(schedule, now);
        expect(last).toBeLessThanOrEqual(now);
        expect(next).toBeGreaterThan(now);
        expect(nextScheduledMs(schedule, last)).toBe(next);
        expect(lastScheduledMs(schedule, next)).toBe(next);
        expect(lastScheduledMs(schedule, next - 1)).toBe(last);
      },
    );
    fc.assert(property, { numRuns: 500 });
  });

  test.each([
    [
      'a skipped time',
      '30 2 * * *',
      'Europe/Berlin',
      '2026-03-29T00:00Z',
      '2026-03-29T01:30Z',
    ],
    [
      'a repeated time',
      '30 2 * * *',
      'Europe/Berlin',
      '2026-10-25T00:00Z',
      '2026-10-25T00:30Z',
    ],
    [
      'the day after',
      '30 2 * * *',
      'Europe/Berlin',
      '2026-10-25T00:30Z',
      '2026-10-26T01:30Z',
    ],
    [
      'the start of a gap',
      '0 2 * * *',
      'Europe/Zurich',
      '2027-03-28T00:00Z',
      '2027-03-28T01:00Z',
    ],
    [
      'a skipped midnight',
      '0 0 * * *',
      'America/Santiago',
      '2026-09-06T03:00Z',
      '2026-09-06T04:00Z',
    ],
    [
      'Cairo',
      '0 0 * * *',
      'Africa/Cairo',
      '2026-04-23T21:00Z',
      '2026-04-23T22:00Z',
    ],
    [
      'half an hour',
      '15 2 * * *',
      'Australia/Lord_Howe',
      '2026-10-03T15:00Z',
      '2026-10-03T15:45Z',
    ],
    [
      'New York',
      '30 2 * * *',
      'America/New_York',
      '2026-03-08T06:00Z',
      '2026-03-08T07:30Z',
    ],
  ])('%s has one instant', (_name, pattern, tz, after, expected) => {
    const next = nextScheduledMs({ pattern, tz }, Date.parse(after));
    expect(new Date(next).toISOString()).toBe(new Date(expected).toISOString());
    expect(lastScheduledMs({ pattern, tz }, next + HOUR_MS)).toBe(next);
  });

  test.each(CHANGES)(
    'a daily schedule keeps to the local clocks through every change of %s',
    (name, years) => {
      const tz = name.split(',', 1)[0] as string;
      const found: string[] = [];
      const expected: string[] = [];
      for (const change of years.flatMap((year) => findChanges(tz, year)))
        for (let minute = 0; minute < 1_440; minute += 15) {
          const pattern = `${minute % 60} ${Math.floor(minute / 60)} * * *`;
          const shown = readClocks(tz, change, minute);
          const [first = 0] = shown;
          let time = first - 1;
          for (const instant of shown) {
            time = nextScheduledMs({ pattern, tz }, time);
            const last = lastScheduledMs({ pattern, tz }, instant);
            found.push(`${pattern} ${iso(time)} ${iso(last)}`);
            expected.push(`${pattern} ${iso(instant)} ${iso(instant)}`);
          }
        }
      expect(found).not.toEqual([]);
      expect(found).toEqual(expected);
    },
  );

  test('a local day that a zone leaves out has its time with the day after', () => {
    // Samoa went from the 29th to the 31st of December 2011.
    const schedule = { pattern: '0 2 * * *', tz: 'Pacific/Apia' };
    const times: string[] = [];
    let time = Date.parse('2011-12-28T00:00Z');
    for (let count = 0; count < 4; count += 1) {
      time = nextScheduledMs(schedule, time);
      times.push(`${localDay(time, 'Pacific/Apia')} ${iso(time)}`);
    }
    expect(times).toEqual([
      '2011-12-28 2011-12-28T12:00:00.000Z',
      '2011-12-29 2011-12-29T12:00:00.000Z',
      '2011-12-31 2011-12-30T12:00:00.000Z',
      '2012-01-01 2011-12-31T12:00:00.000Z',
    ]);
  });

  test('the last time is known on the day on which midnight was skipped', () => {
    const schedule = { pattern: '0 0 * * *', tz: 'America/Santiago' };
    const last = lastScheduledMs(schedule, Date.parse('2026-09-06T12:00Z'));
    expect(new Date(last).toISOString()).toBe('2026-09-06T04:00:00.000Z');
  });

  test('an hourly schedule goes on through the repeated hour', () => {
    const schedule = { pattern: '0 * * * *', tz: 'Europe/Berlin' };
    let time = Date.parse('2026-10-24T22:00Z');
    for (let hour = 1; hour <= 8; hour += 1) {
      time = nextScheduledMs(schedule, time);
      expect(time).toBe(Date.parse('2026-10-24T22:00Z') + hour * HOUR_MS);
    }
  });

  test('a pattern or a zone that is not valid throws RangeError', () => {
    expect(() => nextScheduledMs({ pattern: '2', tz: 'UTC' }, 0)).toThrow(
      RangeError,
    );
    expect(() => nextScheduledMs({ pattern: '0 2 * * *', tz: 'X' }, 0)).toThrow(
      RangeError,
    );
  });
});

function localDay(ms: number, tz: string): string {
  return new Intl.DateTimeFormat('sv-SE', {
    timeZone: tz,
    dateStyle: 'short',
  }).format(ms);
}

test('describeNextTimes names the next three times in the local time of the schedule', () => {
  const schedule = { pattern: '30 2 * * *', tz: 'Europe/Zurich' };
  expect(describeNextTimes(schedule, Date.UTC(2026, 2, 28))).toBe(
    'Sat 2026-03-28 02:30, Sun 2026-03-29 03:30, Mon 2026-03-30 02:30 (Europe/Zurich)',
  );
});

function iso(ms: number): string {
  return new Date(ms).toISOString();
}

const MINUTE_MS = 60_000;

/** Returns a function that reads the local clock of a zone: `2026-03-29 02:30:00`. */
function openClock(tz: string): (ms: number) => string {
  const format = new Intl.DateTimeFormat('sv-SE', {
    timeZone: tz,
    dateStyle: 'short',
    timeStyle: 'medium',
  });
  return (ms) => format.format(ms);
}

function offsetAt(clock: (ms: number) => string, ms: number): number {
  return Date.parse(`${clock(ms).replace(' ', 'T')}Z`) - ms;
}

/** Finds the first minutes after the changes of a zone's clocks in a year. */
function findChanges(tz: string, year: number): readonly number[] {
  const clock = openClock(tz);
  const changes: number[] = [];
  for (let ms = Date.UTC(year, 0); ms < Date.UTC(year + 1, 0); ms += DAY_MS) {
    const before = offsetAt(clock, ms);
    if (offsetAt(clock, ms + DAY_MS) === before) continue;

    let low = ms;
    let high = ms + DAY_MS;
    while (high - low > MINUTE_MS) {
      const middle = Math.floor((low + high) / 2 / MINUTE_MS) * MINUTE_MS;
      if (offsetAt(clock, middle) === before) low = middle;
      else high = middle;
    }
    changes.push(high);
  }
  return changes;
}

/**
 * Returns when the local clocks show a minute of the day, on the days around a change, as
 * somebody sees it who looks at a clock each quarter of an hour. If the clocks show it
 * twice, the first time counts. If they skip it, the clocks of before the change count.
 */
function readClocks(
  tz: string,
  change: number,
  minute: number,
): readonly number[] {
  const clock = openClock(tz);
  const first = new Map<string, number>();
  for (
    let ms = change - 3 * DAY_MS;
    ms < change + 3 * DAY_MS;
    ms += 15 * MINUTE_MS
  ) {
    const shown = clock(ms);
    if (!first.has(shown)) first.set(shown, ms);
  }

  const midnight = Date.parse(`${clock(change).slice(0, 10)}T00:00Z`);
  const before = offsetAt(clock, change - MINUTE_MS);
  return [-2, -1, 0, 1, 2].map((days) => {
    const localMs = midnight + days * DAY_MS + minute * MINUTE_MS;
    const shown = iso(localMs).slice(0, 19).replace('T', ' ');
    return first.get(shown) ?? localMs - before;
  });
}
