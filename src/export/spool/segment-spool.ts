/** Puts an answer's rows where they belong in the spool: each range of the plan becomes one object. */
import type { Micros } from '../../core/time.ts';
import type { BlockFindings, SpanFindings } from '../read/block-reader.ts';
import type { AskPlan } from '../plan/remaining.ts';
import { type Stretch, TimeHistogram } from '../plan/time-histogram.ts';
import { RangeSpool, type SpoolOptions } from './range-spool.ts';
import type { Spooled } from './spool-writer.ts';
import { secondOf } from '../plan/ranges.ts';

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

export class SegmentSpools implements AsyncDisposable {
  readonly #parts: readonly Part[];
  /** Bytes by time of the closed ranges. */
  readonly #histogram = new TimeHistogram();

  constructor(plan: AskPlan, options: SpoolOptions) {
    const ranges = plan.closed.map((range) => ({ ...range, open: false }));
    const open = plan.open === undefined ? [] : [{ from: plan.open.from, to: plan.open.to, open: true }];
    this.#parts = [...ranges, ...open].map((range) => {
      const to = range.to === undefined ? Number.POSITIVE_INFINITY : secondOf(range.to);
      return { range, spool: new RangeSpool(secondOf(range.from), to, options) };
    });
  }

  /** Where the first range begins; infinite where there is none. */
  get firstSecond(): number {
    return this.#parts[0]?.spool.from ?? Number.POSITIVE_INFINITY;
  }

  /** Where the last one ends. */
  get endSecond(): number {
    return this.#parts.at(-1)?.spool.to ?? Number.NEGATIVE_INFINITY;
  }

  get borders(): number[] {
    return this.#parts.flatMap(({ spool }) => [spool.from, spool.to]);
  }

  /** @returns false where no range holds these rows */
  count(span: SpanFindings): boolean {
    const part = this.#partOf(span);
    if (part === undefined) return false;
    part.spool.sum.merge(span.sum);
    if (part.range.open) return true;
    const { bytesBySecond } = span;
    for (let at = 0; at < bytesBySecond.length; at += 2)
      this.#histogram.add(bytesBySecond[at] ?? 0, bytesBySecond[at + 1] ?? 0);
    return true;
  }

  /** Writes a block's rows where they belong. Resolves when the block's memory may be used again. */
  write(header: Buffer, block: Buffer, { spans, runs }: BlockFindings): Promise<unknown> {
    const parts = spans.map((span) => this.#partOf(span));
    for (const { part, start, end } of mergedRuns(runs, parts)) part.spool.add(block.subarray(start, end));
    return Promise.all(this.#parts.map(({ spool }) => spool.flush(header)));
  }

  async finish(): Promise<ReceivedSegment[]> {
    const received: ReceivedSegment[] = [];
    for (const { range, spool } of this.#parts) received.push({ ...range, spooled: await spool.finish() });
    return received;
  }

  /** Bytes by time of the closed ranges. */
  stretches(stretchesMax: number): readonly Stretch[] {
    return this.#histogram.stretches(stretchesMax);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { spool } of this.#parts) await spool[Symbol.asyncDispose]();
  }

  /** Parts begin and end at borders of spans. */
  #partOf(span: SpanFindings): Part | undefined {
    return this.#parts.find(({ spool }) => spool.holds(span.from));
  }
}

interface Run {
  readonly part: Part;
  readonly start: number;
  end: number;
}

/** Runs of several spans of one part, one behind the other, are one. */
function mergedRuns(runs: Float64Array, parts: readonly (Part | undefined)[]): Run[] {
  const merged: Run[] = [];
  for (let at = 0; at < runs.length; at += 3) {
    const [span = 0, start = 0, end = 0] = runs.subarray(at, at + 3);
    const part = parts[span];
    const last = merged.at(-1);
    if (part !== undefined && last?.part === part && last.end === start) last.end = end;
    else if (part !== undefined) merged.push({ part, start, end });
  }
  return merged;
}
