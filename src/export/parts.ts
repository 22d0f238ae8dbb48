/** Puts an answer's rows where they belong in the spool: each range of the plan becomes one object. */
import { type Micros, SECOND_MICROS } from '../core/time.ts';
import type { Compression } from '../ledger/object-keys.ts';
import type { AskPlan } from './remaining.ts';
import { larger, NOTHING_SEEN, type Sample } from './sample.ts';
import { type Spooled, SpoolWriter, Tally } from './spool-writer.ts';
import { secondOf } from './tail.ts';

export interface SpoolOptions {
  readonly compression: Compression;
  /** A new place in the spool. */
  readonly spoolFile: () => Promise<{ name: string; path: string }>;
}

/** A range of the plan with what was received for it; nothing lies in it where `spooled` is missing. */
export interface ReceivedPart {
  readonly from: Micros;
  /** Absent: the open part of a plan without an end. */
  readonly to: Micros | undefined;
  readonly open: boolean;
  readonly spooled: Spooled | undefined;
}

interface Part {
  readonly from: number;
  /** Exclusive; infinite for an open part without an end. */
  readonly to: number;
  readonly range: Omit<ReceivedPart, 'spooled'>;
  writer: SpoolWriter | undefined;
  /** Rows of the chunk in hand, as slices of it. */
  readonly pending: Buffer[];
  readonly tally: Tally;
}

export class Parts implements AsyncDisposable {
  readonly #parts: readonly Part[];
  readonly #options: SpoolOptions;
  /** The part that rows are going to, and the run of its rows in `#runBuffer`. */
  #current: Part | undefined;
  #runBuffer: Buffer | undefined;
  #runStart = 0;
  #runEnd = 0;

  constructor(plan: AskPlan, options: SpoolOptions) {
    this.#options = options;
    const ranges = plan.closed.map((range) => ({ ...range, open: false }));
    const open = plan.open === undefined ? [] : [{ from: plan.open.from, to: plan.open.to, open: true }];
    this.#parts = [...ranges, ...open].map((range) => ({
      from: secondOf(range.from),
      to: range.to === undefined ? Number.POSITIVE_INFINITY : secondOf(range.to),
      range,
      writer: undefined,
      pending: [],
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

  /** @returns false where no range holds this second */
  add(second: number, hash: string, zone: number, buffer: Buffer, start: number, next: number): boolean {
    const part = this.#partOf(second);
    if (part === undefined) return false;
    part.tally.add(hash, second, zone, next - start);
    if (part !== this.#current || buffer !== this.#runBuffer || start !== this.#runEnd) {
      this.#endRun();
      this.#current = part;
      this.#runBuffer = buffer;
      this.#runStart = start;
    }
    this.#runEnd = next;
    return true;
  }

  /** Writes what was added; resolves when there is room for more. */
  async flush(header: Buffer): Promise<void> {
    this.#endRun();
    for (const part of this.#parts) {
      if (part.pending.length === 0) continue;
      part.writer ??= await SpoolWriter.create(
        await this.#options.spoolFile(),
        header,
        this.#options.compression,
        part.tally,
      );
      await part.writer.writeAll(part.pending);
    }
  }

  async finish(): Promise<ReceivedPart[]> {
    const received: ReceivedPart[] = [];
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

  #partOf(second: number): Part | undefined {
    const current = this.#current;
    if (current !== undefined && second >= current.from && second < current.to) return current;
    return this.#parts.find((part) => second >= part.from && second < part.to);
  }

  #endRun(): void {
    if (this.#current !== undefined && this.#runBuffer !== undefined) {
      this.#current.pending.push(this.#runBuffer.subarray(this.#runStart, this.#runEnd));
    }
    this.#runBuffer = undefined;
  }
}

/** The instant a second begins. */
export function instantOf(second: number): Micros {
  return BigInt(second) * SECOND_MICROS;
}
