/** Puts an answer's rows where they belong in the spool: each range of the plan becomes one object. */
import { type Micros, SECOND_MICROS } from '../../core/time.ts';
import type { Compression } from '../../ledger/objects/object-keys.ts';
import type { BlockFindings, Seconds, SpanFindings } from '../read/block-reader.ts';
import type { AskPlan } from '../plan/remaining.ts';
import { larger, NOTHING_SEEN, type Sample } from '../plan/sample.ts';
import { type Spooled, SpoolWriter, Tally } from './spool-writer.ts';
import { secondOf } from '../validate/tail.ts';

export interface SpoolOptions {
  readonly compression: Compression;
  /** A new place in the spool. */
  readonly spoolFile: () => Promise<{ name: string; path: string }>;
}

/** A range of the plan with what was received for it; nothing lies in it where `spooled` is missing. */
export interface ReceivedSegment {
  readonly from: Micros;
  /** Absent: the open part of a plan without an end. */
  readonly to: Micros | undefined;
  readonly open: boolean;
  readonly spooled: Spooled | undefined;
}

/** `to` is infinite for an open part without an end. */
interface Part extends Seconds {
  readonly range: Omit<ReceivedSegment, 'spooled'>;
  writer: SpoolWriter | undefined;
  readonly tally: Tally;
}

export class SegmentSpools implements AsyncDisposable {
  readonly #parts: readonly Part[];
  readonly #options: SpoolOptions;

  constructor(plan: AskPlan, options: SpoolOptions) {
    this.#options = options;
    const ranges = plan.closed.map((range) => ({ ...range, open: false }));
    const open = plan.open === undefined ? [] : [{ from: plan.open.from, to: plan.open.to, open: true }];
    this.#parts = [...ranges, ...open].map((range) => ({
      from: secondOf(range.from),
      to: range.to === undefined ? Number.POSITIVE_INFINITY : secondOf(range.to),
      range,
      writer: undefined,
      tally: new Tally(),
    }));
  }

  /** Where the first range begins; infinite where there is none. */
  get firstSecond(): number {
    return this.#parts[0]?.from ?? Number.POSITIVE_INFINITY;
  }

  /** Where the last one ends. */
  get endSecond(): number {
    return this.#parts.at(-1)?.to ?? Number.NEGATIVE_INFINITY;
  }

  get borders(): number[] {
    return this.#parts.flatMap(({ from, to }) => [from, to]);
  }

  /** @returns false where no range holds these rows */
  count(span: SpanFindings): boolean {
    const part = this.#partOf(span);
    part?.tally.merge(span);
    return part !== undefined;
  }

  /**
   * Writes a block's rows where they belong.
   * @returns resolves as soon as all is on its way, with what settles when the block's memory may be used again
   */
  async write(
    header: Buffer,
    block: Buffer,
    { spans, runs }: BlockFindings,
  ): Promise<{ readonly done: Promise<unknown> }> {
    const windows = new Map<Part, Buffer[]>();
    const parts = spans.map((span) => this.#partOf(span));
    const triples = mergedRuns(runs, parts);
    for (const { part, start, end } of triples) {
      const known = windows.get(part);
      if (known === undefined) windows.set(part, [block.subarray(start, end)]);
      else known.push(block.subarray(start, end));
    }
    const writes: Promise<void>[] = [];
    for (const [part, slices] of windows) {
      part.writer ??= await SpoolWriter.create(
        await this.#options.spoolFile(),
        header,
        this.#options.compression,
        part.tally,
      );
      writes.push(part.writer.writeJoined(slices));
    }
    return { done: Promise.all(writes) };
  }

  async finish(): Promise<ReceivedSegment[]> {
    const received: ReceivedSegment[] = [];
    for (const { range, writer } of this.#parts) received.push({ ...range, spooled: await writer?.finish() });
    return received;
  }

  /** Bytes by time of the closed ranges. */
  sample(bucketsMax: number): Sample {
    return this.#parts
      .filter(({ range }) => !range.open)
      .map(({ tally }) => tally.histogram.sample(bucketsMax))
      .reduce(larger, NOTHING_SEEN);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { writer } of this.#parts) await writer?.[Symbol.asyncDispose]();
  }

  /** Parts begin and end at borders of spans. */
  #partOf(span: SpanFindings): Part | undefined {
    return this.#parts.find((part) => span.from >= part.from && span.from < part.to);
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

/** The instant a second begins. */
export function instantOf(second: number): Micros {
  return BigInt(second) * SECOND_MICROS;
}
