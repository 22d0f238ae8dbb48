/**
 * The one reader for every form in which an export comes: raw CSV, or `{result|error}`
 * messages. The form is recognised by the first bytes, never by a header: the service's
 * own document announces messages, and its releases send CSV.
 */
import { isUtf8 } from 'node:buffer';
import { PermanentError, RetryableError } from '../../errors/errors.ts';
import {
  errorBodyLine,
  isRecord,
  notUnderstood,
  readErrorBody,
  sampleOf,
  type SourceErrorBody,
} from './error-body.ts';
import { type SplitMessage, splitMessages } from './message-splitter.ts';

/**
 * A header line is some 250 bytes; where none ends within this many, the answer is no
 * CSV.
 */
const FIRST_LINE_BYTES_MAX = 64 * 1024;
/** How much of a payload is judged. */
const DECIDING_CHARS = 4096;
const BASE64 = /^[A-Za-z0-9+/_-]*={0,2}$/;
/** In a shorter sample no character is cut at its end. */
const CUT_CHARACTER_BYTES = 16;
const BOM = Buffer.from('\ufeff');
/**
 * gRPC codes that mean "not this question": invalid argument, not found, unimplemented,
 * unauthenticated.
 */
const REFUSALS: ReadonlySet<number> = new Set([3, 5, 12, 16]);

/**
 * Plain CSV bytes from whatever form; iterate once. What was learned of the form is known
 * as it is read.
 */
export class AnswerReader implements AsyncIterable<Buffer> {
  readonly #bytes: AsyncIterable<Buffer>;
  readonly #messageBytesMax: number | undefined;
  readonly #delimiter: string;
  form: 'csv' | 'messages' | undefined;
  /** That came so far, blank lines apart. */
  csvBytes = 0;
  #encoding: ReturnType<typeof dataEncoding>;

  /** @param bytes the answer's body, decompressed, cut anywhere */
  constructor(
    bytes: AsyncIterable<Buffer>,
    messageBytesMax?: number,
    delimiter = ',',
  ) {
    this.#bytes = bytes;
    this.#delimiter = delimiter;
    this.#messageBytesMax = messageBytesMax;
  }

