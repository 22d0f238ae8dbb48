/**
 * Ids that look random and need no table: an id is the enciphered number of what it names, so a million
 * parties cost no memory and any id can be turned back into its number.
 */
import { createCipheriv, createDecipheriv, createHash } from 'node:crypto';

/** What an id names; ids of different kinds never collide. */
export const KIND = { party: 1, partyTx: 2, asset: 3, market: 4, block: 5, state: 6 } as const;

const ID_BYTES = 32;
const HALF_BYTES = 16;

/** Numbers ↔ ids of 64 lower-case hex digits, for one seed. */
export class IdCipher {
  readonly #cipher;
  readonly #decipher;

  constructor(seed: string) {
    const key = createHash('sha256').update(`ids of ${seed}`).digest();
    // ECB is right here: each id must stand alone, and it hides nothing that matters.
    this.#cipher = createCipheriv('aes-256-ecb', key, null).setAutoPadding(false);
    this.#decipher = createDecipheriv('aes-256-ecb', key, null).setAutoPadding(false);
  }

  /** @param index a whole number below 2^48 */
  id(kind: number, index: number): string {
    return this.#cipher.update(plainId(kind, index)).toString('hex');
  }

  /** @returns the number that `id` was made of, or undefined where it is no id of that kind */
  indexOf(kind: number, id: string): number | undefined {
    const bytes = Buffer.from(id, 'hex');
    // The decipher keeps what is no whole block for the next call: it must never get such a thing.
    if (bytes.length !== ID_BYTES) return undefined;
    const plain = this.#decipher.update(bytes);
    const index = plain.readUIntBE(HALF_BYTES - 6, 6);
    return plain.equals(plainId(kind, index)) ? index : undefined;
  }
}

/** Both halves of an id carry kind, half and number, so that a forged half is noticed. */
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
