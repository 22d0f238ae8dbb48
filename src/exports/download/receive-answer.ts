/**
 * Reads a response to its end: every row is checked, summed and written to the spool
 * file of its range. The response is returned only if it is proven complete; after any
 * failure none of it is kept.
 */
import { hash } from 'node:crypto';
import { RetryableError } from '../../errors/errors.ts';
import { gluedError } from '../../ledger/answer/error-body.ts';
import { readHeader } from '../../ledger/header.ts';
import { RowSplitter } from '../../ledger/csv-rows.ts';
import type { PlannedRequest } from '../planning/next-window.ts';
import { secondOf } from '../../ledger/ranges.ts';
import type { RequestPlan } from '../planning/remaining.ts';
import type { StreamSeen } from '../planning/window-plan.ts';
import type { ExportScope } from '../../ledger/export-scope.ts';
import type { ExportAnswer } from '../ports.ts';
import {
  type BlockFindings,
  readBlock,
  type RowQuestion,
  type Seconds,
  type UnreadRow,
} from './block-reader.ts';
import { BLOCK_SIZES, openFlight, type RowPool } from './row-pool.ts';
import { AnswerRows, type AnswerRowsOptions } from './answer-rows.ts';

const LINE_END = Buffer.from('\n');
/**
 * Maximum number of bytes of an unreadable row that are searched for an error message.
 */
const ERROR_SAMPLE_BYTES = 64 * 2 ** 10;
/**
 * Maximum difference between an entry's own time and the exported time, in seconds. Some
 * releases filter by the entry's own time.
 */
const PAD_SECONDS = 2;

export interface ReceiveOptions extends AnswerRowsOptions {
  /** Threads that parse rows. If absent, the calling thread parses all of them. */
  readonly rowPool?: RowPool | undefined;
  /**
   * Called after each chunk.
   * @returns false to cancel the response, because it has grown too large
   */
  readonly mayGoOn: (receiver: Receiving) => boolean;
  /**
   * Whether the source omits the line break at the end of a response. If absent, it
   * never does.
   */
  readonly leavesLineEndOut?: (header: string) => Promise<boolean>;
}

/** The part of a response that has been received. */
export type Receiving = Pick<Receiver, 'bytes' | 'rows' | 'traits' | 'seen'>;

export type Traits = NonNullable<Receiver['traits']>;

/** A response that is proven complete. */
export type Received = Awaited<ReturnType<Receiver['end']>>;

/** A response that was cancelled. */
export interface Outgrown {
  readonly state: 'outgrown';
  /**
   * What the response reveals about the source's release; undefined if no CSV header
   * arrived.
   */
  readonly traits: Traits | undefined;
  readonly seen: StreamSeen;
}

type Question = Pick<PlannedRequest, 'plan' | 'request'> & {
  readonly scope: ExportScope;
};

/**
 * Receives a response.
 * @throws RetryableError `SOURCE_ERROR_IN_STREAM`, `SOURCE_TRUNCATED`, `ANSWER_EMPTY`,
 *   `ROW_FIELDS`, `ROW_TIME`, `ROW_PARTY`, `ROW_VALUE`, `ROW_THREAD_LOST`
 * @throws PermanentError from reading the header and splitting the rows
 */
export async function receive(
  answer: ExportAnswer,
  question: Question,
  options: ReceiveOptions,
): Promise<Received | Outgrown> {
  await using receiver = new Receiver(question, options);
  for await (const chunk of untilBroken(answer.chunks, () =>
    receiver.settle(),
  )) {
    await receiver.push(chunk);
    if (options.mayGoOn(receiver)) continue;
    await receiver.settle();
    return {
      state: 'outgrown',
      traits: receiver.traits,
      seen: receiver.seen(),
    };
  }
  return await receiver.end(answer);
}

/**
 * Yields the chunks of a response. If the source breaks off, the rows received before
 * that are read first, so that an error in them takes precedence.
 */
async function* untilBroken(
  chunks: AsyncIterable<Buffer>,
  settle: () => Promise<void>,
) {
  try {
    yield* chunks;
  } catch (error) {
    await settle();
    throw error;
  }
}

