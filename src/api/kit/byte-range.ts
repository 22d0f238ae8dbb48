/** The part of a file that a request asks for: `Range` and `If-Range` of RFC 9110. */
const RANGE = /^bytes=(?<first>\d{0,19})-(?<last>\d{0,19})$/;

/** Bytes from `start` up to, and not including, `end`. */
export interface ByteRange {
  readonly start: bigint;
  readonly end: bigint;
}

/**
 * @param size of the whole file
 * @param tag its entity tag, with its quotes
 * @returns 'whole' if no range is asked for, or none that counts; 'none' if no byte of
 *   the file lies in it
 */
export function readByteRange(
  headers: {
    readonly range?: string | undefined;
    readonly 'if-range'?: string | string[] | undefined;
  },
  size: bigint,
  tag: string,
): ByteRange | 'whole' | 'none' {
  const condition = headers['if-range'];
  // The part of another file would not fit what the client has.
  if (condition !== undefined && condition !== tag) return 'whole';
  const { first = '', last = '' } =
    RANGE.exec(headers.range ?? '')?.groups ?? {};
  if (first === '' && last === '') return 'whole';
  if (first === '') {
    const length = BigInt(last);
    if (length === 0n || size === 0n) return 'none';
    return { start: length > size ? 0n : size - length, end: size };
  }
  const start = BigInt(first);
  if (last !== '' && BigInt(last) < start) return 'whole';
  if (start >= size) return 'none';
  const end = last === '' ? size : BigInt(last) + 1n;
  return { start, end: end > size ? size : end };
}
