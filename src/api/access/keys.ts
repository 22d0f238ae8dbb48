/** The tokens that open the mirror, and the sessions that are opened with one. */
import { createHmac, hash, randomBytes, scrypt, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';
import { sharedLoad } from '../../core/shared-load.ts';

/** `write` reads and orders; `read` only reads. */
export type Role = 'read' | 'write';

export interface Tokens {
  readonly write: string;
  readonly read: string | undefined;
}

/** Which sessions were logged out before their end; all processes of a mirror share it. */
export interface SessionStore {
  /** 32 bytes that no client knows, the same for every process of this mirror and for no other. */
  secret(): Promise<Buffer>;
  end(sessionId: string, untilMs: number): Promise<void>;
  isEnded(sessionId: string): Promise<boolean>;
}

const SESSION_MS = 12 * 60 * 60 * 1_000;
export const SESSION_SECONDS = SESSION_MS / 1_000;
const COOKIE_PREFIX = 'ledger_mirror_';
const derive = promisify(scrypt) as (password: string, salt: Buffer, bytes: number) => Promise<Buffer>;

/** The token of an Authorization header. */
export function bearerOf(authorization: string | undefined): string | undefined {
  return /^bearer +(\S+)$/i.exec(authorization ?? '')?.[1];
}

/** The role that a token gives, compared in constant time with each, whichever fits. */
export function roleOfToken(token: string, { write, read }: Tokens): Role | undefined {
  const given = hash('sha256', token, 'buffer');
  const isWrite = timingSafeEqual(given, hash('sha256', write, 'buffer'));
  const isRead = timingSafeEqual(given, hash('sha256', read ?? write, 'buffer'));
  return isWrite ? 'write' : isRead ? 'read' : undefined;
}

/** The sessions of a mirror, as one process knows them. */
export class Keys {
  readonly #store: SessionStore;
  readonly #nowMs: () => number;
  /** Another token, or another mirror with the same one, has another key: its sessions are none of ours. */
  readonly #key: () => Promise<Buffer>;

  constructor({ write, read = '' }: Tokens, store: SessionStore, nowMs: () => number) {
    this.#store = store;
    this.#nowMs = nowMs;
    this.#key = sharedLoad(async () => derive(`${write}\n${read}`, await store.secret(), 32));
  }

  /** A cookie's `name=value`, for a session that begins now. */
  async open(role: Role): Promise<string> {
    const body = `${this.#nowMs() + SESSION_MS}.${role}.${randomBytes(16).toString('base64url')}`;
    const key = await this.#key();
    return `${cookieName(key)}=${body}.${sign(key, body)}`;
  }

  /** @param cookies the request's Cookie header */
  async roleOf(cookies = ''): Promise<Role | undefined> {
    if (!cookies.includes(COOKIE_PREFIX)) return undefined;
    const session = await this.#read(cookies);
    return session === undefined || (await this.#store.isEnded(session.id)) ? undefined : session.role;
  }

  /** @returns the name of the cookie to clear */
  async close(cookies = ''): Promise<string> {
    const session = await this.#read(cookies);
    if (session !== undefined) await this.#store.end(session.id, session.endMs);
    return cookieName(await this.#key());
  }

  async #read(cookies: string) {
    const key = await this.#key();
    const name = cookieName(key);
    const pair = cookies.split('; ').find((one) => one.startsWith(`${name}=`));
    const [end = '', role = '', id = '', mac = '', rest] = (pair ?? '').slice(name.length + 1).split('.');
    if (rest !== undefined || !isSame(mac, sign(key, `${end}.${role}.${id}`))) return undefined;
    const endMs = Number(end);
    if (endMs <= this.#nowMs() || (role !== 'read' && role !== 'write')) return undefined;
    return { id, endMs, role } as const;
  }
}

/** Mirrors on one machine share its cookies, whichever port: each has a name of its own. */
function cookieName(key: Buffer): string {
  return `${COOKIE_PREFIX}${sign(key, 'name').slice(0, 12)}`;
}

function sign(key: Buffer, text: string): string {
  return createHmac('sha256', key).update(`session v2 ${text}`).digest('base64url');
}

function isSame(text: string, expected: string): boolean {
  return timingSafeEqual(hash('sha256', text, 'buffer'), hash('sha256', expected, 'buffer'));
}
