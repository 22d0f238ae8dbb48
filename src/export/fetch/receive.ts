/**
 * Reads one answer to its end: every row checked, summed and put where it belongs in the spool. Returns
 * only what was proven whole; on any failure nothing of it is kept.
 */
import { hash } from 'node:crypto';
import { RetryableError } from '../../core/errors.ts';
import { gluedError } from '../../ledger/answer/glued-error.ts';
import { type Layout, readHeader } from '../../ledger/header.ts';
import { RowSplitter } from '../../ledger/row-splitter.ts';
import type { RowSum } from '../../ledger/row-sum.ts';
import { BlockCutter } from '../read/block-cutter.ts';
import { BlockFlight } from '../read/block-flight.ts';
import {
  type BlockFindings,
  readBlock,
  type RowQuestion,
  type Seconds,
  type UnreadRow,
} from '../read/block-reader.ts';
import type { Unreadable } from '../read/row-filter.ts';
import type { SpoolOptions } from '../spool/range-spool.ts';
import { AnswerRows, type ReceivedSegment } from '../spool/answer-rows.ts';
import type { Seen } from '../plan/window-plan.ts';
import type { ExportAnswer, WindowRequest, ExportScope } from '../ports.ts';
import type { AskPlan } from '../plan/remaining.ts';
import { BLOCK_SIZES, type RowPool } from '../read/row-pool.ts';
import { secondOf } from '../plan/ranges.ts';
import { Tail } from '../validate/tail.ts';

const LINE_END = Buffer.from('\n');
/** Enough of what could not be read to find an error message in it. */
const ERROR_SAMPLE_BYTES = 64 * 2 ** 10;
/** Entries' own times, by which some releases filter, lie up to so much behind the time that is exported. */
const PAD_SECONDS = 2;

export interface ReceiveOptions extends SpoolOptions {
  /** Absent: all rows are read on this thread. */
  readonly rowPool?: RowPool | undefined;
  /** What the continuation of a window may ask for again. */
  readonly tailBytesMax: number;
  /**
   * Called after each chunk.
   * @returns false: the answer is cancelled, as too large to be risked whole
   */
  readonly mayGoOn: (receiver: Receiving) => boolean;
  /** Whether the source ends its answers without a line end. Absent: it never does. */
  readonly leavesLineEndOut?: (header: string) => Promise<boolean>;
}

/** How far an answer has come. */
export type Receiving = Pick<Receiver, 'bytes' | 'rows' | 'layout' | 'leavingSecond' | 'seen'>;

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
  readonly state: 'complete';
  readonly segments: readonly ReceivedSegment[];
  readonly tail: Tail | undefined;
  /** The sum of the rows before the first part: what the overlap's tail must equal. */
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
  /** The transport said where it ends. */
  readonly isFramed: boolean;
  /** SHA-256 of the last line, where it has no line end: only another answer can show that it is whole. */
  readonly openLine: string | undefined;
  readonly seen: Seen;
}

/** An answer that was cancelled. */
export interface Outgrown {
  readonly state: 'outgrown';
  /** Absent where not even its header came. */
  readonly traits: Traits | undefined;
  readonly bytes: number;
  readonly seen: Seen;
}

/**
 * @param question what was asked of the source; the plan's, or a superset of it
 * @throws RetryableError `SOURCE_ERROR_IN_STREAM`, `SOURCE_TRUNCATED`, `ANSWER_EMPTY`, `ROW_FIELDS`, `ROW_TIME`, `ROW_PARTY`, `ROW_VALUE`,
 *   `ROW_THREAD_LOST`
 * @throws PermanentError what the header and the row splitter say
 */
export async function receive(
  answer: ExportAnswer,
  scope: ExportScope,
  plan: AskPlan,
  question: Pick<WindowRequest, 'from' | 'to'>,
  options: ReceiveOptions,
): Promise<Received | Outgrown> {
  await using receiver = new Receiver(scope, plan, question, options);
  for await (const chunk of untilBroken(answer.chunks, () => receiver.settle())) {
    await receiver.push(chunk);
    if (!options.mayGoOn(receiver)) return await receiver.cancelled();
  }
  return await receiver.end(answer);
}

/** What was received before the source broke off is read first: what is wrong with it came first. */
async function* untilBroken(
  chunks: AsyncIterable<Buffer>,
  settle: () => Promise<void>,
): AsyncGenerator<Buffer, void, undefined> {
  try {
    yield* chunks;
  } catch (error) {
    await settle();
    throw error;
  }
}

