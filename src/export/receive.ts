/**
 * Reads one answer to its end: every row checked, summed and put where it belongs in the spool. Returns
 * only what was proven whole; on any failure nothing of it is kept.
 */
import { RetryableError } from '../core/errors.ts';
import { hashRow } from '../ledger/digest.ts';
import { gluedError } from '../ledger/glued-error.ts';
import { type Layout, readHeader } from '../ledger/header.ts';
import { RowSplitter } from '../ledger/row-splitter.ts';
import { RowSum } from '../ledger/row-sum.ts';
import { Parts, type ReceivedPart, type SpoolOptions } from './parts.ts';
import type { Seen } from './piece-plan.ts';
import type { ExportAnswer, ExportQuestion, ExportUnit } from './ports.ts';
import type { AskPlan } from './remaining.ts';
import { RowFilter, type RowFinding } from './row-filter.ts';
import { secondOf, Tail } from './tail.ts';

/** Enough of what could not be read to find an error message in it. */
const ERROR_SAMPLE_BYTES = 64 * 2 ** 10;
/** What is kept of where the bytes lie in time. */
const BUCKETS_MAX = 256;
/** Entries' own times, by which some releases filter, lie up to so much behind the time that is exported. */
const PAD_SECONDS = 2;

export interface ReceiveOptions extends SpoolOptions {
  /** What the continuation of a piece may ask for again. */
  readonly tailBytesMax: number;
  readonly onProgress: (progress: { readonly bytes: number; readonly rows: number }) => void;
  /**
   * Called after each chunk.
   * @returns false: the answer is cancelled, as too large to be risked whole
   */
  readonly mayGoOn: (receiver: Receiving) => Promise<boolean>;
}

/** How far an answer has come. */
export interface Receiving {
  readonly bytes: number;
  readonly layout: Layout | undefined;
  /** Of the newest entry that left the party. */
  readonly leavingSecond: number | undefined;
  seen(): Seen;
}

/** What the whole of an answer says about the release that gave it. */
export interface Traits {
  readonly layout: Layout;
  /** The header line as sent, with its line end. */
  readonly header: Buffer;
  /** Rows of the party far outside the bounds that were asked for: they are not applied. */
  readonly farOutside: number;
  /** Rows in the range that was asked for that left the party. */
  readonly leaving: number;
  readonly leavingSecond: number | undefined;
}

export interface Received extends Traits {
  readonly state: 'whole';
  readonly parts: readonly ReceivedPart[];
  readonly tail: Tail | undefined;
  /** The sum of the rows before the first part: what the anchor's tail must equal. */
  readonly before: RowSum;
  /** How many of them are out of an account of the party. */
  readonly beforeFrom: number;
  /** Rows that were not asked for. */
  readonly leftOut: { readonly party: bigint; readonly asset: bigint; readonly range: bigint };
  /** Rows that lie between the parts, known already. */
  readonly known: number;
  readonly bytes: number;
  readonly rows: number;
  readonly newestSecond: number | undefined;
  readonly oldestSecond: number | undefined;
  readonly contentType: string | undefined;
  readonly extensions: readonly unknown[];
  readonly seen: Seen;
}

/** An answer that was cancelled. */
export interface Outgrown extends Partial<Traits> {
  readonly state: 'outgrown';
  readonly bytes: number;
  readonly seen: Seen;
}

/**
 * @param question what was asked of the source; the plan's, or a superset of it
 * @throws RetryableError `SOURCE_ERROR_IN_STREAM`, `SOURCE_TRUNCATED`, `ANSWER_EMPTY`, `ROW_FIELDS`, `ROW_TIME`
 * @throws PermanentError what the header and the row splitter say
 */
export async function receive(
  answer: ExportAnswer,
  unit: ExportUnit,
  plan: AskPlan,
  question: Pick<ExportQuestion, 'from' | 'to'>,
  options: ReceiveOptions,
): Promise<Received | Outgrown> {
  await using receiver = new Receiver(unit, plan, question, options);
  for await (const chunk of answer.chunks) {
    await receiver.push(chunk);
    if (!(await options.mayGoOn(receiver))) return receiver.cancelled();
  }
  return await receiver.end(answer);
}

class Receiver implements AsyncDisposable, Receiving {
  readonly #unit: ExportUnit;
  readonly #options: ReceiveOptions;
  readonly #splitter = new RowSplitter((buffer, start, end, next) => this.#row(buffer, start, end, next));
  readonly #parts: Parts;
  /** What is kept, in seconds; and what was asked for, with room for a time that is not exported. */
  readonly #kept: { readonly from: number; readonly to: number };
  readonly #asked: { readonly from: number; readonly to: number };
  readonly #tail: Tail | undefined;
  readonly #before = new RowSum();
  readonly #left = { party: 0, asset: 0, range: 0 };
  readonly #traits = { farOutside: 0, leaving: 0 };
  #header: Buffer | undefined;
  #layout: Layout | undefined;
  #filter: RowFilter | undefined;
  #offset = 0;
  #rows = 0;
  #known = 0;
  #beforeFrom = 0;
  #newestSecond: number | undefined;
  #oldestSecond: number | undefined;
  #leavingSecond: number | undefined;
  #lastSecond = Number.NEGATIVE_INFINITY;
  #isSorted = true;

