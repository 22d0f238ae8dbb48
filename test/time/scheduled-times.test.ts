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
] as const;

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