const UNREADABLE_CODES: Readonly<Record<Unreadable, string>> = {
  fields: 'ROW_FIELDS',
  time: 'ROW_TIME',
  spelling: 'ROW_PARTY',
  value: 'ROW_VALUE',
};

class Receiver implements AsyncDisposable {
  readonly #scope: ExportScope;
  readonly #options: ReceiveOptions;
  readonly #sizes: typeof BLOCK_SIZES;
  readonly #cutter = new BlockCutter();
  readonly #flight: BlockFlight | undefined;
  /** What is kept; and what was asked for, with room for a time that is not exported. */
  readonly #kept: Seconds;
  readonly #asked: Seconds;
  readonly #tail: Tail | undefined;
  readonly #totals: AnswerRows;
  #header: Buffer | undefined;
  #question: RowQuestion | undefined;
  /** All that came, and what of it was read. */
  #bytes = 0;
  #offset = 0;

  constructor(
    scope: ExportScope,
    plan: AskPlan,
    question: Pick<WindowRequest, 'from' | 'to'>,
    options: ReceiveOptions,
  ) {
    this.#scope = scope;
    this.#options = options;
    this.#sizes = options.rowPool?.sizes ?? BLOCK_SIZES;
    this.#kept = secondsOf(plan.question);
    const asked = secondsOf(question);
    this.#asked = { from: asked.from - PAD_SECONDS, to: asked.to + PAD_SECONDS };
    const closedEnd = plan.closed.at(-1)?.to;
    this.#tail =
      closedEnd === undefined
        ? undefined
        : new Tail(plan.question.from ?? 0n, closedEnd, plan.isWindow ? options.tailBytesMax : undefined);
    this.#totals = new AnswerRows(plan, this.#tail, options);
    if (options.rowPool !== undefined) {
      this.#flight = new BlockFlight(options.rowPool, (rows, findings) => this.#take(rows, findings));
    }
  }

  get bytes(): number {
    return this.#bytes;
  }

  get rows(): number {
    return this.#totals.rows;
  }

  get layout(): Layout | undefined {
    return this.#question?.layout;
  }

  /** Of the newest entry that left the party. */
  get leavingSecond(): number | undefined {
    return this.#totals.leavingSecond;
  }

  seen(): Seen {
    return {
      bytes: this.#bytes,
      stretches: this.#totals.stretches(),
      sortedTo: this.#totals.sortedTo,
    };
  }

  async push(chunk: Buffer): Promise<void> {
    this.#bytes += chunk.length;
    const { beginningBytes, blockBytes } = this.#sizes;
    for (let from = 0; from < chunk.length; from += blockBytes) {
      this.#cutter.push(chunk.subarray(from, from + blockBytes));
      await this.#read(this.#bytes > beginningBytes ? this.#flight : undefined);
    }
  }

  /** Resolves when all whole rows that came are read. @throws what is wrong with them */
  async settle(): Promise<void> {
    await this.#flight?.landed();
    await this.#read();
  }