  constructor(
    unit: ExportUnit,
    plan: AskPlan,
    question: Pick<ExportQuestion, 'from' | 'to'>,
    options: ReceiveOptions,
  ) {
    this.#unit = unit;
    this.#options = options;
    this.#parts = new Parts(plan, options);
    this.#kept = secondsOf(plan.question);
    const asked = secondsOf(question);
    this.#asked = { from: asked.from - PAD_SECONDS, to: asked.to + PAD_SECONDS };
    const closedEnd = plan.closed.at(-1)?.to;
    this.#tail =
      closedEnd === undefined
        ? undefined
        : new Tail(plan.question.from ?? 0n, closedEnd, plan.isPiece ? options.tailBytesMax : undefined);
  }

  get bytes(): number {
    return this.#offset;
  }

  get layout(): Layout | undefined {
    return this.#layout;
  }

  get leavingSecond(): number | undefined {
    return this.#leavingSecond;
  }

  seen(): Seen {
    return {
      bytes: this.#offset,
      sample: this.#parts.sample(BUCKETS_MAX),
      sortedTo: this.#isSorted && Number.isFinite(this.#lastSecond) ? this.#lastSecond : undefined,
    };
  }

  async push(chunk: Buffer): Promise<void> {
    this.#splitter.push(chunk);
    await this.#parts.flush(this.#header ?? Buffer.alloc(0));
    this.#options.onProgress({ bytes: this.#offset, rows: this.#rows });
  }

  cancelled(): Outgrown {
    const seen = this.seen();
    const [layout, header] = [this.#layout, this.#header];
    if (layout === undefined || header === undefined) return { state: 'outgrown', bytes: this.#offset, seen };
    return { state: 'outgrown', bytes: this.#offset, seen, ...this.#traitsOf(layout, header) };
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
        { code: 'ANSWER_EMPTY', meta: this.#where() },
      );
    }
    const { party, asset, range } = this.#left;
    return {
      state: 'whole',
      ...this.#traitsOf(layout, header),
      parts: await this.#parts.finish(),
      tail: this.#tail,
      before: this.#before,
      beforeFrom: this.#beforeFrom,
      leftOut: { party: BigInt(party), asset: BigInt(asset), range: BigInt(range) },
      known: this.#known,
      bytes: this.#offset,
      rows: this.#rows,
      newestSecond: this.#newestSecond,
      oldestSecond: this.#oldestSecond,
      contentType: answer.contentType,
      extensions: answer.extensions(),
      seen: this.seen(),
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#parts[Symbol.asyncDispose]();
  }

  #traitsOf(layout: Layout, header: Buffer): Traits {
    return { layout, header, ...this.#traits, leavingSecond: this.#leavingSecond };
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
    const { second, zoneSeconds: zone } = filter.time;
    if (second < this.#lastSecond) this.#isSorted = false;
    this.#lastSecond = second;
    if (finding !== 'party' && (second < this.#asked.from || second >= this.#asked.to)) {
      this.#traits.farOutside += 1;
    }
    if (finding !== 'ok') {
      this.#left[finding] += 1;
      return;
    }
    if (second < this.#kept.from || second >= this.#kept.to) {
      this.#left.range += 1;
      return;
    }
    if (filter.leaves) this.#leave(second);
    const hash = hashRow(buffer, start, end);
    this.#tail?.add(second, hash, zone, next - start);
    if (this.#parts.add(second, hash, zone, buffer, start, next)) this.#reach(second);
    else if (second < this.#parts.firstSecond) {
      this.#before.add(hash, zone);
      if (filter.isFrom) this.#beforeFrom += 1;
    } else if (second >= this.#parts.endSecond) this.#left.range += 1;
    else this.#known += 1;
  }

  #leave(second: number): void {
    this.#traits.leaving += 1;
    if (this.#leavingSecond === undefined || second > this.#leavingSecond) this.#leavingSecond = second;
  }

  #reach(second: number): void {
    if (this.#newestSecond === undefined || second > this.#newestSecond) this.#newestSecond = second;
    if (this.#oldestSecond === undefined || second < this.#oldestSecond) this.#oldestSecond = second;
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
    const range = [this.#kept.from, this.#kept.to].map((second) =>
      Number.isFinite(second) ? new Date(second * 1000).toISOString() : null,
    );
    return { ...this.#unit, byteOffset: this.#offset, row: this.#rows + 1, asked: range };
  }
}

function secondsOf({ from, to }: Pick<ExportQuestion, 'from' | 'to'>): { from: number; to: number } {
  return {
    from: from === undefined ? Number.NEGATIVE_INFINITY : secondOf(from),
    to: to === undefined ? Number.POSITIVE_INFINITY : secondOf(to),
  };
}
