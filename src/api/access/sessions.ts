/**
 * Browser sessions. A session is a cookie that contains its expiry and its role, signed
 * with a key of this mirror. All processes of a mirror accept each other's sessions, and
 * share the list of those that were ended by a logout.
 */
import { createHmac, randomBytes, scrypt } from 'node:crypto';
import { promisify } from 'node:util';
import { sharedLoad } from '../../concurrency/shared-load.ts';
import type { Rows } from '../../postgres/api-rows.ts';
import {
  END_SESSION,
  ENDED_SESSION,
  readSessionSecret,
} from './store/ended-sessions.ts';
import { isSame, type ReadTokens, type Role, type Tokens } from './tokens.ts';

export const SESSION_SECONDS = 12 * 60 * 60;

const COOKIE_PREFIX = 'ledger_mirror_';
const KEY_BYTES = 32;
const ID_BYTES = 16;
const NAME_CHARACTERS = 12;

const derive = promisify(scrypt) as (
  password: string,
  salt: Buffer,
  bytes: number,
) => Promise<Buffer>;

/** An unexpired session whose signature is valid. */
interface Session {
  readonly id: string;
  /** When the session expires, in milliseconds since 1970. */
  readonly endMs: number;
  readonly role: Role;
}

export class Sessions {
  readonly #rows: Rows;
  readonly #readTokens: ReadTokens;
  /** The signing key, and the tokens from which it was derived. */
  #key: { readonly tokens: Tokens; readonly read: () => Promise<Buffer> };

  /**
   * @param readTokens returns the tokens, which are part of the signing key, so rotating
   *   a token ends all sessions
   * @param rows reads the mirror's secret, the other part of the key, so sessions of
   *   other mirrors are refused
   */
  constructor(readTokens: ReadTokens, rows: Rows) {
    this.#rows = rows;
    this.#readTokens = readTokens;
    this.#key = this.#keyOf(readTokens());
  }

  /**
   * Starts a session.
   * @returns `name=value` for its cookie
   */
  async open(role: Role): Promise<string> {
    const endMs = Date.now() + SESSION_SECONDS * 1_000;
    const id = randomBytes(ID_BYTES).toString('base64url');
    const body = `${endMs}.${role}.${id}`;
    return `${await this.#cookieName()}=${body}.${await this.#sign(body)}`;
  }

  /**
   * Returns the role of the session in a request's cookies; undefined if there is no
   * valid session.
   * @param cookies the request's Cookie header
   */
  async roleOf(cookies = ''): Promise<Role | undefined> {
    if (!cookies.includes(COOKIE_PREFIX)) return undefined;
    const session = await this.#find(cookies);
    if (session === undefined) return undefined;
    const ended = await this.#rows('look up a session', ENDED_SESSION, [
      session.id,
    ]);
    return ended.length === 0 ? session.role : undefined;
  }

  /**
   * Ends the session in a request's cookies, for all processes.
   * @returns `name=value` to replace the cookie with
   */
  async close(cookies = ''): Promise<string> {
    const session = await this.#find(cookies);
    if (session !== undefined) {
      const values = [session.id, `${session.endMs}`];
      await this.#rows('end a session', END_SESSION, values);
    }
    return `${await this.#cookieName()}=`;
  }

  async #find(cookies: string): Promise<Session | undefined> {
    const prefix = `${await this.#cookieName()}=`;
    const pair = cookies
      .split('; ')
      .find((cookie) => cookie.startsWith(prefix));
    const fields = (pair ?? '').slice(prefix.length).split('.');
    const [end = '', role = '', id = '', signature = ''] = fields;
    if (fields.length > 4) return undefined;
    if (!isSame(signature, await this.#sign(`${end}.${role}.${id}`)))
      return undefined;

    const endMs = Number(end);
    if (endMs <= Date.now() || (role !== 'read' && role !== 'write'))
      return undefined;
    return { id, endMs, role };
  }

  /**
   * Returns the cookie's name. It differs between mirrors, because browsers share cookies
   * among all ports of a machine.
   */
  async #cookieName(): Promise<string> {
    const digest = await this.#sign('name');
    return `${COOKIE_PREFIX}${digest.slice(0, NAME_CHARACTERS)}`;
  }

  async #sign(text: string): Promise<string> {
    const tokens = this.#readTokens();
    if (tokens !== this.#key.tokens) this.#key = this.#keyOf(tokens);
    const hmac = createHmac('sha256', await this.#key.read());
    return hmac.update(`session v2 ${text}`).digest('base64url');
  }

  #keyOf(tokens: Tokens) {
    const { write, read = '' } = tokens;
    const rows = this.#rows;
    const readKey = sharedLoad(async () =>
      derive(`${write}\n${read}`, await readSessionSecret(rows), KEY_BYTES),
    );
    return { tokens, read: readKey };
  }
}
