/**
 * The one reader for every form in which an export comes: raw CSV, or `{result|error}` messages. The
 * form is recognised by the first bytes, never by a header: the service's own document announces
 * messages, and its releases send CSV.
 */
import { isUtf8 } from 'node:buffer';
import { PermanentError, RetryableError } from '../../core/errors.ts';
import {
  errorBodyLine,
  errorBodyMeta,
  isRecord,
  notUnderstood,
  readErrorBody,
  sampleOf,
  type SourceErrorBody,
} from './error-body.ts';
import { dataEncoding, decodeBase64, encodePlain, type DataEncoding } from './message-data.ts';
import { type SplitMessage, splitMessages } from './message-splitter.ts';

export type AnswerForm = 'csv' | 'messages';

/** A header line is some 250 bytes; where none ends within this many, the answer is no CSV. */
const FIRST_LINE_BYTES_MAX = 64 * 1024;
const BOM = Buffer.from('\ufeff');
/** gRPC codes that mean "not this question": invalid argument, not found, unimplemented, unauthenticated. */
const REFUSALS: ReadonlySet<number> = new Set([3, 5, 12, 16]);

/** Plain CSV bytes from whatever form; iterate once. What was learned of the form is known as it is read. */
export class AnswerReader implements AsyncIterable<Buffer> {
  readonly #bytes: AsyncIterable<Buffer>;
  readonly #messageBytesMax: number | undefined;
  readonly #delimiter: string;
  form: AnswerForm | undefined;
  /** That came so far, blank lines apart. */
  csvBytes = 0;
  #encoding: DataEncoding | undefined;

  /** @param bytes the answer's body, decompressed, cut anywhere */
  constructor(bytes: AsyncIterable<Buffer>, messageBytesMax?: number, delimiter = ',') {
    this.#bytes = bytes;
    this.#delimiter = delimiter;
    this.#messageBytesMax = messageBytesMax;
  }

  /**
   * @throws PermanentError `EXPORT_REFUSED` where an error came instead of rows and names the question
   * @throws RetryableError `SOURCE_ERROR_IN_STREAM` for every other error message, with its byte offset
   * @throws RetryableError `ANSWER_NOT_UNDERSTOOD` where it is neither form, `SOURCE_BROKE` where it ends early
   * @throws PermanentError `MESSAGE_TOO_LARGE`
   */
  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer, void, undefined> {
    for await (const chunk of checkedStart(this.#csv(), this.#delimiter)) {
      if (!isBlank(chunk)) this.csvBytes += chunk.length;
      yield chunk;
    }
  }

  async *#csv(): AsyncGenerator<Buffer, void, undefined> {
    const chunks = withoutLead(this.#bytes);
    const first = await chunks.next();
    if (first.done === true) return;
    this.form = first.value[0] === 0x7b ? 'messages' : 'csv';
    const all = startingWith(first.value, chunks);
    if (this.form === 'csv') yield* all;
    else for await (const one of splitMessages(all, this.#messageBytesMax)) yield* this.#read(one);
  }

  *#read(message: SplitMessage): Generator<Buffer, void, undefined> {
    const value = parseMessage(message);
    const result = isRecord(value) ? value['result'] : undefined;
    const failed = isRecord(value) && value['error'] !== undefined && value['error'] !== null;
    if (!isRecord(result) || failed) throw this.#failure(message, value);
    const data = result['data'] ?? '';
    if (typeof data !== 'string') throw neitherForm(message.bytes, message.offset);
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

function errorInStream(body: SourceErrorBody, byteOffset: number, csvBytes: number): Error {
  const meta = { ...errorBodyMeta(body), byteOffset, csvBytes };
  if (csvBytes === 0 && REFUSALS.has(body.code)) {
    const message = `Cannot export: the source refuses the question (code ${body.code}, ${errorBodyLine(body)})`;
    return new PermanentError(message, { code: 'EXPORT_REFUSED', meta });
  }
  return new RetryableError(
    `Cannot export: the source broke off at byte ${byteOffset} with code ${body.code}, ${errorBodyLine(body)}`,
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

async function* startingWith(first: Buffer, rest: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  yield first;
  yield* rest;
}

/**
 * Holds the beginning back until `judge` has decided what of it is handed on. No chunk is empty.
 * @param judge gets what is held so far, and whether that is all
 */
async function* afterStart(
  chunks: AsyncIterable<Buffer>,
  judge: (start: Buffer, isAll: boolean) => { readonly held: Buffer; readonly isDecided: boolean },
): AsyncGenerator<Buffer, void, undefined> {
  let start: Buffer | undefined = Buffer.alloc(0);
  for await (const chunk of chunks) {
    let passed = chunk;
    if (start !== undefined) {
      const { held, isDecided } = judge(start.length === 0 ? chunk : Buffer.concat([start, chunk]), false);
      start = isDecided ? undefined : held;
      passed = held;
    }
    if (start === undefined && passed.length > 0) yield passed;
  }
  if (start !== undefined && start.length > 0) yield judge(start, true).held;
}

/** Drops a byte order mark and white space in front. */
function withoutLead(bytes: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void, undefined> {
  return afterStart(bytes, (start) => {
    const held = start.subarray(leadBytes(start));
    // A byte order mark may itself be cut.
    return { held, isDecided: !(held.length < BOM.length && BOM.subarray(0, held.length).equals(held)) };
  });
}

function isBlank(bytes: Buffer): boolean {
  return bytes.every((byte) => byte === 0x0a || byte === 0x0d);
}

function leadBytes(bytes: Buffer): number {
  let start = 0;
  for (;;) {
    const byte = bytes[start];
    if (byte === 0x20 || byte === 0x09 || byte === 0x0a || byte === 0x0d) start += 1;
    else if (bytes.subarray(start, start + BOM.length).equals(BOM)) start += BOM.length;
    else return start;
  }
}

/**
 * Lets a CSV pass and nothing else: its first line is a list of names. An error page of a proxy, sent
 * with 200, would otherwise be read as a header.
 * @throws RetryableError `ANSWER_NOT_UNDERSTOOD`
 */
function checkedStart(
  chunks: AsyncIterable<Buffer>,
  delimiter: string,
): AsyncGenerator<Buffer, void, undefined> {
  return afterStart(withoutLead(chunks), (start, isAll) => {
    const isDecided = isAll || start.includes(0x0a) || start.length >= FIRST_LINE_BYTES_MAX;
    if (isDecided) refuseOther(start, delimiter);
    return { held: start, isDecided };
  });
}

function refuseOther(start: Buffer, delimiter: string): void {
  const lineEnd = start.indexOf(0x0a);
  const line = start.subarray(0, lineEnd === -1 ? FIRST_LINE_BYTES_MAX : lineEnd);
  const isNamed = /^["\w]/.test(line.toString('latin1', 0, 1));
  if (isNamed && line.includes(delimiter)) return;
  const isParted = isNamed && /[,;\t|]/.test(line.toString('latin1'));
  const hint = isParted ? '; its fields are parted otherwise: set EXPORT_DELIMITER' : '';
  throw neitherForm(start, 0, undefined, hint);
}

function neitherForm(bytes: Buffer, byteOffset: number, cause?: unknown, hint = ''): RetryableError {
  const sample = sampleOf(bytes);
  const state = `at byte ${byteOffset} it is neither CSV nor a message, but ${JSON.stringify(sample)}${hint}`;
  return notUnderstood(state, { byteOffset, sample }, cause);
}
