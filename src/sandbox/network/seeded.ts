/**
 * Noise and ids derived from a seed. The sandbox stores nothing: everything about party
 * 77 or block 4,711 is recomputed each time from the seed, the subject (a stream) and its
 * number.
 */
import { createCipheriv, createDecipheriv, createHash } from 'node:crypto';

/**
 * The subjects of noise values. Values of different subjects are independent, even for
 * the same number.
 */
export const STREAM = {
  blockTime: 1,
  partyTies: 2,
  activity: 3,
  phase: 4,
  pair: 5,
  checkpointTies: 6,
  checkpointTwins: 7,
  level: 8,
  rowOrder: 9,
  entryOffset: 10,
} as const;

/** Converts a seed string to the number that `noise` takes. */
export function seedWord(seed: string): number {
  return createHash('sha256').update(seed).digest().readUInt32LE(0);
}

/**
 * Returns an unsigned 32-bit value that looks random and depends only on the three
 * arguments.
 * @param index a whole number below 2^53
 */
export function noise(seed: number, stream: number, index: number): number {
  let word = scramble(seed ^ Math.imul(stream, 0x9e3779b1));
  word = scramble(word ^ (index >>> 0));
  return index < 0x1_0000_0000
    ? word
    : scramble(word ^ Math.floor(index / 0x1_0000_0000));
}

/** Converts a noise value to a fraction that is above 0 and at most 1. */
export function fraction(word: number): number {
  return (word + 1) / 0x1_0000_0000;
}

/**
 * Returns the next value of a sequence that began with a noise value, for subjects that
 * need several random values.
 */
export function scramble(word: number): number {
  let mixed = (word + 0x6d2b79f5) | 0;
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return (mixed ^ (mixed >>> 16)) >>> 0;
}

/** The kinds of things that have ids. Ids of different kinds never collide. */
export const KIND = {
  party: 1,
  partyTx: 2,
  asset: 3,
  market: 4,
  block: 5,
  state: 6,
} as const;

const ID_BYTES = 32;
const HALF_BYTES = 16;

/** Converts between numbers and ids of 64 lower-case hex digits. */
export interface Ids {
  /** @param index a whole number below 2^48 */
  id(kind: number, index: number): string;
  /**
   * Decrypts an id.
   * @returns the number that `id` was made from; undefined if `id` is not an id of this
   *   kind
   */
  indexOf(kind: number, id: string): number | undefined;
}

/**
 * Opens the ids of a seed. An id is the encrypted number of the thing it identifies, so
 * no table is needed.
 */
export function openIds(seed: string): Ids {
  const key = createHash('sha256').update(`ids of ${seed}`).digest();
  // ECB is appropriate here: each id must be computable independently, and nothing
  // about it is secret.
  const cipher = createCipheriv('aes-256-ecb', key, null).setAutoPadding(false);
  const decipher = createDecipheriv('aes-256-ecb', key, null).setAutoPadding(
    false,
  );
  return {
    id: (kind, index) => cipher.update(plainId(kind, index)).toString('hex'),
    indexOf(kind, id) {
      const bytes = Buffer.from(id, 'hex');
      // The decipher would keep a partial block for its next call, so it must be given
      // only complete blocks.
      if (bytes.length !== ID_BYTES) return undefined;
      const plain = decipher.update(bytes);
      const index = plain.readUIntBE(HALF_BYTES - 6, 6);
      return plain.equals(plainId(kind, index)) ? index : undefined;
    },
  };
}

/**
 * Returns the plaintext of an id. Each half contains the kind, which half it is, and the
 * number, so that a forged half is detected.
 */
function plainId(kind: number, index: number): Buffer {
  const plain = Buffer.alloc(ID_BYTES);
  for (const half of [0, 1]) {
    const at = half * HALF_BYTES;
    plain[at] = kind;
    plain[at + 1] = half;
    plain.writeUIntBE(index, at + HALF_BYTES - 6, 6);
  }
  return plain;
}