  async cancelled(): Promise<Outgrown> {
    await this.settle();
    return { state: 'outgrown', traits: this.#traits, bytes: this.#bytes, seen: this.seen() };
  }

  async end(answer: ExportAnswer): Promise<Received> {
    await this.settle();
    const openLine = await this.#readOpenLine();
    const { rest } = this.#cutter;
    if (rest.length > 0) {
      throw gluedError(rest, BigInt(this.#offset)) ?? this.#truncated(rest);
    }
    const traits = this.#traits;
    if (traits === undefined) {
      throw new RetryableError(
        'Cannot export: the source answered 200 with nothing, not even a header; ask again',
        { code: 'ANSWER_EMPTY', meta: this.#where() },
      );
    }
    const { left, before, beforeFrom, known, rows, newestSecond, oldestSecond } = this.#totals;
    return {
      state: 'complete',
      ...traits,
      segments: await this.#totals.finish(),
      tail: this.#tail,
      before,
      beforeFrom,
      leftOut: { party: BigInt(left.party), asset: BigInt(left.asset), range: BigInt(left.range) },
      known,
      bytes: this.#offset,
      rows,
      newestSecond,
      oldestSecond,
      contentType: answer.contentType,
      extensions: answer.extensions(),
      isFramed: answer.isFramed,
      openLine,
      seen: this.seen(),
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#flight?.stop();
    await this.#totals[Symbol.asyncDispose]();
  }

  /** RFC 4180 lets a last line go without its line end. @returns its sum, where it was read */
  async #readOpenLine(): Promise<string | undefined> {
    const { rest } = this.#cutter;
    if (rest.length === 0 || gluedError(rest, 0n) !== undefined) return undefined;
    const header = (this.#header ?? rest).toString('latin1').replace(/\r?\n$/, '');
    if ((await this.#options.leavesLineEndOut?.(header)) !== true) return undefined;
    const sum = hash('sha256', rest, 'hex');
    this.#cutter.push(LINE_END);
    await this.#read();
    return sum;
  }

  get #traits(): Traits | undefined {
    const [layout, header] = [this.layout, this.#header];
    const { farOutside, leaving, leavingSecond } = this.#totals;
    return layout && header && { layout, header, farOutside, leaving, leavingSecond };
  }

  /** Reads the whole rows that came: here, or once they fill a block, on a thread. */
  async #read(flight?: BlockFlight): Promise<void> {
    const block = this.#cutter.take(flight === undefined ? 0 : this.#sizes.blockBytes);
    if (block === undefined) return;
    const isFirst = this.#question === undefined;
    const question = (this.#question ??= this.#readHeader(block));
    const rows = isFirst ? block.subarray(this.#offset) : block;
    if (flight === undefined) await this.#take(rows, readBlock(question, rows));
    else await flight.send(question, rows);
  }

  #readHeader(block: Buffer): RowQuestion {
    const { line, next } = firstRow(block);
    const failed = gluedError(block.subarray(0, next), 0n);
    if (failed !== undefined) throw failed;
    const layout = readHeader(line);
    this.#header = Buffer.from(block.subarray(0, next));
    this.#offset = next;
    return {
      scope: this.#scope,
      layout,
      asked: this.#asked,
      kept: this.#kept,
      borders: bordersOf([this.#kept.from, this.#kept.to, ...this.#totals.borders]),
      tailEnd: this.#tail?.end,
    };
  }

  /** Adds what was found, and sends the rows on their way into the spool: resolves when there is room for more. */
  #take(rows: Buffer, findings: BlockFindings): Promise<unknown> {
    this.#totals.add(findings);
    if (findings.unread !== undefined) throw this.#notUnderstood(findings.unread, rows);
    this.#offset += rows.length;
    return this.#totals.write(this.#header ?? Buffer.alloc(0), rows, findings);
  }

  #notUnderstood({ finding, fieldCount, column, start, end }: UnreadRow, buffer: Buffer): Error {
    const offset = this.#offset + start;
    const failed = gluedError(buffer.subarray(start, start + ERROR_SAMPLE_BYTES), BigInt(offset));
    if (failed !== undefined) return failed;
    const states: Readonly<Record<Unreadable, string>> = {
      fields: `has ${fieldCount} fields where the header has ${this.layout?.columns.length ?? 0}`,
      time: 'has no time between 1970 and 9998',
      spelling: 'names a party in a spelling that is not known',
      value: `has a value of ${column ?? 'a column'} that no known release writes`,
    };
    const state = states[finding];
    return new RetryableError(
      `Cannot export: row ${this.#totals.rows + 1} at byte ${offset} ${state}; nothing was published, ask again`,
      {
        code: UNREADABLE_CODES[finding],
        meta: {
          ...this.#where(offset),
          sample: buffer.toString('latin1', start, Math.min(end, start + 160)),
        },
      },
    );
  }

  #truncated(rest: Buffer): RetryableError {
    return new RetryableError(
      `Cannot export: the answer ends in the middle of row ${this.#totals.rows + 1} at byte ${this.#offset + rest.length}; nothing was published, ask again`,
      { code: 'SOURCE_TRUNCATED', meta: this.#where() },
    );
  }

  #where(byteOffset = this.#offset): Record<string, unknown> {
    const range = [this.#kept.from, this.#kept.to].map((second) =>
      Number.isFinite(second) ? new Date(second * 1000).toISOString() : null,
    );
    return { ...this.#scope, byteOffset, row: this.#totals.rows + 1, asked: range };
  }
}

function secondsOf({ from, to }: Pick<WindowRequest, 'from' | 'to'>): { from: number; to: number } {
  return {
    from: from === undefined ? Number.NEGATIVE_INFINITY : secondOf(from),
    to: to === undefined ? Number.POSITIVE_INFINITY : secondOf(to),
  };
}

/** Without its line end, and where the next one begins. */
function firstRow(rows: Buffer): { readonly line: Buffer; readonly next: number } {
  let first: { readonly line: Buffer; readonly next: number } | undefined;
  new RowSplitter((buffer, start, end, next) => {
    first ??= { line: buffer.subarray(start, end), next };
  }).push(rows);
  return first ?? { line: rows, next: rows.length };
}

function bordersOf(seconds: readonly number[]): number[] {
  return [...new Set(seconds)].filter(Number.isFinite).toSorted((one, other) => one - other);
}
