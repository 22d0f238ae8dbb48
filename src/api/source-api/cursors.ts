/**
 * Cursors: a position in a list, as signed text. They carry what the next page starts
 * from, so that a page costs the same at any depth and no process keeps anything. A
 * cursor that this mirror has not made for the list is refused.
 */
import { hash, timingSafeEqual } from 'node:crypto';

const CHARACTERS_MAX = 8_192;
/** 132 bits of the hash. A hash that is cut off cannot be extended either. */
const SIGNATURE_CHARACTERS = 22;

export class Cursors {
  readonly #key: string;

  /**
   * @param secret known to no client; a client that had it could forge positions, nothing
   *   else
   */
  constructor(secret: Buffer, list: string) {
    this.#key = hash('sha256', `${secret.toString('hex')} cursors of ${list}`);
  }

  /** Returns text that needs no escape in a URL or in JSON. */
  write(...fields: readonly string[]): string {
    const body = Buffer.from(JSON.stringify(fields)).toString('base64url');
    return `${body}.${this.#sign(body)}`;
  }

  /** @returns the fields; undefined if this mirror has not made `text` for this list */
  read(text: string): readonly string[] | undefined {
    if (text.length > CHARACTERS_MAX) return undefined;
    const [body = '', signature = '', more] = text.split('.');
    const shown = Buffer.from(signature);
    const expected = Buffer.from(this.#sign(body));
    if (more !== undefined || shown.length !== expected.length)
      return undefined;
    if (!timingSafeEqual(shown, expected)) return undefined;
    return JSON.parse(Buffer.from(body, 'base64url').toString()) as string[];
  }

  #sign(body: string): string {
    const digest = hash('sha256', `${this.#key} ${body}`, 'base64url');
    return digest.slice(0, SIGNATURE_CHARACTERS);
  }
}
