import { fc } from '../../support/properties.ts';
import { describe, expect, test } from 'vitest';
import { DAY_MICROS, SECOND_MICROS } from '../../../src/time/time.ts';
import {
  WindowPlan,
  type StreamSeen,
} from '../../../src/exports/planning/window-plan.ts';
import { type Range, secondOf } from '../../../src/ledger/ranges.ts';
import { TimeHistogram } from '../../../src/exports/planning/time-histogram.ts';

const SEGMENT_BYTES = 64_000;
const ROW_BYTES = 250;
const REQUESTS_MAX = 10_000;
/**
 * As releases serve them: by time, or as rows lie in the table, from anywhere on, in one
 * run or several.
 */
const ORDERS = [
  'sorted',
  'rotated',
  'scattered',
  'shuffled',
  'backwards',
] as const;
type Order = (typeof ORDERS)[number];

/** Seconds of a ledger's rows, in order; activity comes in bursts. */
const ledger = fc
  .record({
    rows: fc.integer({ min: 50, max: 3000 }),
    seconds: fc.integer({ min: 2, max: 200_000 }),
    bursts: fc.integer({ min: 1, max: 6 }),
    seed: fc.nat(),
  })
  .map(({ rows, seconds, bursts, seed }) => {
    const random = noise(seed);
    const centres = Array.from({ length: bursts }, () => random() * seconds);
    return Array.from({ length: rows }, () => {
      const isBurst = random() < 0.7;
      const centre = centres[Math.floor(random() * bursts)] ?? 0;
      const at = isBurst
        ? centre + (random() - 0.5) * seconds * 0.02
        : random() * seconds;
      return Math.max(0, Math.min(seconds - 1, Math.floor(at)));
    }).toSorted((one, other) => one - other);
  });

function noise(seed: number): () => number {
  let word = (seed >>> 0) + 1;
  return () => {
    word = (Math.imul(word, 1_664_525) + 1_013_904_223) >>> 0;
    return word / 2 ** 32;
  };
}

function served(
  rows: readonly number[],
  range: Range,
  order: Order,
  call: number,
): number[] {
  const from = secondOf(range.from);
  const to = secondOf(range.to);
  const found = rows.filter((second) => second >= from && second < to);
  const random = noise(call);
  if (order === 'backwards') return found.toReversed();
  if (order === 'shuffled') return shuffled(found, random);
  if (order === 'scattered') {
    const length = Math.ceil(found.length / 8);
    return shuffled([0, 1, 2, 3, 4, 5, 6, 7], random).flatMap((run) =>
      found.slice(run * length, (run + 1) * length),
    );
  }
  const turn = order === 'rotated' ? Math.floor(random() * found.length) : 0;
  return [...found.slice(turn), ...found.slice(0, turn)];
}

function shuffled<Value>(
  values: readonly Value[],
  random: () => number,
): Value[] {
  return values
    .map((value) => [random(), value] as const)
    .toSorted(([one], [other]) => one - other)
    .map(([, value]) => value);
}

interface Spent {
  /**
   * Of streams that came to their end or were cancelled; those that were killed are
   * counted apart.
   */
  askedBytes: number;
  killedBytes: number;
  doneRows: number;
  requests: number;
}

/**
 * Exports a ledger to its end. @param kill says at which byte of a stream the process
 * dies, if it does
 */
function exportAll(
  rows: readonly number[],
  order: Order,
  kill: (streamBytes: number) => number,
): Spent {
  const end = BigInt(Math.max(...rows) + 1) * SECOND_MICROS;
  const spent: Spent = {
    askedBytes: 0,
    killedBytes: 0,
    doneRows: 0,
    requests: 0,
  };
  let kept: unknown;
  let plan = new WindowPlan(SEGMENT_BYTES);
  for (let from = 0n; from < end;) {
    spent.requests += 1;
    if (spent.requests > REQUESTS_MAX) throw new Error('it does not end');
    const cut = plan.cut({ from, to: end });
    if (cut !== undefined && (cut <= from || cut >= end))
      throw new Error('no shorter window');
    const asked = { from, to: cut ?? end };
    const answer = served(rows, asked, order, spent.requests);
    const streamBytes = Math.min(
      answer.length * ROW_BYTES,
      plan.streamBytesMax,
    );
    const { bytes, seen, state } = stream(
      answer,
      asked,
      plan,
      kill(streamBytes),
    );
    if (state === 'killed') {
      spent.killedBytes += bytes;
      plan = new WindowPlan(SEGMENT_BYTES, kept);
      continue;
    }
    spent.askedBytes += bytes + repeatedBytes(rows, from);
    if (state === 'complete') {
      spent.doneRows += answer.length;
      plan.recordDone(asked, bytes, answer[0]);
      from = asked.to;
    } else plan.recordOutgrown(seen, asked);
    kept = structuredClone(plan.toJson());
  }
  return spent;
}

