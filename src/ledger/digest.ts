/**
 * The order-independent sum of rows: the SHA-256 of each row's bytes, added modulo
 * 2^256. Equal sums mean that the same rows occur the same number of times, in any
 * order. The sums of slices add up to the sum of the whole, however it is sliced. The
 * sum protects only against accidents; the SHA-256 of the object's bytes protects
 * against forgery.
 */
import { hash } from 'node:crypto';
import { formatZone } from './vega-time.ts';

const LIMBS = 8;
/**
 * How many rows are added before a carry. The sum of 2^20 32-bit limbs is still exact
 * in a double.
 */
const CARRY_EVERY = 2 ** 20;
const HEX = /^[0-9a-f]{64}$/;
/** The digest of no rows, as hex. */
export const NO_ROWS_DIGEST = '0'.repeat(64);

/** Node accepts every encoding here, but its types list only some of them. */
const PAIRS = 'utf16le' as 'binary';

/**
 * Returns the SHA-256 of one row as 16 characters. Each character contains two bytes,
 * the first one in the lower half. This costs less than half as much as a Buffer per
 * row.
 */
export function hashRow(buffer: Buffer, start: number, end: number): string {
  // Creating a plain view takes half as long as a Buffer's `subarray`.
  return hash(
    'sha256',
    new Uint8Array(buffer.buffer, buffer.byteOffset + start, end - start),
    PAIRS,
  );
}

/** Returns the same hash for the UTF-8 bytes of a string. */
export function hashText(text: string): string {
  return hash('sha256', text, PAIRS);
}

export class RowDigest {
  rows = 0;
  #sum = 0n;
  /** The sum of the hashes since the last carry, least significant limb first. */
  readonly #limbs = new Float64Array(LIMBS);

  /**
   * Restores a digest from hex.
   * @throws RangeError if `hex` is not 64 hex digits
   */
  static fromHex(hex: string, rows: number): RowDigest {
    if (!HEX.test(hex))
      throw new RangeError(`not a digest: ${hex.slice(0, 80)}`);
    const digest = new RowDigest();
    digest.#sum = BigInt(`0x${hex}`);
    digest.rows = rows;
    return digest;
  }

  /** Adds one row by its hash (from `hashRow`). */
  add(rowHash: string): void {
    const limbs = this.#limbs;
    for (let limb = 0; limb < LIMBS; limb += 1) {
      const at = 14 - 2 * limb;
      const high = rowHash.charCodeAt(at);
      const low = rowHash.charCodeAt(at + 1);
      limbs[limb] =
        (limbs[limb] ?? 0) +
        (((high & 0xff) << 8) | (high >>> 8)) * 0x10000 +
        (((low & 0xff) << 8) | (low >>> 8));
    }
    this.rows += 1;
    if (this.rows % CARRY_EVERY === 0) this.#carry();
  }

  /** Adds all rows of another digest. */
  merge(other: RowDigest): void {
    this.#sum = this.#carry() + other.#carry();
    this.rows += other.rows;
    this.#carry();
  }

  /** Returns 64 hex digits, most significant first. */
  hex(): string {
    return this.#carry().toString(16).padStart(64, '0');
  }

  /** Adds the limbs to the sum. Dropping the bits beyond 256 applies the modulus. */
  #carry(): bigint {
    const added = this.#limbs.reduceRight(
      (sum, limb) => (sum << 32n) + BigInt(limb),
      0n,
    );
    this.#limbs.fill(0);
    this.#sum = BigInt.asUintN(256, this.#sum + added);
    return this.#sum;
  }
}

/**
 * Identifies the encoding of the rows that were summed. Only digests with the same row
 * form can be compared, because a different header or time zone changes every row's
 * bytes.
 */
export function rowForm(headerLine: Buffer, zones: readonly string[]): string {
  const header = hash('sha256', headerLine, 'hex').slice(0, 16);
  return `sha256sum-v1/${header}/${zones.length === 0 ? 'none' : zones.toSorted().join(',')}`;
}

/**
 * Adds up digests of 64 hex digits each.
 * @throws RangeError if one of them is not a digest
 */
export function addDigests(digests: readonly string[]): string {
  const total = new RowDigest();
  for (const digest of digests) total.merge(RowDigest.fromHex(digest, 0));
  return total.hex();
}

/** A sum as plain data that can be sent between threads; the digest is 64 hex digits. */
type PlainRowSum = Pick<RowDigest, 'rows'> & {
  readonly digest: string;
  readonly zones: readonly number[];
};

/** A digest together with the row form, which is needed to compare it. */
export class RowSum {
  readonly digest = new RowDigest();
  readonly #zones = new Set<number>();
  #lastZone = Number.NaN;

  /**
   * Adds one row.
   * @param zoneSeconds the UTC offset of the row's time as written, in seconds
   */
  add(rowHash: string, zoneSeconds: number): void {
    this.digest.add(rowHash);
    if (zoneSeconds === this.#lastZone) return;
    this.#lastZone = zoneSeconds;
    this.#zones.add(zoneSeconds);
  }

  /** Adds all rows of another sum. */
  merge({ digest, rows, zones }: PlainRowSum): void {
    this.digest.merge(RowDigest.fromHex(digest, rows));
    for (const zone of zones) this.#zones.add(zone);
  }

  get rows(): number {
    return this.digest.rows;
  }

  plain(): PlainRowSum {
    return {
      rows: this.rows,
      digest: this.digest.hex(),
      zones: [...this.#zones],
    };
  }

  /**
   * Returns the row form (header line and time zones) that the summed rows were encoded
   * in.
   * @param header the header line, with or without its line break
   */
  form(header: Buffer): string {
    const line = Buffer.from(
      header.toString('latin1').replace(/\r?\n$/, ''),
      'latin1',
    );
    return rowForm(line, [...this.#zones].map(formatZone));
  }
}
