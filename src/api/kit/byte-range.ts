/** Parses the requested byte range from `Range` and `If-Range` (RFC 9110). */
const RANGE = /^bytes=(?<first>\d{0,19})-(?<last>\d{0,19})$/;

/** The bytes from `start` (inclusive) to `end` (exclusive). */
export interface ByteRange {
  readonly start: bigint;
  readonly end: bigint;
}

/**
 * Returns the byte range that a request wants.
 * @param size the size of the whole file, in bytes
 * @param tag the entity tag of the file, with its quotes
 * @returns 'whole' if the request has no valid range; 'none' if the range does not
 *   overlap the file
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
  // The client has part of a different version of the file, so send the whole new
  // version.
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
