/**
 * Reads one answer to its end: every row checked, summed and put where it belongs in the spool. Returns
 * only what was proven whole; on any failure nothing of it is kept.
 */
import { RetryableError } from '../core/errors.ts';
import { type Micros, SECOND_MICROS } from '../core/time.ts';
import { hashRow } from '../ledger/digest.ts';
import { gluedError } from '../ledger/glued-error.ts';
import { type Layout, readHeader } from '../ledger/header.ts';
import type { Compression } from '../ledger/object-keys.ts';
import { RowSplitter } from '../ledger/row-splitter.ts';
import { RowSum } from '../ledger/row-sum.ts';
import type { ExportAnswer, ExportUnit } from './ports.ts';
import type { AskPlan } from './remaining.ts';
import { RowFilter, type RowFinding } from './row-filter.ts';
import { type Spooled, SpoolWriter, Tally } from './spool-writer.ts';
import { secondOf, Tail } from './tail.ts';

/** Enough of what could not be read to find an error message in it. */
const ERROR_SAMPLE_BYTES = 64 * 2 ** 10;

export interface ReceiveOptions {
  readonly compression: Compression;
  /** A new place in the spool. */
  readonly spoolFile: () => Promise<{ name: string; path: string }>;
  readonly onProgress: (progress: { readonly bytes: number; readonly rows: number }) => void;
}

/** A range of the plan with what was received for it; nothing lies in it where `spooled` is missing. */
export interface ReceivedPart {
  readonly from: Micros;
  /** Absent: the open part of a plan without an end. */
  readonly to: Micros | undefined;
  readonly open: boolean;
  readonly spooled: Spooled | undefined;
}

export interface Received {
  readonly layout: Layout;
  /** The header line as sent, with its line end. */
  readonly header: Buffer;
  readonly parts: readonly ReceivedPart[];
  readonly tail: Tail | undefined;
  /** The sum of the rows before the first part: what the anchor's tail must equal. */
  readonly before: RowSum;
  /** Rows that were not asked for. */
  readonly leftOut: { readonly party: bigint; readonly asset: bigint; readonly range: bigint };
  /** Rows that lie between the parts, known already. */
  readonly known: number;
  readonly bytes: number;
  readonly rows: number;
  readonly newestSecond: number | undefined;
  readonly contentType: string | undefined;
  readonly extensions: readonly unknown[];
}

/**
 * @throws RetryableError `SOURCE_ERROR_IN_STREAM`, `SOURCE_TRUNCATED`, `ANSWER_EMPTY`, `ROW_FIELDS`, `ROW_TIME`
 * @throws PermanentError what the header and the row splitter say
 */
