/**
 * Cursors: positions in a list, as signed strings. A cursor contains everything needed to
 * start the next page, so a page costs the same at any depth and the server keeps no
 * state. A cursor that this mirror did not issue for the list is refused.
 */
import { createCipheriv, hash, timingSafeEqual } from 'node:crypto';

const CHARACTERS_MAX = 8_192;
/**
 * Length of a signature: the first 132 bits of a hash, or the 128 bits of a cipher's
 * block. Truncating the hash also rules out length-extension attacks.
 */
const SIGNATURE_CHARACTERS = 22;
const BLOCK_BYTES = 16;
/**
 * The length to which a block is padded. In Base64, it takes exactly 24 characters, and
 * the first 22 of them encode the block.
 */
const SIGNATURE_BYTES = 18;
const PADDED_CHARACTERS = 24;
const EPOCH = /^\d{1,9}$/;
const POSITION = /^(?:0|[1-9]\d{0,17})$/;

/** A position in a list, which is all that the cursor of a party contains. */
export interface Position {
  readonly epoch: number;
  /** A whole number of at most 18 digits. */
  readonly pos: string;
}

export class Cursors {
  readonly #key: string;
  readonly #positionKey: Buffer;

  /**
   * @param secret must be unknown to clients; with it, a client could forge positions,
   *   but nothing else
   */
  constructor(secret: Buffer, list: string) {
    const hex = secret.toString('hex');
    this.#key = hash('sha256', `${hex} cursors of ${list}`);
    this.#positionKey = hash('sha256', `${hex} positions of ${list}`, 'buffer');
  }

  /**
   * Returns the cursors of many positions. They are signed by one call for all of them,
   * because a page of a thousand signatures would otherwise take longer than its query.
   */
  writePositions(positions: readonly Position[]): string[] {
    const signatures = this.#signPositions(positions);
    return positions.map(
      ({ epoch, pos }, index) => `${epoch}.${pos}.${signatures[index]}`,
    );
  }

  /**
   * Returns a cursor with these fields, as a string that needs no escaping in a URL or in
   * JSON.
   */
  write(...fields: readonly string[]): string {
    const body = Buffer.from(JSON.stringify(fields)).toString('base64url');
    return `${body}.${this.#sign(body)}`;
  }

  /**
   * Returns the fields of a cursor; undefined if this mirror did not issue it for this
   * list. A position's fields are its epoch and its number.
   */
  read(text: string): readonly string[] | undefined {
    if (text.length > CHARACTERS_MAX) return undefined;
    const parts = text.split('.');
    if (parts.length === 3) return this.#readPosition(parts);
    const [body = '', signature = ''] = parts;
    if (parts.length !== 2 || !isSame(signature, this.#sign(body)))
      return undefined;
    return JSON.parse(Buffer.from(body, 'base64url').toString()) as string[];
  }

  #readPosition([epoch = '', pos = '', signature = '']: readonly string[]):
    | readonly string[]
    | undefined {
    // A number has only one valid spelling in a cursor.
    if (!EPOCH.test(epoch) || !POSITION.test(pos)) return undefined;
    const number = Number(epoch);
    if (`${number}` !== epoch) return undefined;
    const [expected = ''] = this.#signPositions([{ epoch: number, pos }]);
    return isSame(signature, expected) ? [epoch, pos] : undefined;
  }

  /**
   * Signs positions with AES. Each position fits into one block, and for messages of one
   * block, a block cipher is a MAC. The blocks are independent of each other (ECB), so
   * one call encrypts all of them. The purpose is not secrecy.
   */
  #signPositions(positions: readonly Position[]): string[] {
    const blocks = new DataView(
      new ArrayBuffer(positions.length * BLOCK_BYTES),
    );
    for (const [index, { epoch, pos }] of positions.entries()) {
      blocks.setBigInt64(index * BLOCK_BYTES, BigInt(pos));
      blocks.setInt32(index * BLOCK_BYTES + 8, epoch);
    }
    const cipher = createCipheriv('aes-256-ecb', this.#positionKey, null);
    const signed = cipher.setAutoPadding(false).update(blocks);
    // Spread the blocks out, so that a single conversion yields the text of all of them.
    const spread = new Uint8Array(positions.length * SIGNATURE_BYTES);
    for (let index = 0; index < positions.length; index += 1) {
      const from = index * BLOCK_BYTES;
      const to = index * SIGNATURE_BYTES;
      for (let byte = 0; byte < BLOCK_BYTES; byte += 1)
        spread[to + byte] = signed[from + byte] ?? 0;
    }
    const text = Buffer.from(spread.buffer).toString('base64url');
    return positions.map((_, index) => {
      const from = index * PADDED_CHARACTERS;
      return text.slice(from, from + SIGNATURE_CHARACTERS);
    });
  }

  #sign(body: string): string {
    const digest = hash('sha256', `${this.#key} ${body}`, 'base64url');
    return digest.slice(0, SIGNATURE_CHARACTERS);
  }
}

/** Compares two signatures in a time that does not depend on where they differ. */
function isSame(shown: string, expected: string): boolean {
  const bytes = Buffer.from(shown);
  const wanted = Buffer.from(expected);
  return bytes.length === wanted.length && timingSafeEqual(bytes, wanted);
}