  /**
   * @throws PermanentError `EXPORT_REFUSED` where an error came instead of rows and names
   *   the question
   * @throws RetryableError `SOURCE_ERROR_IN_STREAM` for every other error message, with
   *   its byte offset
   * @throws RetryableError `ANSWER_NOT_UNDERSTOOD` where it is neither form,
   *   `SOURCE_BROKE` where it ends early
   * @throws PermanentError `MESSAGE_TOO_LARGE`
   */
  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer, void, undefined> {
    let isFirst = true;
    for await (const chunk of withoutLead(this.#csv(), isFirstLine)) {
      if (isFirst) refuseOther(chunk, this.#delimiter);
      isFirst = false;
      if (!isBlank(chunk)) this.csvBytes += chunk.length;
      yield chunk;
    }
  }

  async *#csv(): AsyncGenerator<Buffer, void, undefined> {
    const chunks = withoutLead(this.#bytes, isPastMark);
    const first = await chunks.next();
    if (first.done === true) return;
    this.form = first.value[0] === 0x7b ? 'messages' : 'csv';
    const all = startingWith(first.value, chunks);
    if (this.form === 'csv') yield* all;
    else
      for await (const one of splitMessages(all, this.#messageBytesMax))
        yield* this.#read(one);
  }

  *#read(message: SplitMessage): Generator<Buffer, void, undefined> {
    const value = parseMessage(message);
    const result = isRecord(value) ? value['result'] : undefined;
    const failed =
      isRecord(value) &&
      value['error'] !== undefined &&
      value['error'] !== null;
    if (!isRecord(result) || failed) throw this.#failure(message, value);
    const data = result['data'] ?? '';
    if (typeof data !== 'string')
      throw neitherForm(message.bytes, message.offset);
    this.#encoding ??= dataEncoding(data);
    if (data === '') return;
    yield this.#encoding === 'base64'
      ? decodeBase64(data, message.offset)
      : encodePlain(data, message.offset);
  }

  #failure(message: SplitMessage, value: unknown): Error {
    const body = readErrorBody(value);
    if (body === undefined) return neitherForm(message.bytes, message.offset);
    return errorInStream(body, message.offset, this.csvBytes);
  }
}

function errorInStream(
  body: SourceErrorBody,
  byteOffset: number,
  csvBytes: number,
): Error {
  const meta = { ...body, byteOffset, csvBytes };
  if (csvBytes === 0 && REFUSALS.has(body.code)) {
    const message =
      `Cannot export: the source refuses the question (code ${body.code}, ` +
      `${errorBodyLine(body)})`;
    return new PermanentError(message, { code: 'EXPORT_REFUSED', meta });
  }
  return new RetryableError(
    `Cannot export: the source broke off at byte ${byteOffset} with code ` +
      `${body.code}, ${errorBodyLine(body)}`,
    { code: 'SOURCE_ERROR_IN_STREAM', meta },
  );
}

function parseMessage({ bytes, offset }: SplitMessage): unknown {
  try {
    if (isUtf8(bytes)) return JSON.parse(bytes.toString('utf8'));
  } catch (error) {
    throw neitherForm(bytes, offset, error);
  }
  throw neitherForm(bytes, offset);
}

async function* startingWith(
  first: Buffer,
  rest: AsyncIterable<Buffer>,
): AsyncGenerator<Buffer> {
  yield first;
  yield* rest;
}

/**
 * Drops byte order marks and white space in front, and holds the beginning back until it
 * is enough. No chunk is empty.
 * @param isEnough gets what is held so far
 */
async function* withoutLead(
  chunks: AsyncIterable<Buffer>,
  isEnough: (start: Buffer) => boolean,
) {
  let start: Buffer | undefined = Buffer.alloc(0);
  for await (const chunk of chunks) {
    let passed = chunk;
    if (start !== undefined) {
      passed = start.length === 0 ? chunk : Buffer.concat([start, chunk]);
      passed = passed.subarray(leadBytes(passed));
      start = isEnough(passed) ? undefined : passed;
    }
    if (start === undefined && passed.length > 0) yield passed;
  }
  if (start !== undefined && start.length > 0) yield start;
}

/** A byte order mark may itself be cut. */
function isPastMark(start: Buffer): boolean {
  return (
    start.length >= BOM.length || !BOM.subarray(0, start.length).equals(start)
  );
}

function isFirstLine(start: Buffer): boolean {
  return (
    isPastMark(start) &&
    (start.includes(0x0a) || start.length >= FIRST_LINE_BYTES_MAX)
  );
}

function isBlank(bytes: Buffer): boolean {
  return bytes.every((byte) => byte === 0x0a || byte === 0x0d);
}

function leadBytes(bytes: Buffer): number {
  let start = 0;
  for (;;) {
    const byte = bytes[start];
    if (byte === 0x20 || byte === 0x09 || byte === 0x0a || byte === 0x0d)
      start += 1;
    else if (bytes.subarray(start, start + BOM.length).equals(BOM))
      start += BOM.length;
    else return start;
  }
}

/**
 * Lets a CSV pass and nothing else: its first line is a list of names. An error page of a
 * proxy, sent with 200, would otherwise be read as a header.
 * @throws RetryableError `ANSWER_NOT_UNDERSTOOD`
 */
function refuseOther(start: Buffer, delimiter: string): void {
  const lineEnd = start.indexOf(0x0a);
  const line = start.subarray(
    0,
    lineEnd === -1 ? FIRST_LINE_BYTES_MAX : lineEnd,
  );
  const isNamed = /^["\w]/.test(line.toString('latin1', 0, 1));
  if (isNamed && line.includes(delimiter)) return;
  const isParted = isNamed && /[,;\t|]/.test(line.toString('latin1'));
  const hint = isParted
    ? '; its fields are parted otherwise: set EXPORT_DELIMITER'
    : '';
  throw neitherForm(start, 0, undefined, hint);
}

function neitherForm(
  bytes: Buffer,
  byteOffset: number,
  cause?: unknown,
  hint = '',
): RetryableError {
  const sample = sampleOf(bytes);
  const state =
    `at byte ${byteOffset} it is neither CSV nor a message, but ` +
    `${JSON.stringify(sample)}${hint}`;
  return notUnderstood(state, { byteOffset, sample }, cause);
}

/**
 * How `data` of `result` messages is encoded, which the interface document does not say:
 * proto JSON makes it base64, others send the text itself. The first payload decides, by
 * its content. Base64 is what has only its letters and means text: `vega_time` is made of
 * them too, but decodes to no text, and a header with a comma is none.
 * @returns undefined if there is nothing to judge by
 */
function dataEncoding(data: string): 'base64' | 'plain' | undefined {
  if (data === '') return undefined;
  const sample = data.slice(0, DECIDING_CHARS).replaceAll(/\s/g, '');
  if (!isBase64(sample)) return 'plain';
  return isText(Buffer.from(sample, 'base64')) ? 'base64' : 'plain';
}

/** Node skips what is not base64. */
function isBase64(chars: string): boolean {
  return BASE64.test(chars) && chars.replace(/=+$/, '').length % 4 !== 1;
}

function isText(bytes: Buffer): boolean {
  if (
    bytes.some(
      (byte) => byte < 0x20 && byte !== 0x09 && byte !== 0x0a && byte !== 0x0d,
    )
  )
    return false;
  if (isUtf8(bytes)) return true;
  const cuts = bytes.length < CUT_CHARACTER_BYTES ? [] : [1, 2, 3];
  return cuts.some((cut) => isUtf8(bytes.subarray(0, bytes.length - cut)));
}

/**
 * Decodes one message's base64, standard or url-safe, padded or not.
 * @param offset of the message in the stream, for the error
 * @throws RetryableError `ANSWER_NOT_UNDERSTOOD` where a character is none of base64's
 */
function decodeBase64(data: string, offset: number): Buffer {
  const chars = data.replaceAll(/\s/g, '');
  if (isBase64(chars)) return Buffer.from(chars, 'base64');
  const state = `the data of the message at byte ${offset} is not base64 as before`;
  throw notUnderstood(state, { byteOffset: offset });
}

/**
 * @throws RetryableError `ANSWER_NOT_UNDERSTOOD` where half a character would be lost in
 *   UTF-8
 */
function encodePlain(data: string, offset: number): Buffer {
  if (data.isWellFormed()) return Buffer.from(data, 'utf8');
  const state = `the data of the message at byte ${offset} holds half a character`;
  throw notUnderstood(state, { byteOffset: offset });
}
