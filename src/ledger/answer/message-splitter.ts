/**
 * Splits a stream into JSON messages. It tracks only nesting and strings, so nothing is
 * parsed twice, and a message may span any number of chunks.
 */
import { PermanentError, RetryableError } from '../../errors/errors.ts';
import { notUnderstood, sampleOf } from './error-body.ts';

/**
 * Maximum size of a message in bytes, sixty times the size of the service's messages.
 */
const MESSAGE_BYTES_MAX = 64 * 2 ** 20;
const DEPTH_MAX = 64;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;

export interface SplitMessage {
  readonly bytes: Buffer;
  /** The byte offset in the stream at which the message begins. */
  readonly offset: number;
}

/**
 * Splits a stream into messages.
 * @throws PermanentError `MESSAGE_TOO_LARGE`
 * @throws RetryableError `ANSWER_NOT_UNDERSTOOD` if there is anything between two
 *   messages, `SOURCE_BROKE` if the stream ends inside one
 */
export async function* splitMessages(
  chunks: AsyncIterable<Buffer>,
  bytesMax = MESSAGE_BYTES_MAX,
): AsyncGenerator<SplitMessage, void, undefined> {
  const nesting = new Nesting();
  /** The current message: its offset, its bytes so far, and their number. */
  let offset = 0;
  let pieces: Buffer[] = [];
  let held = 0;
  for await (const chunk of chunks) {
    for (let start = 0; start < chunk.length;) {
      if (held === 0 && isSpace(chunk[start])) {
        offset += 1;
        start += 1;
        continue;
      }
      if (held === 0 && chunk[start] !== OPEN_BRACE) {
        const sample = sampleOf(chunk.subarray(start));
        const state =
          `${JSON.stringify(sample)} was found where a message should ` +
          `begin, at byte ${offset}`;
        throw notUnderstood(state, { byteOffset: offset, sample });
      }
      const end = nesting.scan(chunk, start);
      if (nesting.depth > DEPTH_MAX) {
        const state = `the message at byte ${offset} is nested deeper than ${DEPTH_MAX} levels`;
        throw notUnderstood(state, { byteOffset: offset });
      }
      held += end - start;
      if (held > bytesMax) {
        throw new PermanentError(
          `Cannot read the response: the message at byte ${offset} is ` +
            `larger than ${bytesMax} bytes, the limit for one message`,
          { code: 'MESSAGE_TOO_LARGE', meta: { byteOffset: offset, bytesMax } },
        );
      }
      pieces.push(chunk.subarray(start, end));
      start = end;
      if (nesting.depth > 0) continue;
      yield { bytes: Buffer.concat(pieces), offset };
      offset += held;
      pieces = [];
      held = 0;
    }
  }
  if (held === 0) return;
  throw new RetryableError(
    'Cannot read the response: it ends inside a message that begins at ' +
      `byte ${offset}; it will be requested again`,
    { code: 'SOURCE_BROKE', meta: { byteOffset: offset, received: held } },
  );
}

class Nesting {
  depth = 0;
  #inString = false;
  #isEscaped = false;

  /**
   * Continues scanning until the message ends, is nested too deeply, or the chunk ends.
   * @returns the position after the last scanned byte
   */
  scan(chunk: Buffer, from: number): number {
    let at = from;
    while (at < chunk.length) {
      if (this.#inString) {
        at = this.#scanString(chunk, at);
        continue;
      }
      const byte = chunk[at];
      at += 1;
      if (byte === QUOTE) this.#inString = true;
      else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) this.depth += 1;
      else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) this.depth -= 1;
      else continue;
      if (this.depth === 0 || this.depth > DEPTH_MAX) return at;
    }
    return at;
  }

  /**
   * Scans a string.
   * @returns the position after its closing quote, or the chunk's end
   */
  #scanString(chunk: Buffer, from: number): number {
    const at = this.#isEscaped ? from + 1 : from;
    const quote = chunk.indexOf(QUOTE, at);
    const end = quote === -1 ? chunk.length : quote;
    let backslashes = 0;
    while (end - backslashes > at && chunk[end - backslashes - 1] === BACKSLASH)
      backslashes += 1;
    const isEscaped = backslashes % 2 === 1;
    this.#isEscaped = quote === -1 && isEscaped;
    if (quote === -1) return end;
    this.#inString = isEscaped;
    return quote + 1;
  }
}

function isSpace(byte: number | undefined): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;
}
