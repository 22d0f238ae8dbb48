/** The Range header of a download, for one range of bytes. */
export interface ByteRange {
  readonly start: bigint;
  /** Exclusive. */
  readonly end: bigint;
}

/**
 * @returns undefined where the whole is to be sent: no header, several ranges, or another unit
 */
export function parseRange(
  header: string | undefined,
  bytes: bigint,
): ByteRange | 'unsatisfiable' | undefined {
  const match = /^bytes=(\d{0,19})-(\d{0,19})$/.exec(header?.replaceAll(' ', '') ?? '');
  if (match === null) return undefined;
  const [, first = '', last = ''] = match;
  if (first === '' && last === '') return undefined;
  if (first === '') {
    const suffix = BigInt(last) < bytes ? BigInt(last) : bytes;
    return suffix === 0n ? 'unsatisfiable' : { start: bytes - suffix, end: bytes };
  }
  const start = BigInt(first);
  if (last !== '' && BigInt(last) < start) return undefined;
  if (start >= bytes) return 'unsatisfiable';
  const end = last === '' || BigInt(last) >= bytes ? bytes : BigInt(last) + 1n;
  return { start, end };
}
