/**
 * The service tells of a failure in mid-export by JSON glued to the last row's bytes, under status 200
 * and with a clean end. Found here, so that it never becomes a row.
 */
import { RetryableError } from '../../core/errors.ts';
import { parseJson } from '../json-values.ts';
import { errorBodyLine, errorBodyMeta, readErrorBody } from './error-body.ts';

const OPENING = /\{\s*"error"\s*:/;
/** Looked at from where the reading stopped; the message is short. */
const TAIL_BYTES_MAX = 64 * 2 ** 10;

/**
 * @param tail what could not be read as rows, from the start of the line on
 * @param offset where `tail` begins in the plain CSV
 * @returns RetryableError `SOURCE_ERROR_IN_STREAM`, or undefined where there is no such message
 */
export function gluedError(tail: Buffer, offset: bigint): RetryableError | undefined {
  const text = tail.toString('latin1', Math.max(0, tail.length - TAIL_BYTES_MAX));
  const cut = tail.length - text.length;
  const found = OPENING.exec(text);
  if (found === null) return undefined;
  const byteOffset = offset + BigInt(cut + found.index);
  // The message itself may have been cut off, too.
  const body = readErrorBody(parseJson(Buffer.from(text.slice(found.index), 'latin1').toString('utf8')));
  const said = body === undefined ? 'an error' : `"${errorBodyLine(body)}"`;
  return new RetryableError(
    `Cannot export: the source broke off at byte ${byteOffset} with ${said}; nothing was published, ask again`,
    {
      code: 'SOURCE_ERROR_IN_STREAM',
      meta: { ...(body === undefined ? {} : errorBodyMeta(body)), byteOffset },
    },
  );
}
