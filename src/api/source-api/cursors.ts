/**
 * Cursors: positions in a list, as signed text. A cursor contains everything from which
 * the next page starts, so a page costs the same at any depth and no process keeps state.
 * A cursor that this mirror has not made for the list is refused.
 */
import { hash, timingSafeEqual } from 'node:crypto';

const CHARACTERS_MAX = 8_192;
/**
 * How much of the signature's hash is kept: 132 bits. Truncation also rules out
 * length-extension attacks.
 */
const SIGNATURE_CHARACTERS = 22;

export class Cursors {
  readonly #key: string;

  /**
   * @param secret must be unknown to clients; a client that had it could forge positions,
   *   but nothing else
   */
  constructor(secret: Buffer, list: string) {
    this.#key = hash('sha256', `${secret.toString('hex')} cursors of ${list}`);
  }

  /**
   * Returns a cursor of these fields, as text that needs no escape in a URL or in JSON.
   */
  write(...fields: readonly string[]): string {
    const body = Buffer.from(JSON.stringify(fields)).toString('base64url');
    return `${body}.${this.#sign(body)}`;
  }

  /**
   * Returns the fields of a cursor; undefined if this mirror has not made `text` for this
   * list.
   */
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
