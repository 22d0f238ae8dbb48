/**
 * Cursors: positions in a list, as signed strings. A cursor contains everything needed to
 * start the next page, so a page costs the same at any depth and the server keeps no
 * state. A cursor that this mirror did not issue for the list is refused.
 */
import { hash, timingSafeEqual } from 'node:crypto';

const CHARACTERS_MAX = 8_192;
/**
 * Length of the truncated signature, which has 132 bits. Truncation also rules out
 * length-extension attacks.
 */
const SIGNATURE_CHARACTERS = 22;

export class Cursors {
  readonly #key: string;

  /**
   * @param secret must be unknown to clients; with it, a client could forge positions,
   *   but nothing else
   */
  constructor(secret: Buffer, list: string) {
    this.#key = hash('sha256', `${secret.toString('hex')} cursors of ${list}`);
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
