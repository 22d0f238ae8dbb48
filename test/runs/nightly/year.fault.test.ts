/**
 * A year of nights, for many seeds: each scheduled time has exactly one night, or is named
 * as one that had none. `YEARS` says how many years, `SEED` where they begin.
 */
import { expect, test } from 'vitest';
import type { Schedule } from '../../../src/time/scheduled-times.ts';
import {
  DAY_MS,
  HOUR_MS,
  MINUTE_MS,
  type InForce,
  SimulatedYear,
} from './simulated-year.ts';

const YEARS = Number(process.env['YEARS'] ?? 200);
const FIRST_SEED = Number(process.env['SEED'] ?? 1);
const BEGIN_MS = Date.UTC(2026, 0, 1);
const END_MS = BEGIN_MS + 365 * DAY_MS;
const ZONES = [
  'UTC',
  'Europe/Zurich',
  'America/New_York',
  'America/Santiago',
  'Africa/Cairo',
  'Australia/Lord_Howe',
  'Asia/Tokyo',
  'Asia/Kolkata',
  'Africa/Casablanca',
  'America/Havana',
  'America/St_Johns',
  'Antarctica/Troll',
  'Asia/Tehran',
  'Pacific/Apia',
];
const SEEDS = Array.from({ length: YEARS }, (_, index) => FIRST_SEED + index);
const SEEDS_A_TEST = 25;

const chunks = Array.from(
  { length: Math.ceil(YEARS / SEEDS_A_TEST) },
  (_, at) => SEEDS.slice(at * SEEDS_A_TEST, (at + 1) * SEEDS_A_TEST),
);

test.each(chunks)(
  'each scheduled time of the years from seed %i on has one night, or is named',
  (...seeds) => {
    for (const seed of seeds) {
      const { year, reachableMs } = live(seed);
      expect({ seed, ...findFaults(year, reachableMs) }).toEqual({
        seed,
        begunEarly: [],
        overlapping: [],
        doubled: [],
        beforeTheirSchedule: [],
        neverEnded: [],
        daysNotOnce: [],
      });
    }
  },
);

/** The year of a seed: what happens is drawn before, and happens at its time. */
function live(seed: number): { year: SimulatedYear; reachableMs: number } {
  const random = randomFrom(seed);
  const pick = <Value>(values: readonly Value[]): Value =>
    values[Math.floor(random() * values.length)] as Value;
  const zone = pick(ZONES);
  const drawSchedule = (): Schedule => ({
    pattern: `${Math.floor(random() * 60)} ${pick([0, 1, 2, 3, 12, 23])} * * *`,
    tz: random() < 0.8 ? zone : pick(ZONES),
  });
  const drawClock = (): number =>
    random() < 0.7
      ? 0
      : (random() - 0.5) * pick([MINUTE_MS, HOUR_MS, 2 * DAY_MS]);

  const year = new SimulatedYear(BEGIN_MS, random);
  year.setAway(drawAbsences(random));
  let schedule = drawSchedule();
  year.startWorker(schedule, drawClock());

  for (let atMs = BEGIN_MS; atMs < END_MS;) {
    atMs += random() * pick([HOUR_MS, DAY_MS, 10 * DAY_MS, 30 * DAY_MS]);
    year.advanceTo(atMs);
    const index = Math.floor(random() * Math.max(1, year.workers));
    const event = random();
    if (year.workers === 0 || event < 0.3) {
      if (random() < 0.3) schedule = drawSchedule();
      if (year.workers < 2) year.startWorker(schedule, drawClock());
    } else if (event < 0.6) year.stopWorker(index);
    else if (event < 0.8) year.jumpClock(index, drawClock());
  }
  // What is due at the end has its night, too.
  if (year.workers === 0) year.startWorker(schedule, 0);
  year.advanceTo(atEnd(year));
  return { year, reachableMs: END_MS };
}

