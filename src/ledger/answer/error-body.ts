/**
 * Parses the service's error body, `{code, message, details}`, either bare or inside
 * `error`. Both shapes occur on every route, and white space differs between responses,
 * so only the parsed value counts.
 */
import { RetryableError } from '../../errors/errors.ts';
import { hideSecrets } from '../../secrets/secret-masking.ts';
import { parseJson } from '../json-fields.ts';

const TEXT_MAX = 500;
const OPENING = /\{\s*"error"\s*:/;
/** How many of the last bytes are searched for an error message, which is short. */
const TAIL_BYTES_MAX = 64 * 2 ** 10;

/** The fields of the body that go into an error's `meta`. */
export interface SourceErrorBody {
  /** gRPC status code: 3 invalid argument, 5 not found, 8 exhausted, 13 internal, … */
  readonly code: number;
  readonly message: string;
  /** The service's own code in `details[0]`, for example 10017: an asset is required. */
  readonly detailCode: number | undefined;
  /** The reason in words, if `details[0]` has one. */
  readonly inner: string | undefined;
}

/**
 * Parses an error body.
 * @returns undefined if `value` is not an error body
 */
export function readErrorBody(value: unknown): SourceErrorBody | undefined {
  if (!isRecord(value)) return undefined;
  const body = isRecord(value['error']) ? value['error'] : value;
  const { code, message, details } = body;
  if (
    typeof code !== 'number' ||
    !Number.isInteger(code) ||
    typeof message !== 'string'
  )
    return undefined;
  const detail: unknown = Array.isArray(details) ? details[0] : undefined;
  const {
    code: detailCode,
    message: detailMessage,
    inner,
  } = isRecord(detail) ? detail : {};
  const reason = [detailMessage, inner]
    .filter((part) => typeof part === 'string' && part !== '')
    .join(': ');
  return {
    code,
    message: printable(message),
    detailCode: typeof detailCode === 'number' ? detailCode : undefined,
    inner: reason === '' ? undefined : printable(reason),
  };
}

/** Codes in an envelope that mean success. */
const FINE_CODES: readonly unknown[] = [0, 200];

/**
 * Whether a response with status 200 contains an error, instead of or in addition to
 * its content. Such a response proves nothing.
 */
export function tellsError(answer: Readonly<Record<string, unknown>>): boolean {
  const bare = readErrorBody({ ...answer, error: undefined });
  return (
    (bare !== undefined && !FINE_CODES.includes(bare.code)) ||
    [answer['error'], answer['errors']].some(isTrouble)
  );
}

function isTrouble(value: unknown): boolean {
  if (Array.isArray(value)) return value.length > 0;
  if (isRecord(value))
    return Object.keys(value).length > 0 && !FINE_CODES.includes(value['code']);
  return Boolean(value);
}

/**
 * Formats the error as one line for messages, for example `Internal error: failed to
 * export ledger entries: copying to stdout`.
 */
export function errorBodyLine(body: SourceErrorBody): string {
  return body.inner === undefined
    ? body.message
    : `${body.message}: ${body.inner}`;
}

/**
 * Finds an error message that the service appended to a row. If an export fails
 * halfway, the service appends JSON directly to the last row's bytes, still with status
 * 200 and a clean end. It is detected here so that it never becomes a row.
 * @param tail the bytes that could not be parsed as rows, from the start of their line
 * @param offset the position of `tail` in the plain CSV
 * @returns RetryableError `SOURCE_ERROR_IN_STREAM`; undefined if there is no such
 *   message
 */
export function gluedError(
  tail: Buffer,
  offset: bigint,
): RetryableError | undefined {
  const text = tail.toString(
    'latin1',
    Math.max(0, tail.length - TAIL_BYTES_MAX),
  );
  const cut = tail.length - text.length;
  const found = OPENING.exec(text);
  if (found === null) return undefined;
  const byteOffset = offset + BigInt(cut + found.index);
  // The message itself may be truncated too.
  const body = readErrorBody(
    parseJson(Buffer.from(text.slice(found.index), 'latin1').toString('utf8')),
  );
  const said = body === undefined ? 'an error' : `"${errorBodyLine(body)}"`;
  return new RetryableError(
    `Cannot export: the source broke off at byte ${byteOffset} with ${said}; ` +
      'nothing was published; request it again',
    {
      code: 'SOURCE_ERROR_IN_STREAM',
      meta: { ...body, byteOffset },
    },
  );
}

/**
 * Creates the error for a response that cannot be parsed.
 * @param state what was found and where, to follow `Cannot read the answer`
 */
export function notUnderstood(
  state: string,
  meta: Readonly<Record<string, unknown>>,
  cause?: unknown,
): RetryableError {
  const details = { code: 'ANSWER_NOT_UNDERSTOOD', meta, cause };
  return new RetryableError(`Cannot read the answer: ${state}`, details);
}

/**
 * Returns a short printable sample of the bytes that were sent, with anything that
 * looks like a credential masked.
 */
export function sampleOf(bytes: Buffer, lengthMax = 160): string {
  const text = printable(bytes.subarray(0, lengthMax * 4).toString('utf8'));
  return text
    .replaceAll(
      /\b(authorization|bearer|basic|token|api-?key|password|secret|cookie)(["']?[\s:=]+)\S+/gi,
      '$1$2…',
    )
    .slice(0, lengthMax);
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * Makes a string printable and short. Secrets are masked first, because a source that
 * refuses a credential often echoes it, and truncation could leave half of it.
 */
function printable(text: string): string {
  return hideSecrets(text.slice(0, TEXT_MAX * 4))
    .slice(0, TEXT_MAX)
    .replaceAll(/[\p{Cc}\p{Cf}\p{Cs}]+/gu, ' ');
}