export async function receive(
  answer: ExportAnswer,
  unit: ExportUnit,
  plan: AskPlan,
  options: ReceiveOptions,
): Promise<Received> {
  await using receiver = new Receiver(unit, plan, options);
  for await (const chunk of answer.chunks) await receiver.push(chunk);
  return await receiver.end(answer);
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

class Receiver implements AsyncDisposable {
  readonly #unit: ExportUnit;
  readonly #options: ReceiveOptions;
  readonly #splitter = new RowSplitter((buffer, start, end, next) => this.#row(buffer, start, end, next));
  readonly #parts: readonly Part[];
  readonly #askedFrom: number;
  readonly #askedTo: number;
  readonly #tail: Tail | undefined;
  readonly #before = new RowSum();
  readonly #left = { party: 0, asset: 0, range: 0 };
  #header: Buffer | undefined;
  #layout: Layout | undefined;
  #filter: RowFilter | undefined;
  /** The part that rows are going to, and the run of its rows in `#runBuffer`. */
  #current: Part | undefined;
  #runBuffer: Buffer | undefined;
  #runStart = 0;
  #runEnd = 0;
  #offset = 0;
  #rows = 0;
  #known = 0;
  #newestSecond: number | undefined;

  constructor(unit: ExportUnit, plan: AskPlan, options: ReceiveOptions) {
    this.#unit = unit;
    this.#options = options;
    this.#parts = partsOf(plan);
    const asked = plan.question.from ?? 0n;
    this.#askedFrom = plan.question.from === undefined ? Number.NEGATIVE_INFINITY : secondOf(asked);
    this.#askedTo = plan.question.to === undefined ? Number.POSITIVE_INFINITY : secondOf(plan.question.to);
    const closedEnd = plan.closed.at(-1)?.to;
    this.#tail = closedEnd === undefined ? undefined : new Tail(asked, closedEnd);
  }

  async push(chunk: Buffer): Promise<void> {
    this.#splitter.push(chunk);
    this.#endRun();
    for (const part of this.#parts) {
      if (part.pending.length > 0) await this.#flush(part);
    }
    this.#options.onProgress({ bytes: this.#offset, rows: this.#rows });
  }

  async end(answer: ExportAnswer): Promise<Received> {
    const rest = this.#splitter.rest();
    if (rest.length > 0) {
      throw gluedError(rest, BigInt(this.#offset)) ?? this.#truncated(rest);
    }
    const [layout, header] = [this.#layout, this.#header];
    if (layout === undefined || header === undefined) {
      throw new RetryableError(
        'Cannot export: the source answered 200 with nothing, not even a header; ask again',
        {
          code: 'ANSWER_EMPTY',
          meta: this.#where(),
        },
      );
    }
    const parts: ReceivedPart[] = [];
    for (const { range, writer } of this.#parts) parts.push({ ...range, spooled: await writer?.finish() });
    return {
      layout,
      header,
      parts,
      tail: this.#tail,
      before: this.#before,
      leftOut: {
        party: BigInt(this.#left.party),
        asset: BigInt(this.#left.asset),
        range: BigInt(this.#left.range),
      },
      known: this.#known,
      bytes: this.#offset,
      rows: this.#rows,
      newestSecond: this.#newestSecond,
      contentType: answer.contentType,
      extensions: answer.extensions(),
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { writer } of this.#parts) await writer?.[Symbol.asyncDispose]();
  }

  #row(buffer: Buffer, start: number, end: number, next: number): void {
    const filter = this.#filter;
    if (filter === undefined) this.#readHeader(buffer, start, end, next);
    // A blank line is no row; gateways add some between their messages.
    else if (end > start) this.#entry(filter, buffer, start, end, next);
    this.#offset += next - start;
  }

  #readHeader(buffer: Buffer, start: number, end: number, next: number): void {
    const failed = gluedError(buffer.subarray(start, next), BigInt(this.#offset));
    if (failed !== undefined) throw failed;
    this.#layout = readHeader(buffer.subarray(start, end));
    this.#header = Buffer.from(buffer.subarray(start, next));
    this.#filter = new RowFilter(this.#unit, this.#layout);
  }

  #entry(filter: RowFilter, buffer: Buffer, start: number, end: number, next: number): void {
    const finding = filter.check(buffer, start, end);
    if (finding === 'fields' || finding === 'time')
      throw this.#notUnderstood(finding, filter, buffer, start, end);
    this.#rows += 1;
    if (finding !== 'ok') {
      this.#left[finding] += 1;
      return;
    }
    const { second, zoneSeconds: zone } = filter.time;
    if (second < this.#askedFrom || second >= this.#askedTo) {
      this.#left.range += 1;
      return;
    }
    const hash = hashRow(buffer, start, end);
    this.#tail?.add(second, hash, zone);
    const part = this.#partOf(second);
    if (part === undefined) this.#outsideParts(second, hash, zone);
    else {
      if (this.#newestSecond === undefined || second > this.#newestSecond) this.#newestSecond = second;
      part.tally.add(hash, second, zone, next - start);
      this.#extendRun(part, buffer, start, next);
    }
  }

  #outsideParts(second: number, hash: string, zone: number): void {
    const first = this.#parts[0];
    if (first !== undefined && second < first.from) this.#before.add(hash, zone);
    else this.#known += 1;
  }

  #partOf(second: number): Part | undefined {
    const current = this.#current;
    if (current !== undefined && second >= current.from && second < current.to) return current;
    return this.#parts.find((part) => second >= part.from && second < part.to);
  }

  #extendRun(part: Part, buffer: Buffer, start: number, next: number): void {
    if (part !== this.#current || buffer !== this.#runBuffer || start !== this.#runEnd) {
      this.#endRun();
      this.#current = part;
      this.#runBuffer = buffer;
      this.#runStart = start;
    }
    this.#runEnd = next;
  }

  #endRun(): void {
    if (this.#current !== undefined && this.#runBuffer !== undefined) {
      this.#current.pending.push(this.#runBuffer.subarray(this.#runStart, this.#runEnd));
    }
    this.#runBuffer = undefined;
  }

  async #flush(part: Part): Promise<void> {
    part.writer ??= await SpoolWriter.create(
      await this.#options.spoolFile(),
      this.#header ?? Buffer.alloc(0),
      this.#options.compression,
      part.tally,
    );
    await part.writer.writeAll(part.pending);
  }

  #notUnderstood(
    finding: Extract<RowFinding, 'fields' | 'time'>,
    filter: RowFilter,
    buffer: Buffer,
    start: number,
    end: number,
  ): Error {
    const tail = buffer.subarray(start, start + ERROR_SAMPLE_BYTES);
    const failed = gluedError(tail, BigInt(this.#offset));
    if (failed !== undefined) return failed;
    const state =
      finding === 'fields'
        ? `has ${filter.fieldCount} fields where the header has ${this.#layout?.columns.length ?? 0}`
        : 'has no time that can be read';
    return new RetryableError(
      `Cannot export: row ${this.#rows + 1} at byte ${this.#offset} ${state}; nothing was published, ask again`,
      {
        code: finding === 'fields' ? 'ROW_FIELDS' : 'ROW_TIME',
        meta: { ...this.#where(), sample: buffer.toString('latin1', start, Math.min(end, start + 160)) },
      },
    );
  }

  #truncated(rest: Buffer): RetryableError {
    return new RetryableError(
      `Cannot export: the answer ends in the middle of row ${this.#rows + 1} at byte ${this.#offset + rest.length}; nothing was published, ask again`,
      { code: 'SOURCE_TRUNCATED', meta: this.#where() },
    );
  }

  #where(): Record<string, unknown> {
    const range = [this.#askedFrom, this.#askedTo].map((second) =>
      Number.isFinite(second) ? new Date(second * 1000).toISOString() : null,
    );
    return { ...this.#unit, byteOffset: this.#offset, row: this.#rows + 1, asked: range };
  }
}

function partsOf(plan: AskPlan): Part[] {
  const ranges = plan.closed.map((range) => ({ ...range, open: false }));
  const open = plan.open === undefined ? [] : [{ from: plan.open.from, to: plan.open.to, open: true }];
  return [...ranges, ...open].map((range) => ({
    from: secondOf(range.from),
    to: range.to === undefined ? Number.POSITIVE_INFINITY : secondOf(range.to),
    range,
    writer: undefined,
    pending: [],
    tally: new Tally(),
  }));
}

/** The instant a second begins. */
export function instantOf(second: number): Micros {
  return BigInt(second) * SECOND_MICROS;
}