function atEnd(year: SimulatedYear): number {
  const lastMs = year.nights.at(-1)?.startedMs ?? BEGIN_MS;
  return Math.max(END_MS, lastMs, year.nowMs) + 3 * DAY_MS;
}

/** Comes and goes by the minute for hours, or is away for up to a day. */
function drawAbsences(random: () => number): [number, number][] {
  const absences: [number, number][] = [];
  let atMs = BEGIN_MS;
  while (atMs < END_MS) {
    atMs += random() * 6 * DAY_MS;
    if (random() < 0.5) {
      const isLong = random() < 0.2;
      const lengthMs = random() * (isLong ? DAY_MS : HOUR_MS);
      absences.push([atMs, atMs + lengthMs]);
      atMs += lengthMs;
      continue;
    }
    for (let times = 0; times < 40; times += 1) {
      const lengthMs = (0.2 + random() * 2) * MINUTE_MS;
      absences.push([atMs, atMs + lengthMs]);
      atMs += lengthMs + (0.2 + random() * 2) * MINUTE_MS;
    }
  }
  return absences;
}

/** Looked at from outside, by local days: how the schedules are computed plays no part. */
function findFaults(year: SimulatedYear, untilMs: number) {
  const { nights, inForce, named } = year;
  const bad = <Value>(values: readonly Value[]) => values.slice(0, 3);
  const good = nights.filter(({ hasFailed }) => !hasFailed);
  const isIn = (ms: number) =>
    inForce.some(
      ({ sinceMs }, at) =>
        ms >= sinceMs && ms < (inForce[at + 1]?.sinceMs ?? Infinity),
    );
  const settledDues = new Map<number, number>();
  for (const { dueMs } of good)
    settledDues.set(dueMs, (settledDues.get(dueMs) ?? 0) + 1);

  return {
    begunEarly: bad(
      nights.filter(({ dueMs, startedMs }) => dueMs - startedMs > MINUTE_MS),
    ),
    overlapping: bad(
      nights.filter((night, at) => {
        const next = nights[at + 1];
        const endMs = night.finishedMs ?? Infinity;
        return next !== undefined && next.startedMs < endMs;
      }),
    ),
    doubled: bad([...settledDues].filter(([, times]) => times > 1)),
    beforeTheirSchedule: bad(nights.filter(({ dueMs }) => !isIn(dueMs))),
    neverEnded: bad(
      nights.filter(({ isOpen, dueMs }) => isOpen && dueMs < untilMs),
    ),
    daysNotOnce: bad(
      inForce.flatMap((period, at) => {
        const endMs = Math.min(untilMs, inForce[at + 1]?.sinceMs ?? untilMs);
        return daysNotOnce(period, endMs, year.nights, named);
      }),
    ),
  };
}

/**
 * The local days within a period that do not have exactly one scheduled time with a night,
 * and none that is named.
 */
function daysNotOnce(
  { schedule, sinceMs }: InForce,
  endMs: number,
  nights: SimulatedYear['nights'],
  named: ReadonlySet<number>,
): readonly string[] {
  const days = new Intl.DateTimeFormat('sv-SE', { timeZone: schedule.tz });
  const times = new Map<string, Set<number>>();
  const dues = [...nights.map(({ dueMs }) => dueMs), ...named];
  for (const dueMs of dues) {
    if (dueMs < sinceMs || dueMs >= endMs) continue;
    const day = days.format(dueMs);
    times.set(day, (times.get(day) ?? new Set()).add(dueMs));
  }

  const wrong: string[] = [];
  // The first and the last day are parts of days.
  for (let ms = sinceMs + 2 * DAY_MS; ms < endMs - 3 * DAY_MS; ms += DAY_MS) {
    const day = days.format(ms);
    const count = times.get(day)?.size ?? 0;
    if (count !== 1)
      wrong.push(`${day}: ${count} of ${schedule.pattern} ${schedule.tz}`);
  }
  return wrong;
}

/** Mulberry32: the same numbers for the same seed, everywhere. */
function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d_2b_79_f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}
