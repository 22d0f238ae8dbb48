/**
 * The service tells of a failure in mid-export by JSON glued to the last row's bytes, under status 200
 * and with a clean end. Found here, so that it never becomes a row.
 */
import { RetryableError } from '../core/errors.ts';

const OPENING = /\{\s*"error"\s*:/;
/** Looked at from where the reading stopped; the message is short. */
const TAIL_BYTES_MAX = 64 * 2 ** 10;
const TEXT_MAX = 500;

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
  const status = parseStatus(Buffer.from(text.slice(found.index), 'latin1').toString('utf8'));
  const said = status.message === undefined ? 'an error' : `"${status.message}"`;
  return new RetryableError(
    `Cannot export: the source broke off at byte ${byteOffset} with ${said}; nothing was published, ask again`,
    { code: 'SOURCE_ERROR_IN_STREAM', meta: { ...status, byteOffset } },
  );
}

interface Status {
  readonly code?: number;
  readonly message?: string;
  readonly details?: unknown;
}

/** What the message says, as far as it is whole: it may have been cut as well. */
function parseStatus(json: string): Status {
  const body = parseJson(json);
  const error = isObject(body) && isObject(body['error']) ? body['error'] : undefined;
  if (error === undefined) return {};
  const { code, message, details } = error;
  const first: unknown = Array.isArray(details) ? details[0] : undefined;
  return {
    ...(typeof code === 'number' ? { code } : {}),
    ...(typeof message === 'string' ? { message: message.slice(0, TEXT_MAX) } : {}),
    ...(first === undefined ? {} : { details: JSON.stringify(first).slice(0, TEXT_MAX) }),
  };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}
