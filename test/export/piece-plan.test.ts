import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { SECOND_MICROS } from '../../src/core/time.ts';
import { PiecePlan, type Seen } from '../../src/export/piece-plan.ts';
import type { Range } from '../../src/export/ranges.ts';
import { secondOf } from '../../src/export/tail.ts';
import { TimeHistogram } from '../../src/export/time-histogram.ts';

const SEGMENT_BYTES = 64_000;
const ROW_BYTES = 250;
/** What is kept of a stream on its way, as the exporter keeps it: the rest is lost unseen. */
const REMEMBER_BYTES = 1_000;
const QUESTIONS_MAX = 10_000;

type Order = 'sorted' | 'rotated' | 'shuffled' | 'backwards';

/** Seconds of a ledger's rows; activity comes in bursts. */
const ledger = fc
  .record({
    rows: fc.integer({ min: 50, max: 6000 }),
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
    });
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
  const found = rows.filter((second) => second >= from && second < to).toSorted((a, b) => a - b);
  if (order === 'backwards') return found.toReversed();
  const random = noise(call);
  if (order === 'shuffled') return found.toSorted(() => random() - 0.5);
  const turn = order === 'rotated' ? Math.floor(random() * found.length) : 0;
  return [...found.slice(turn), ...found.slice(0, turn)];
}

interface Life {
  readonly plan: PiecePlan;
  readonly range: Range;
}

/** Exports a ledger to its end. @param kill says at which byte of an answer the process dies, if it does */
function exportAll(
  rows: readonly number[],
  order: Order,
  kill: (answerBytes: number) => number,
): { askedBytes: number; doneRows: number; questions: number } {
  const end = BigInt(Math.max(...rows) + 1) * SECOND_MICROS;
  let life: Life = { plan: new PiecePlan(SEGMENT_BYTES), range: { from: 0n, to: end } };
  let hint: unknown;
  let [askedBytes, doneRows, questions] = [0, 0, 0];
  while (life.range.from < end) {
    questions += 1;
    if (questions > QUESTIONS_MAX) throw new Error('it does not end');
    const cut = life.plan.cut(life.range);
    if (cut !== undefined && (cut <= life.range.from || cut >= life.range.to))
      throw new Error('no shorter piece');
    const asked = { from: life.range.from, to: cut ?? life.range.to };
    const answer = served(rows, asked, order, questions);
    const isWhole = secondOf(asked.to) - secondOf(asked.from) < 2;
    const limit = isWhole ? Number.POSITIVE_INFINITY : life.plan.streamBytesMax;
    const deadAt = kill(answer.length * ROW_BYTES);
    const { bytes, seen, remembered } = stream(answer, Math.min(limit + 1, deadAt), life.plan);
    askedBytes += bytes;
    if (bytes >= deadAt) {
      hint = remembered ?? hint;
      life = { plan: new PiecePlan(SEGMENT_BYTES, undefined, hint), range: life.range };
    } else if (bytes > limit) {
      life.plan.lost(seen, asked);
      hint = life.plan.toHint();
    } else {
      doneRows += answer.length;
      life.plan.done(asked, bytes, answer[0]);
      hint = life.plan.toHint();
      life = { ...life, range: { from: asked.to, to: end } };
    }
  }
  return { askedBytes, doneRows, questions };
}

function stream(
  answer: readonly number[],
  stopAt: number,
  plan: PiecePlan,
): { bytes: number; seen: Seen; remembered: unknown } {
  const histogram = new TimeHistogram();
  let [bytes, isSorted, last, rememberAt] = [0, true, Number.NEGATIVE_INFINITY, REMEMBER_BYTES];
  let remembered: unknown;
  const seen = (): Seen => ({ bytes, sample: histogram.sample(256), sortedTo: isSorted ? last : undefined });
  for (const second of answer) {
    histogram.add(second, ROW_BYTES);
    bytes += ROW_BYTES;
    isSorted &&= second >= last;
    last = second;
    if (bytes >= stopAt) break;
    if (bytes < rememberAt) continue;
    rememberAt = bytes + Math.max(REMEMBER_BYTES, Math.min(bytes / 4, plan.streamBytesMax / 8));
    plan.receiving(seen());
    remembered = plan.toHint();
  }
  return { bytes, seen: seen(), remembered };
}

/** As releases serve them: by time, or as rows lie in the table, from anywhere on. */
/** What is said of a sample is said of this one: another would now and then lie beyond a percentile. */
const SAMPLE_SEED = 4;
const order = fc.constantFrom<Order>('sorted', 'rotated');
const anyOrder = fc.constantFrom<Order>('sorted', 'rotated', 'shuffled', 'backwards');

function busiest(rows: readonly number[]): number {
  const counts = new Map<number, number>();
  for (const second of rows) counts.set(second, (counts.get(second) ?? 0) + 1);
  return Math.max(...counts.values());
}

describe('pieces', () => {
  test('tile the ledger, each shorter than what was too large, and waste little', () => {
    const ratios: number[] = [];
    fc.assert(
      fc.property(ledger, anyOrder, (rows, how) => {
        const { askedBytes, doneRows } = exportAll(rows, how, () => Number.POSITIVE_INFINITY);
        expect(doneRows).toBe(rows.length);
        ratios.push(askedBytes / (rows.length * ROW_BYTES));
      }),
      { numRuns: 100, seed: SAMPLE_SEED },
    );
    const sorted = ratios.toSorted((a, b) => a - b);
    expect(sorted[Math.floor(ratios.length / 2)]).toBeLessThan(2.2);
    expect(sorted.at(-1)).toBeLessThan(4);
  });

  test('bytes asked for stay below three times the ledger, however often the process is killed', () => {
    const ratios: number[] = [];
    fc.assert(
      fc.property(
        ledger,
        order,
        fc.nat(),
        fc.double({ min: 0.05, max: 0.5, noNaN: true }),
        (rows, how, seed, often) => {
          // A second cannot be divided, and what is smaller than a piece may be is asked for whole.
          fc.pre(rows.length * ROW_BYTES > SEGMENT_BYTES && busiest(rows) * ROW_BYTES < SEGMENT_BYTES / 32);
          const random = noise(seed);
          let kills = 0;
          const kill = (bytes: number): number => {
            if (kills >= 20 || random() > often) return Number.POSITIVE_INFINITY;
            kills += 1;
            return Math.max(ROW_BYTES, random() * bytes);
          };
          const { askedBytes, doneRows } = exportAll(rows, how, kill);
          expect(doneRows).toBe(rows.length);
          ratios.push(askedBytes / (rows.length * ROW_BYTES));
        },
      ),
      { numRuns: 150, seed: SAMPLE_SEED },
    );
    // Up to twenty kills, most of them where they hurt: bursts that no estimate foresees may cost more.
    expect(ratios.toSorted((a, b) => a - b)[Math.floor(ratios.length * 0.97)]).toBeLessThan(3);
  });

  test('a small ledger is asked for in one question', () => {
    const rows = Array.from({ length: 400 }, (_, index) => index * 10);
    expect(exportAll(rows, 'shuffled', () => Number.POSITIVE_INFINITY).questions).toBe(1);
  });

  test('whatever is remembered, a plan can be made of it', () => {
    fc.assert(
      fc.property(fc.anything(), fc.integer({ min: 2, max: 1000 }), (hint, length) => {
        const plan = new PiecePlan(SEGMENT_BYTES, undefined, hint);
        const range = { from: 5n * SECOND_MICROS, to: BigInt(5 + length) * SECOND_MICROS };
        expect(plan.cut(range)).toBeUndefined();
      }),
    );
  });
});
