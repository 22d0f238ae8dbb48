/**
 * The only reader for an export's response, whatever its format: raw CSV, or
 * `{result|error}` messages. The first bytes decide the format, never the response
 * headers, because the service's own document announces messages but its releases send
 * CSV.
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
 * Maximum size of the first line in bytes. A header line has about 250; without a line
 * break within the limit, the response is not CSV.
 */
const FIRST_LINE_BYTES_MAX = 64 * 1024;
/** How many characters of a payload are examined to detect its encoding. */
const DECIDING_CHARS = 4096;
const BASE64 = /^[A-Za-z0-9+/_-]*={0,2}$/;
/** Only a sample of at least this length may end in the middle of a character. */
const CUT_CHARACTER_BYTES = 16;
const BOM = Buffer.from('\ufeff');
/**
 * gRPC codes that mean that the request itself is refused: invalid argument, not found,
 * unimplemented, unauthenticated.
 */
const REFUSALS: ReadonlySet<number> = new Set([3, 5, 12, 16]);

/**
 * Yields the plain CSV bytes of a response in either format. It can be iterated only
 * once. The fields that describe the format are set while the response is being read.
 */
export class AnswerReader implements AsyncIterable<Buffer> {
  readonly #bytes: AsyncIterable<Buffer>;
  readonly #messageBytesMax: number | undefined;
  readonly #delimiter: string;
  form: 'csv' | 'messages' | undefined;
  /** How many CSV bytes have arrived so far, not counting blank lines. */
  csvBytes = 0;
  #encoding: ReturnType<typeof dataEncoding>;

  /** @param bytes the decompressed body of the response; a chunk may end anywhere */
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
   * Yields the CSV's bytes.
   * @throws PermanentError `EXPORT_REFUSED` if an error that refuses the request arrives
   *   before any row
   * @throws RetryableError `SOURCE_ERROR_IN_STREAM` for any other error message, with
   *   its byte offset
   * @throws RetryableError `ANSWER_NOT_UNDERSTOOD` if the response has neither format,
   *   `SOURCE_BROKE` if it ends early
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
      `Cannot export: the source refuses the request (code ${body.code}, ` +
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
 * Drops leading byte order marks and white space, and buffers the beginning until there
 * is enough of it. Never yields empty chunks.
 * @param isEnough receives the bytes buffered so far
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

/**
 * Whether the bytes are more than the start of a byte order mark, which may be split
 * across chunks.
 */
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
 * Rejects everything but CSV, whose first line is a list of names. Otherwise a proxy's
 * error page with status 200 would be read as a header.
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
    ? '; its fields have a different separator: set EXPORT_DELIMITER'
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
 * Detects how the `data` of `result` messages is encoded. The interface document does
 * not specify this: proto JSON uses base64, others send plain text. The first payload
 * decides. It is base64 if it contains only base64 characters and decodes to text. A
 * header that is just `vega_time` also contains only such characters, but does not
 * decode to text; a header with a comma cannot be base64.
 * @returns undefined if the payload is empty
 */
function dataEncoding(data: string): 'base64' | 'plain' | undefined {
  if (data === '') return undefined;
  const sample = data.slice(0, DECIDING_CHARS).replaceAll(/\s/g, '');
  if (!isBase64(sample)) return 'plain';
  return isText(Buffer.from(sample, 'base64')) ? 'base64' : 'plain';
}

/**
 * Whether the string is base64. Needed because Node's decoder skips invalid characters.
 */
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
 * Decodes one message's base64, standard or URL-safe, with or without padding.
 * @param offset the message's position in the stream, for the error
 * @throws RetryableError `ANSWER_NOT_UNDERSTOOD` if a character is not a base64 character
 */
function decodeBase64(data: string, offset: number): Buffer {
  const chars = data.replaceAll(/\s/g, '');
  if (isBase64(chars)) return Buffer.from(chars, 'base64');
  const state = `the data of the message at byte ${offset} is not base64 as before`;
  throw notUnderstood(state, { byteOffset: offset });
}

/**
 * Encodes one message's text as UTF-8.
 * @throws RetryableError `ANSWER_NOT_UNDERSTOOD` if the text has a lone surrogate,
 *   which UTF-8 would lose
 */
function encodePlain(data: string, offset: number): Buffer {
  if (data.isWellFormed()) return Buffer.from(data, 'utf8');
  const state = `the data of the message at byte ${offset} ends in the middle of a character`;
  throw notUnderstood(state, { byteOffset: offset });
}