class Receiver implements AsyncDisposable {
  readonly #options: ReceiveOptions;
  readonly #splitter = new RowSplitter((buffer, start, end, next) => {
    if (this.#question === undefined)
      this.#readHeader(
        buffer.subarray(start, end),
        buffer.subarray(start, next),
      );
    else this.#hold(buffer, start, next);
  });
  readonly #flight: ReturnType<typeof openFlight> | undefined;
  readonly #rows: AnswerRows;
  /** The limits that the rows are checked against. */
  readonly #limits: Omit<RowQuestion, 'layout'>;
  /** `#limits` with the header's layout; undefined until the header has arrived. */
  #question: RowQuestion | undefined;
  #header: Buffer = Buffer.alloc(0);
  /**
   * Whole rows that have not been read yet; adjacent rows of a buffer share one slice.
   */
  #held: { readonly buffer: Buffer; readonly start: number; end: number }[] =
    [];
  #heldBytes = 0;
  /** How many bytes were received, and the offset up to which they were read. */
  bytes = 0;
  #offset = 0;

  constructor({ scope, plan, request }: Question, options: ReceiveOptions) {
    this.#options = options;
    const { rowPool } = options;
    this.#rows = new AnswerRows(plan, options);
    const asked = secondsOf(request);
    const kept = secondsOf(plan.question);
    const borders = [...new Set([kept.from, kept.to, ...this.#rows.borders])];
    this.#limits = {
      scope,
      // The range is padded, because a release may filter by a time that is not
      // exported.
      asked: { from: asked.from - PAD_SECONDS, to: asked.to + PAD_SECONDS },
      kept,
      borders: borders
        .filter(Number.isFinite)
        .toSorted((one, other) => one - other),
      tailEnd: this.#rows.tail?.end,
    };
    this.#flight =
      rowPool &&
      openFlight(rowPool, (rows, findings) => this.#take(rows, findings));
  }

  get rows(): number {
    return this.#rows.totals.rows;
  }

  /**
   * What the rows read so far show about the source's release; undefined until the
   * header has arrived.
   */
  get traits() {
    if (this.#question === undefined) return undefined;
    const { layout } = this.#question;
    /** The header line as sent, with its line break. */
    const header = this.#header;
    return { ...this.#rows.totals, layout, header };
  }

  seen(): StreamSeen {
    return { bytes: this.bytes, ...this.#rows.seen() };
  }

  async push(chunk: Buffer): Promise<void> {
    this.bytes += chunk.length;
    const { beginningBytes, blockBytes } =
      this.#options.rowPool?.sizes ?? BLOCK_SIZES;
    for (let from = 0; from < chunk.length; from += blockBytes) {
      this.#splitter.push(chunk.subarray(from, from + blockBytes));
      if (this.#flight === undefined || this.bytes <= beginningBytes)
        await this.#readHere();
      else if (this.#heldBytes >= blockBytes) await this.#sendBlock();
    }
  }

  /**
   * Resolves when all whole rows received so far have been read.
   * @throws the error of the first invalid row
   */
  async settle(): Promise<void> {
    await this.#flight?.landed();
    await this.#readHere();
  }

  async end({ isFramed }: ExportAnswer) {
    await this.settle();
    const openLine = await this.#readOpenLine();
    const rest = this.#splitter.rest();
    if (rest.length > 0)
      throw gluedError(rest, BigInt(this.#offset)) ?? this.#truncated(rest);
    const { traits } = this;
    if (traits === undefined) {
      throw new RetryableError(
        'Cannot export: the source sent status 200 with an empty body, ' +
          'without even a header; request it again',
        { code: 'ANSWER_EMPTY', meta: this.#where() },
      );
    }
    return {
      state: 'complete' as const,
      ...traits,
      /**
       * SHA-256 of the last line if it has no line break: only a second response can
       * show that the line is complete.
       */
      openLine,
      segments: await this.#rows.finish(),
      tail: this.#rows.tail,
      /** Whether the transport showed where the response ends. */
      isFramed,
      seen: this.seen(),
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#flight?.stop();
    await this.#rows[Symbol.asyncDispose]();
  }

  /**
   * Reads a final line that has no line break, as RFC 4180 allows.
   * @returns the SHA-256 of the line, or undefined if there was no such line
   */
  async #readOpenLine(): Promise<string | undefined> {
    const rest = this.#splitter.rest();
    if (rest.length === 0 || gluedError(rest, 0n) !== undefined)
      return undefined;
    const header = (this.#question ? this.#header : rest)
      .toString('latin1')
      .replace(/\r?\n$/, '');
    if ((await this.#options.leavesLineEndOut?.(header)) !== true)
      return undefined;
    this.#splitter.push(LINE_END);
    await this.#readHere();
    return hash('sha256', rest, 'hex');
  }

  /** Reads the whole rows received so far on the calling thread. */
  async #readHere(): Promise<void> {
    if (this.#question === undefined || this.#held.length === 0) return;
    const rows = this.#takeHeld(Buffer.allocUnsafe(this.#heldBytes));
    await this.#take(rows, readBlock(this.#question, rows));
  }

  /** Sends the whole rows received so far to a thread. */
  async #sendBlock(): Promise<void> {
    const { rowPool } = this.#options;
    if (this.#question === undefined || rowPool === undefined) return;
    const rows = this.#takeHeld(rowPool.memory.take(this.#heldBytes));
    await this.#flight?.send(this.#question, rows);
  }

  /**
   * Copies the whole rows received so far.
   * @param block memory with room for them
   * @returns the part of the block that they fill
   */
  #takeHeld(block: Buffer): Buffer {
    let bytes = 0;
    for (const { buffer, start, end } of this.#held)
      bytes += buffer.copy(block, bytes, start, end);
    this.#held = [];
    this.#heldBytes = 0;
    return block.subarray(0, bytes);
  }

  #readHeader(line: Buffer, sent: Buffer): void {
    this.#header = Buffer.from(sent);
    this.#offset = sent.length;
    const failed = gluedError(sent, 0n);
    if (failed !== undefined) throw failed;
    this.#question = { ...this.#limits, layout: readHeader(line) };
  }

  #hold(buffer: Buffer, start: number, end: number): void {
    this.#heldBytes += end - start;
    const last = this.#held.at(-1);
    if (last?.buffer === buffer && last.end === start) last.end = end;
    else this.#held.push({ buffer, start, end });
  }

  /**
   * Adds a block's findings, and passes its rows to the spool. Resolves when there is
   * room for more.
   */
  #take(rows: Buffer, findings: BlockFindings): Promise<unknown> {
    this.#rows.add(findings);
    if (findings.unread !== undefined)
      throw this.#notUnderstood(findings.unread, rows);
    this.#offset += rows.length;
    return this.#rows.write(this.#header, rows, findings);
  }

  #notUnderstood(
    { finding, fieldCount, column, start, end }: UnreadRow,
    buffer: Buffer,
  ): Error {
    const offset = this.#offset + start;
    const failed = gluedError(
      buffer.subarray(start, start + ERROR_SAMPLE_BYTES),
      BigInt(offset),
    );
    if (failed !== undefined) return failed;
    const columns = this.#question?.layout.columns ?? [];
    const states = {
      fields: [
        'ROW_FIELDS',
        `has ${fieldCount} fields where the header has ${columns.length}`,
      ],
      time: ['ROW_TIME', 'does not have a time between 1970 and 9998'],
      spelling: ['ROW_PARTY', 'contains a party id in an unknown spelling'],
      value: [
        'ROW_VALUE',
        `has a value of ${column ?? 'a column'} that no known release writes`,
      ],
    } as const;
    const [code, state] = states[finding];
    return new RetryableError(
      `Cannot export: row ${this.rows + 1} at byte ${offset} ${state}; ` +
        'nothing was published; request it again',
      {
        code,
        meta: {
          ...this.#where(offset),
          sample: buffer.toString('latin1', start, Math.min(end, start + 160)),
        },
      },
    );
  }

  #truncated(rest: Buffer): RetryableError {
    return new RetryableError(
      'Cannot export: the response ends in the middle of row ' +
        `${this.rows + 1} at byte ${this.#offset + rest.length}; nothing ` +
        'was published; request it again',
      { code: 'SOURCE_TRUNCATED', meta: this.#where() },
    );
  }

  #where(byteOffset = this.#offset): Record<string, unknown> {
    const { scope, kept } = this.#limits;
    const asked = [kept.from, kept.to].map((second) =>
      Number.isFinite(second) ? new Date(second * 1000).toISOString() : null,
    );
    return { ...scope, byteOffset, row: this.rows + 1, asked };
  }
}

function secondsOf({ from, to }: RequestPlan['question']): Seconds {
  return {
    from: from === undefined ? -Infinity : secondOf(from),
    to: to === undefined ? Infinity : secondOf(to),
  };
}
