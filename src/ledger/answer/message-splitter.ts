/**
 * Finds where one JSON message of a stream ends and the next begins, by nesting and strings alone,
 * so that nothing is parsed twice and a message may be cut anywhere on its way.
 */
import { PermanentError, RetryableError } from '../../core/errors.ts';
import { sampleOf } from './error-body.ts';

/** Sixty times what the service sends in one message. */
export const MESSAGE_BYTES_MAX = 64 * 2 ** 20;
const DEPTH_MAX = 64;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;

export interface SplitMessage {
  readonly bytes: Buffer;
  /** Where it begins in the stream. */
  readonly offset: number;
}

export class MessageSplitter {
  readonly #bytesMax: number;
  #pieces: Buffer[] = [];
  /** Bytes of the message in hand, those in `#pieces`. */
  #held = 0;
  /** Bytes of the stream before the message in hand. */
  #offset = 0;
  #depth = 0;
  #inString = false;
  #isEscaped = false;

  constructor(bytesMax = MESSAGE_BYTES_MAX) {
    this.#bytesMax = bytesMax;
  }

  /**
   * @throws PermanentError `MESSAGE_TOO_LARGE`
   * @throws RetryableError `ANSWER_NOT_UNDERSTOOD` where something stands between two messages
   */
  *push(chunk: Buffer): Generator<SplitMessage, void, undefined> {
    let start = 0;
    while (start < chunk.length) {
      if (this.#depth === 0) {
        const next = this.#skipSpace(chunk, start);
        this.#offset += next - start;
        start = next;
        if (start === chunk.length) return;
      }
      const end = this.#scan(chunk, start);
      const piece = chunk.subarray(start, end);
      if (this.#held + piece.length > this.#bytesMax) throw this.#tooLarge();
      this.#pieces.push(piece);
      this.#held += piece.length;
      start = end;
      if (this.#depth === 0) yield this.#take();
    }
  }

  /** @throws RetryableError `SOURCE_BROKE` where the stream ends inside a message */
  end(): void {
    if (this.#depth === 0) return;
    throw new RetryableError(
      `Cannot read the answer: it ends inside a message that begins at byte ${this.#offset}; it will be asked again`,
      { code: 'SOURCE_BROKE', meta: { byteOffset: this.#offset, received: this.#held } },
    );
  }

  #take(): SplitMessage {
    const [only] = this.#pieces;
    const bytes = this.#pieces.length === 1 && only !== undefined ? only : Buffer.concat(this.#pieces);
    const message = { bytes, offset: this.#offset };
    this.#offset += this.#held;
    this.#pieces = [];
    this.#held = 0;
    return message;
  }

  #skipSpace(chunk: Buffer, from: number): number {
    let at = from;
    while (at < chunk.length && isSpace(chunk[at])) at += 1;
    if (at < chunk.length && chunk[at] !== OPEN_BRACE) {
      const sample = sampleOf(chunk.subarray(at));
      throw new RetryableError(
        `Cannot read the answer: ${JSON.stringify(sample)} stands where a message should begin, at byte ${this.#offset + at - from}`,
        { code: 'ANSWER_NOT_UNDERSTOOD', meta: { byteOffset: this.#offset + at - from, sample } },
      );
    }
    return at;
  }

  /** @returns the position behind the message's last byte, or the chunk's end */
  #scan(chunk: Buffer, from: number): number {
    let at = from;
    while (at < chunk.length) {
      if (this.#inString) {
        at = this.#scanString(chunk, at);
        continue;
      }
      const byte = chunk[at];
      at += 1;
      if (byte === QUOTE) this.#inString = true;
      else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
        this.#depth += 1;
        if (this.#depth > DEPTH_MAX) throw this.#tooDeep();
      } else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
        this.#depth -= 1;
        if (this.#depth === 0) return at;
      }
    }
    return at;
  }

  /** @returns the position behind a quote, or the chunk's end */
  #scanString(chunk: Buffer, from: number): number {
    const at = this.#isEscaped ? from + 1 : from;
    const quote = chunk.indexOf(QUOTE, at);
    const end = quote === -1 ? chunk.length : quote;
    let backslashes = 0;
    while (end - backslashes > at && chunk[end - backslashes - 1] === BACKSLASH) backslashes += 1;
    const isEscaped = backslashes % 2 === 1;
    this.#isEscaped = quote === -1 && isEscaped;
    if (quote === -1) return end;
    this.#inString = isEscaped;
    return quote + 1;
  }

  #tooLarge(): PermanentError {
    return new PermanentError(
      `Cannot read the answer: the message at byte ${this.#offset} is larger than ${this.#bytesMax} bytes, the limit for one message`,
      { code: 'MESSAGE_TOO_LARGE', meta: { byteOffset: this.#offset, bytesMax: this.#bytesMax } },
    );
  }

  #tooDeep(): RetryableError {
    return new RetryableError(
      `Cannot read the answer: the message at byte ${this.#offset} is nested deeper than ${DEPTH_MAX} levels`,
      { code: 'ANSWER_NOT_UNDERSTOOD', meta: { byteOffset: this.#offset } },
    );
  }
}

function isSpace(byte: number | undefined): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;
}
