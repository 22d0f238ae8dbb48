/** What the blocks of an answer add up to, and where their rows go: each range of the plan becomes one object. */
import type { Micros } from '../../core/time.ts';
import { RowSum } from '../../ledger/row-sum.ts';
import { secondOf } from '../plan/ranges.ts';
import type { AskPlan } from '../plan/remaining.ts';
import { type Stretch, TimeHistogram } from '../plan/time-histogram.ts';
import type { BlockFindings, SpanFindings } from '../read/block-reader.ts';
import type { Tail } from '../validate/tail.ts';
import { RangeSpool, type Spooled, type SpoolOptions } from './range-spool.ts';

/** A range of the plan with what was received for it; nothing lies in it where `spooled` is missing. */
export interface ReceivedSegment {
  readonly from: Micros;
  /** Absent: the open part of a plan without an end. */
  readonly to: Micros | undefined;
  readonly open: boolean;
  readonly spooled: Spooled | undefined;
}

interface Part {
  readonly range: Omit<ReceivedSegment, 'spooled'>;
  readonly spool: RangeSpool;
}

export class AnswerRows implements AsyncDisposable {
  rows = 0;
  /** Rows that lie between the parts, known already. */
  known = 0;
  /** Of the rows before the first part, and how many of them are out of an account of the party. */
  readonly before = new RowSum();
  beforeFrom = 0;
  /** Rows that were not asked for. */
  readonly left = { party: 0, asset: 0, range: 0 };
  farOutside = 0;
  leaving = 0;
  leavingSecond: number | undefined;
  /** Of the rows in the parts. */
  newestSecond: number | undefined;
  oldestSecond: number | undefined;
  readonly #parts: readonly Part[];
  readonly #tail: Tail | undefined;
  /** Bytes by time of the closed ranges. */
  readonly #histogram = new TimeHistogram();
  #lastSecond = Number.NEGATIVE_INFINITY;
  #isSorted = true;

  constructor({ closed, open }: AskPlan, tail: Tail | undefined, options: SpoolOptions) {
    this.#tail = tail;
    const ranges = closed.map((range) => ({ ...range, open: false }));
    const present = open === undefined ? [] : [{ from: open.from, to: open.to, open: true }];
    this.#parts = [...ranges, ...present].map((range) => {
      const to = range.to === undefined ? Number.POSITIVE_INFINITY : secondOf(range.to);
      return { range, spool: new RangeSpool(secondOf(range.from), to, options) };
    });
  }

  /** Where what is summed apart begins and ends. */
  get borders(): number[] {
    return [
      ...this.#parts.flatMap(({ spool }) => [spool.from, spool.to]),
      ...(this.#tail === undefined ? [] : [this.#tail.from, this.#tail.end]),
    ];
  }

  /** The last second, where none came before an earlier one. */
  get sortedTo(): number | undefined {
    return this.#isSorted && Number.isFinite(this.#lastSecond) ? this.#lastSecond : undefined;
  }

  /** Bytes by time of the closed ranges. */
  stretches(): readonly Stretch[] {
    return this.#histogram.stretches();
  }

  /** In the order of the answer. */
  add(findings: BlockFindings): void {
    const { leftOut, leavingSecond } = findings;
    this.rows += findings.rows;
    this.left.party += leftOut.party;
    this.left.asset += leftOut.asset;
    this.left.range += leftOut.range;
    this.farOutside += findings.farOutside;
    this.leaving += findings.leaving;
    if (findings.leaving > 0)
      this.leavingSecond = Math.max(leavingSecond, this.leavingSecond ?? leavingSecond);
    if (!findings.isSorted || findings.firstSecond < this.#lastSecond) this.#isSorted = false;
    if (findings.rows > 0) this.#lastSecond = findings.lastSecond;
    this.#tail?.add(findings.spans, findings.newest);
    for (const span of findings.spans) this.#addSpan(span);
  }

  /** Writes a block's rows where they belong. Resolves when there is room for more. */
  write(header: Buffer, block: Buffer, { spans, runs }: BlockFindings): Promise<unknown> {
    const parts = spans.map((span) => this.#partOf(span));
    for (let at = 0; at < runs.length; at += 3) {
      const [span = 0, start, end] = runs.subarray(at, at + 3);
      parts[span]?.spool.add(block.subarray(start, end));
    }
    return Promise.all(this.#parts.map(({ spool }) => spool.flush(header)));
  }

  async finish(): Promise<ReceivedSegment[]> {
    const received: ReceivedSegment[] = [];
    for (const { range, spool } of this.#parts) received.push({ ...range, spooled: await spool.finish() });
    return received;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { spool } of this.#parts) await spool[Symbol.asyncDispose]();
  }

  #addSpan(span: SpanFindings): void {
    const { from, sum, bytesBySecond } = span;
    const part = this.#partOf(span);
    if (part === undefined) {
      this.#addOther(span);
      return;
    }
    part.spool.sum.merge(sum);
    for (let at = 0; at < bytesBySecond.length; at += 2) {
      const [second = from, bytes = 0] = bytesBySecond.subarray(at, at + 2);
      this.newestSecond = Math.max(second, this.newestSecond ?? second);
      this.oldestSecond = Math.min(second, this.oldestSecond ?? second);
      if (!part.range.open) this.#histogram.add(second, bytes);
    }
  }

  /** Rows that go nowhere. */
  #addOther({ from, sum, fromRows }: SpanFindings): void {
    const [first, last] = [this.#parts[0], this.#parts.at(-1)];
    if (first === undefined || from < first.spool.from) {
      this.before.merge(sum);
      this.beforeFrom += fromRows;
    } else if (last !== undefined && from >= last.spool.to) this.left.range += sum.rows;
    else this.known += sum.rows;
  }

  /** Parts begin and end at borders of spans. */
  #partOf({ from }: SpanFindings): Part | undefined {
    return this.#parts.find(({ spool }) => spool.holds(from));
  }
}
