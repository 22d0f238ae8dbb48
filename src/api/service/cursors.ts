/**
 * Cursors: a position in a list, as signed text. They carry what the next page starts from, so that a page costs the same
 * at any depth and no process keeps anything; what this mirror has not made for the list is refused.
 */
import { hash, timingSafeEqual } from 'node:crypto';

const CHARACTERS_MAX = 8_192;
/** 132 bits: what is cut off a hash cannot be continued from. */
const SIGNATURE_CHARACTERS = 22;

export class Cursors {
  readonly #key: string;

  /** @param secret known to no client; who has it can forge positions, nothing else */
  constructor(secret: Buffer, list: string) {
    this.#key = hash('sha256', `${secret.toString('hex')} cursors of ${list}`);
  }

  /** @param fields in letters, digits, `-` and `_`: such need no escape in a URL or in JSON */
  write(...fields: readonly string[]): string {
    const body = fields.join('.');
    return `${body}.${this.#sign(body)}`;
  }

  /** @returns the fields; undefined where this mirror has not made `text` for this list */
  read(text: string): readonly string[] | undefined {
    const at = text.length > CHARACTERS_MAX ? -1 : text.lastIndexOf('.');
    const body = text.slice(0, Math.max(at, 0));
    return at >= 0 && isSame(text.slice(at + 1), this.#sign(body)) ? body.split('.') : undefined;
  }

  #sign(body: string): string {
    return hash('sha256', `${this.#key} ${body}`, 'base64url').slice(0, SIGNATURE_CHARACTERS);
  }
}

function isSame(given: string, expected: string): boolean {
  const [left, right] = [Buffer.from(given), Buffer.from(expected)];
  return left.length === right.length && timingSafeEqual(left, right);
}
