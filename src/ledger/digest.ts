/**
 * The order-free sum of rows: SHA-256 of each row's bytes, added modulo 2^256. Equal sums
 * say "the same rows, each as often", whatever their order and slicing; sums of slices
 * add up to the sum of the whole. They guard against accident. Against forgery they do
 * not: that is the byte SHA-256's business.
 */
import { hash } from 'node:crypto';
import { formatZone } from './vega-time.ts';

const LIMBS = 8;
/** 2^20 sums of 32-bit limbs stay exact in a double. */
const CARRY_EVERY = 2 ** 20;
const HEX = /^[0-9a-f]{64}$/;

/** Node takes every encoding here; its types name only some. */
const PAIRS = 'utf16le' as 'binary';

/**
 * SHA-256 of one row as 16 characters, one for two bytes, the first in its lower half:
 * less than half the cost of a Buffer for each row.
 */
export function hashRow(buffer: Buffer, start: number, end: number): string {
  // A plain view is made in half the time of a Buffer's `subarray`.
  return hash(
    'sha256',
    new Uint8Array(buffer.buffer, buffer.byteOffset + start, end - start),
    PAIRS,
  );
}

/** The same of a text's UTF-8 bytes. */
export function hashText(text: string): string {
  return hash('sha256', text, PAIRS);
}

export class RowDigest {
  rows = 0;
  #sum = 0n;
  /** What was added since, the least significant limb first. */
  readonly #limbs = new Float64Array(LIMBS);

  /** @throws RangeError if `hex` is not 64 hex digits */
  static fromHex(hex: string, rows: number): RowDigest {
    if (!HEX.test(hex))
      throw new RangeError(`not a digest: ${hex.slice(0, 80)}`);
    const digest = new RowDigest();
    digest.#sum = BigInt(`0x${hex}`);
    digest.rows = rows;
    return digest;
  }

  /** Adds one row by its hash (`hashRow`). */
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

  /** Adds all rows of another sum. */
  merge(other: RowDigest): void {
    this.#sum = this.#carry() + other.#carry();
    this.rows += other.rows;
    this.#carry();
  }

  /** 64 hex digits, the most significant first. */
  hex(): string {
    return this.#carry().toString(16).padStart(64, '0');
  }

  /** What runs over 256 bits falls away: that is the modulus. */
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
 * Names what was summed. Digests compare only within one form: another header or time
 * zone changes every row's bytes.
 */
export function rowForm(headerLine: Buffer, zones: readonly string[]): string {
  const header = hash('sha256', headerLine, 'hex').slice(0, 16);
  return `sha256sum-v1/${header}/${zones.length === 0 ? 'none' : zones.toSorted().join(',')}`;
}

/** The sum of sums: 64 hex digits each. @throws RangeError if one is no digest */
export function addDigests(digests: readonly string[]): string {
  const total = new RowDigest();
  for (const digest of digests) total.merge(RowDigest.fromHex(digest, 0));
  return total.hex();
}

/** A sum as plain data, as it passes between threads; the digest as 64 hex digits. */
type PlainRowSum = Pick<RowDigest, 'rows'> & {
  readonly digest: string;
  readonly zones: readonly number[];
};

/**
 * A digest together with what makes it comparable: the form of the rows that were summed.
 */
export class RowSum {
  readonly digest = new RowDigest();
  readonly #zones = new Set<number>();
  #lastZone = Number.NaN;

  /** @param zoneSeconds the offset that the row's time is written in */
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

  /** @param header line, with its line end or without */
  form(header: Buffer): string {
    const line = Buffer.from(
      header.toString('latin1').replace(/\r?\n$/, ''),
      'latin1',
    );
    return rowForm(line, [...this.#zones].map(formatZone));
  }
}