/** Receives as the exporter does: cancelled where it is too large. */
function stream(
  answer: readonly number[],
  asked: Range,
  plan: WindowPlan,
  deadAtBytes: number,
): {
  bytes: number;
  seen: StreamSeen;
  state: 'complete' | 'killed' | 'too large';
} {
  const isOneSecond = secondOf(asked.to) - secondOf(asked.from) < 2;
  const histogram = new TimeHistogram();
  let bytes = 0;
  let isSorted = true;
  let last = Number.NEGATIVE_INFINITY;
  let mustRun = false;
  const seen = (): StreamSeen => ({
    bytes,
    stretches: histogram.stretches(),
    sortedTo: isSorted ? last : undefined,
  });
  for (const second of answer) {
    histogram.add(second, ROW_BYTES);
    bytes += ROW_BYTES;
    isSorted &&= second >= last;
    last = second;
    if (bytes >= deadAtBytes) return { bytes, seen: seen(), state: 'killed' };
    if (isOneSecond || bytes <= plan.streamBytesMax || mustRun) continue;
    // As the fetcher decides.
    const lost = plan.afterOutgrown(seen(), asked);
    mustRun = !lost.isAffordable || lost.cut(asked) === undefined;
    if (!mustRun) return { bytes, seen: seen(), state: 'too large' };
  }
  return { bytes, seen: seen(), state: 'complete' };
}

/** What a continuation asks for again at least: the newest known second. */
function repeatedBytes(rows: readonly number[], from: bigint): number {
  const known = rows.filter((second) => second < secondOf(from));
  const newest = Math.max(...known);
  return known.filter((second) => second === newest).length * ROW_BYTES;
}

const UNKILLED = (): number => Number.POSITIVE_INFINITY;

function busiestBytes(rows: readonly number[]): number {
  const counts = new Map<number, number>();
  for (const second of rows) counts.set(second, (counts.get(second) ?? 0) + 1);
  return Math.max(...counts.values()) * ROW_BYTES;
}

describe('a window plan', () => {
  test('asks for at most twice the ledger and what was in flight over fifty kills in any order', () => {
    fc.assert(
      fc.property(
        ledger,
        fc.constantFrom(...ORDERS),
        fc.nat(),
        (rows, order, seed) => {
          const random = noise(seed);
          let kills = 0;
          const kill = (bytes: number): number => {
            if (kills >= 50 || random() > 0.7) return Number.POSITIVE_INFINITY;
            kills += 1;
            return Math.max(ROW_BYTES, random() * bytes);
          };
          const { askedBytes, doneRows, requests, killedBytes } = exportAll(
            rows,
            order,
            kill,
          );
          expect(doneRows).toBe(rows.length);
          // What was in flight at each kill is at most one segment and the row that ended
          // it.
          expect(killedBytes).toBeLessThanOrEqual(
            kills * (SEGMENT_BYTES + busiestBytes(rows)),
          );
          const bytes = rows.length * ROW_BYTES;
          // A second is never divided, and its tail comes again with each window.
          const always = requests * (busiestBytes(rows) + ROW_BYTES);
          // A sixteenth of a segment may come twice among what was cancelled.
          expect(askedBytes).toBeLessThanOrEqual(
            2 * bytes + SEGMENT_BYTES / 16 + always,
          );
        },
      ),
      { numRuns: 60 },
    );
  });

  test.each(ORDERS)(
    'asks in few requests for a ledger that is served %s without faults',
    (order) => {
      const ratios = fc.sample(ledger, { numRuns: 15, seed: 4 }).map((rows) => {
        const { askedBytes, requests } = exportAll(rows, order, UNKILLED);
        const bytes = rows.length * ROW_BYTES;
        // Every request is a scan of the whole table at the source.
        expect(requests).toBeLessThan(3 + (5 * bytes) / SEGMENT_BYTES);
        return askedBytes / bytes;
      });
      expect(Math.max(...ratios)).toBeLessThan(2.5);
      expect(ratios.toSorted((a, b) => a - b)[7]).toBeLessThan(2.2);
    },
  );

  test('asks for a small ledger in one request', () => {
    const rows = Array.from({ length: 200 }, (_, index) => index * 10);
    expect(exportAll(rows, 'shuffled', UNKILLED).requests).toBe(1);
  });

  test('halves the windows of a stream that broke twice', () => {
    const range = { from: 0n, to: 1000n * SECOND_MICROS };
    const plan = new WindowPlan(SEGMENT_BYTES * 100);
    const stretches = [...Array(600).keys()].map((from) => ({
      from,
      to: from + 1,
      bytes: 1000,
    }));
    plan.recordBroken({ bytes: 600_000, stretches, sortedTo: undefined });
    expect(plan.cut(range)).toBeUndefined();
    plan.recordBroken({ bytes: 600_000, stretches, sortedTo: undefined });
    expect(plan.cut(range)).toBeLessThan(400n * SECOND_MICROS);
    const remembered = new WindowPlan(
      SEGMENT_BYTES * 100,
      structuredClone(plan.toJson()),
    );
    expect(remembered.cut(range)).toBe(plan.cut(range));
  });

  const seconds = (from: bigint, to: bigint): Range => ({
    from: from * SECOND_MICROS,
    to: to * SECOND_MICROS,
  });
  const NOTHING: StreamSeen = { bytes: 0, stretches: [], sortedTo: undefined };

  test('applies the rate of a window to the window right behind it, and to no other', () => {
    const plan = new WindowPlan(SEGMENT_BYTES);
    plan.recordDone(seconds(5000n, 6000n), 100_000, 5000);
    expect(plan.cut(seconds(0n, 5000n))).toBeUndefined();
    expect(plan.cut(seconds(6000n, 9000n))).toBe(6448n * SECOND_MICROS);
  });

  test('proposes the same window after the request that was to confirm it was cancelled', () => {
    const plan = new WindowPlan(SEGMENT_BYTES);
    plan.recordDone(seconds(5000n, 6000n), 100_000, 5000);
    const cut = plan.cut(seconds(6000n, 9000n));
    plan.recordOutgrown(NOTHING);
    expect(plan.cut(seconds(6000n, 9000n))).toBe(cut);
    plan.recordOutgrown(NOTHING, seconds(6000n, 9000n));
    expect(plan.cut(seconds(6000n, 9000n))).toBe(7500n * SECOND_MICROS);
  });

  test('can be made from any remembered state', () => {
    fc.assert(
      fc.property(
        fc.anything(),
        fc.integer({ min: 2, max: 1000 }),
        (hint, length) => {
          const plan = new WindowPlan(SEGMENT_BYTES, hint);
          const range = {
            from: 5n * SECOND_MICROS,
            to: BigInt(5 + length) * SECOND_MICROS,
          };
          expect(plan.cut(range)).toBeUndefined();
        },
      ),
    );
  });
});

