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

  /** @returns needs no escape in a URL or in JSON */
  write(...fields: readonly string[]): string {
    const body = Buffer.from(JSON.stringify(fields)).toString('base64url');
    return `${body}.${this.#sign(body)}`;
  }

  /** @returns the fields; undefined where this mirror has not made `text` for this list */
  read(text: string): readonly string[] | undefined {
    if (text.length > CHARACTERS_MAX) return undefined;
    const [body = '', signature = '', more] = text.split('.');
    const [given, expected] = [Buffer.from(signature), Buffer.from(this.#sign(body))];
    const isOurs = more === undefined && given.length === expected.length && timingSafeEqual(given, expected);
    return isOurs ? (JSON.parse(Buffer.from(body, 'base64url').toString()) as string[]) : undefined;
  }

  #sign(body: string): string {
    return hash('sha256', `${this.#key} ${body}`, 'base64url').slice(0, SIGNATURE_CHARACTERS);
  }
}
