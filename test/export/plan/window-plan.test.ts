import { fc } from '../../support/properties.ts';
import { describe, expect, test } from 'vitest';
import { SECOND_MICROS } from '../../../src/core/time.ts';
import { LOSS_TIMES_MAX, WindowPlan, type Seen } from '../../../src/export/plan/window-plan.ts';
import type { Range } from '../../../src/export/plan/ranges.ts';
import { secondOf } from '../../../src/export/validate/tail.ts';
import { TimeHistogram } from '../../../src/export/plan/time-histogram.ts';

const SEGMENT_BYTES = 64_000;
const ROW_BYTES = 250;
const LEAST_STREAM_BYTES = new WindowPlan(SEGMENT_BYTES).leastStreamBytes;
const QUESTIONS_MAX = 10_000;
/** As releases serve them: by time, or as rows lie in the table, from anywhere on, in one run or several. */
const ORDERS = ['sorted', 'rotated', 'scattered', 'shuffled', 'backwards'] as const;
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
      const at = isBurst ? centre + (random() - 0.5) * seconds * 0.02 : random() * seconds;
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

function served(rows: readonly number[], range: Range, order: Order, call: number): number[] {
  const [from, to] = [secondOf(range.from), secondOf(range.to)];
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

function shuffled<Value>(values: readonly Value[], random: () => number): Value[] {
  return values
    .map((value) => [random(), value] as const)
    .toSorted(([one], [other]) => one - other)
    .map(([, value]) => value);
}

/** What of the plan outlives a process: the warehouse's copy, and the finer one that may vanish or be an older one. */
class Memory {
  #kept: unknown;
  readonly #noted: unknown[] = [];

  keep(plan: WindowPlan): void {
    this.#kept = structuredClone(plan.toHint());
    this.note(plan);
  }

  note(plan: WindowPlan): void {
    this.#noted.push(structuredClone(plan.toHint()));
  }

  /** @param word decides which of the finer ones is left, if any */
  recall(word: number): unknown[] {
    const noted = this.#noted[Math.floor(word * (this.#noted.length + 1) * 1.3)];
    return [this.#kept, word < 0.5 ? this.#noted.at(-1) : noted];
  }
}

interface Spent {
  askedBytes: number;
  doneRows: number;
  questions: number;
  /** Questions that came to nothing. */
  losses: number;
}

/** Exports a ledger to its end. @param kill says at which byte of a stream the process dies, if it does */
function exportAll(
  rows: readonly number[],
  order: Order,
  kill: (streamBytes: number) => number,
  random: () => number,
): Spent {
  const end = BigInt(Math.max(...rows) + 1) * SECOND_MICROS;
  const memory = new Memory();
  const spent: Spent = { askedBytes: 0, doneRows: 0, questions: 0, losses: 0 };
  let plan = new WindowPlan(SEGMENT_BYTES);
  for (let from = 0n; from < end;) {
    spent.questions += 1;
    if (spent.questions > QUESTIONS_MAX) throw new Error('it does not end');
    const cut = plan.cut({ from, to: end });
    if (cut !== undefined && (cut <= from || cut >= end)) throw new Error('no shorter piece');
    const asked = { from, to: cut ?? end };
    const answer = served(rows, asked, order, spent.questions);
    const streamBytes = Math.min(answer.length * ROW_BYTES, plan.streamBytesMax);
    const { bytes, seen, state } = stream(answer, asked, plan, memory, kill(streamBytes));
    spent.askedBytes += bytes + repeatedBytes(rows, from);
    if (state === 'whole') {
      spent.doneRows += answer.length;
      plan.done(asked, bytes, answer[0]);
      memory.keep(plan);
      from = asked.to;
      continue;
    }
    spent.losses += 1;
    if (state === 'killed') plan = new WindowPlan(SEGMENT_BYTES, undefined, memory.recall(random()));
    else {
      plan.lost(seen, asked);
      memory.keep(plan);
    }
  }
  return spent;
}

/** Receives as the exporter does: noted and kept on the way, cancelled where it is too large. */
function stream(
  answer: readonly number[],
  asked: Range,
  plan: WindowPlan,
  memory: Memory,
  deadAtBytes: number,
): { bytes: number; seen: Seen; state: 'whole' | 'killed' | 'too large' } {
  const isOneSecond = secondOf(asked.to) - secondOf(asked.from) < 2;
  const leastBytes = plan.streamBytesMax / 32;
  const histogram = new TimeHistogram();
  let [bytes, isSorted, last, noteAt, keepAt] = [0, true, Number.NEGATIVE_INFINITY, leastBytes, leastBytes];
  const seen = (): Seen => ({ bytes, sample: histogram.sample(256), sortedTo: isSorted ? last : undefined });
  for (const second of answer) {
    histogram.add(second, ROW_BYTES);
    bytes += ROW_BYTES;
    isSorted &&= second >= last;
    last = second;
    if (bytes >= deadAtBytes) return { bytes, seen: seen(), state: 'killed' };
    if (!isOneSecond && bytes > plan.streamBytesMax) return { bytes, seen: seen(), state: 'too large' };
    if (bytes < noteAt) continue;
    noteAt = bytes + Math.max(leastBytes, Math.min(bytes / 4, plan.streamBytesMax / 8));
    const isKept = bytes >= keepAt;
    if (isKept) keepAt = 2 * bytes;
    plan.receiving(seen(), isKept ? keepAt : noteAt);
    if (isKept) memory.keep(plan);
    else memory.note(plan);
  }
  return { bytes, seen: seen(), state: 'whole' };
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

/** Bytes asked for beyond the bound; negative where it holds. */
function excessBytes(rows: readonly number[], { askedBytes, doneRows, questions, losses }: Spent): number {
  if (doneRows !== rows.length) throw new Error('not the whole ledger');
  const second = busiestBytes(rows);
  const always = losses * Math.max(LEAST_STREAM_BYTES, second) + questions * (second + ROW_BYTES);
  return askedBytes - (1 + LOSS_TIMES_MAX) * rows.length * ROW_BYTES - always;
}

describe('windows', () => {
  test('whatever the order, wherever it is killed, whatever Redis forgets: what is lost is bounded', () => {
    fc.assert(
      fc.property(
        ledger,
        fc.constantFrom(...ORDERS),
        fc.nat(),
        fc.double({ min: 0.2, max: 1, noNaN: true }),
        fc.constantFrom(0, 10, 100),
        fc.constantFrom(0, 0.9),
        (rows, order, seed, often, killsMax, earliest) => {
          const random = noise(seed);
          let kills = 0;
          const kill = (bytes: number): number => {
            if (kills >= killsMax || random() > often) return Number.POSITIVE_INFINITY;
            kills += 1;
            return Math.max(ROW_BYTES, (earliest + (1 - earliest) * random()) * bytes);
          };
          expect(excessBytes(rows, exportAll(rows, order, kill, random))).toBeLessThanOrEqual(0);
        },
      ),
      { numRuns: 20 },
    );
  });

  test.each(ORDERS)('killed at the end of a hundred streams, served %s: the same bound', (order) => {
    const rows = Array.from({ length: 3000 }, (_, index) => Math.floor(index * 31.4));
    let kills = 0;
    const kill = (bytes: number): number => ((kills += 1) <= 100 ? 0.97 * bytes : Number.POSITIVE_INFINITY);
    expect(excessBytes(rows, exportAll(rows, order, kill, noise(1)))).toBeLessThanOrEqual(0);
  });

  test.each(ORDERS)('left alone, a ledger served %s is asked for little more than twice', (order) => {
    const ratios = fc.sample(ledger, { numRuns: 15, seed: 4 }).map((rows) => {
      const { askedBytes, questions } = exportAll(rows, order, UNKILLED, noise(1));
      const bytes = rows.length * ROW_BYTES;
      // Every question is a scan of the whole table at the source.
      expect(questions).toBeLessThan(2 + (5 * bytes) / SEGMENT_BYTES);
      return askedBytes / bytes;
    });
    expect(Math.max(...ratios)).toBeLessThan(2.5);
    expect(ratios.toSorted((a, b) => a - b)[7]).toBeLessThan(2.1);
  });

  test('a small ledger is asked for in one question', () => {
    const rows = Array.from({ length: 400 }, (_, index) => index * 10);
    expect(exportAll(rows, 'shuffled', UNKILLED, noise(1)).questions).toBe(1);
  });

  test('of two plans that were remembered, the later is gone on with', () => {
    const range = { from: 0n, to: 1000n * SECOND_MICROS };
    const plan = new WindowPlan(SEGMENT_BYTES);
    const older = plan.toHint();
    const sample = {
      bucketSeconds: 1,
      buckets: [...Array(600).keys()].map((second) => [second, 250] as const),
    };
    plan.lost({ bytes: 150_000, sample, sortedTo: 599 }, range);
    const later = plan.toHint();
    for (const remembered of [
      [older, later],
      [later, older],
      [later, undefined],
    ]) {
      expect(new WindowPlan(SEGMENT_BYTES, undefined, remembered).cut(range)).toBe(plan.cut(range));
    }
    expect(new WindowPlan(SEGMENT_BYTES, undefined, [older]).cut(range)).toBeUndefined();
  });

  test('whatever is remembered, a plan can be made of it', () => {
    fc.assert(
      fc.property(fc.anything(), fc.integer({ min: 2, max: 1000 }), (hint, length) => {
        const plan = new WindowPlan(SEGMENT_BYTES, undefined, [hint]);
        const range = { from: 5n * SECOND_MICROS, to: BigInt(5 + length) * SECOND_MICROS };
        expect(plan.cut(range)).toBeUndefined();
      }),
    );
  });
});