describe('a range of which nothing comes', () => {
  const LONG: Range = { from: 0n, to: 40n * DAY_MICROS };
  const plan = (): WindowPlan => new WindowPlan(2 ** 40);
  const end = (asked: WindowPlan, range: Range): bigint =>
    asked.cut(range) ?? range.to;
  const silent = (
    times: number,
    range: Range,
    silence = plan(),
  ): WindowPlan => {
    for (let time = 0; time < times; time += 1)
      expect(silence.recordSilence(range)).toBe(true);
    return silence;
  };

  test('is asked for twice, halved twice, and then given up', () => {
    const silence = plan();
    const asked: bigint[] = [];
    for (let mayHelp = true; mayHelp;) {
      const range = { ...LONG, to: end(silence, LONG) };
      asked.push(range.to / DAY_MICROS);
      mayHelp = silence.recordSilence(range);
    }
    expect(asked).toEqual([40n, 40n, 20n, 10n]);
    // As the next night finds it: with one request it is known whether that has changed.
    const next = new WindowPlan(2 ** 40, silence.toJson());
    expect(next.recordSilence({ ...LONG, to: end(next, LONG) })).toBe(false);
  });

  test('starts the count again with an answer, and what is left is asked for in parts as short', () => {
    const answered = silent(2, LONG);
    answered.recordDone({ from: 0n, to: 20n * DAY_MICROS }, 1000, undefined);
    const rest = { from: 20n * DAY_MICROS, to: LONG.to };
    expect(answered.cut(rest)).toBeUndefined();
    expect(answered.cut(LONG)).toBe(20n * DAY_MICROS);
    expect(silent(2, rest, answered).cut(rest)).toBe(30n * DAY_MICROS);
  });

  test('is halved in its last half year, where it reaches over all times', () => {
    const ever = { from: 0n, to: 20_000n * DAY_MICROS };
    expect(silent(2, ever).cut(ever)).toBe(ever.to - 90n * DAY_MICROS);
  });

  test('is not given up where it cannot be asked for in parts', () => {
    expect(silent(10, LONG).cut(LONG)).toBe(20n * DAY_MICROS);
  });

  test('of less than a day says nothing about the windows of the rest, and is given up all the same', () => {
    const short = { from: 0n, to: 41n * SECOND_MICROS };
    const silence = silent(3, short);
    expect(silence.isSilent).toBe(false);
    expect(silence.recordSilence(short)).toBe(false);
  });
});
