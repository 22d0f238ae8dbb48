/**
 * The key that signs the proof log. It is configured, or generated on first use. A
 * generated key is stored both in the database and in the data folder, so that losing one
 * of them does not end the log: no other key can continue its history.
 */
import { readFile, stat, writeFile } from 'node:fs/promises';
import { errorCode, PermanentError } from '../errors/errors.ts';
import {
  decodeSignerKey,
  encodeSignerKey,
  generateKey,
  type SignerKey,
} from './signed-note.ts';

const OTHERS_MAY_READ = 0o004;
const OTHERS_MAY_WRITE = 0o002;

/** Stores a generated key in a second location besides the file. */
export interface KeyKeeper {
  readKey(): Promise<{
    readonly mirrorId: string;
    readonly signingKey: string | null;
  }>;
  keepKey(signingKey: string): Promise<string>;
}

export interface KeyPlaces {
  /** The value of PROOF_KEY; if it is set, no stored key is used. */
  readonly given: string | undefined;
  /** The path of the key file in the data folder. */
  readonly ownFile: string;
  /**
   * The value of PROOF_NAME, which becomes the name of the log when its key is generated.
   */
  readonly name: string | undefined;
}

/**
 * Returns the configured key or the stored key. If there is neither, generates a key and
 * stores it.
 * @throws PermanentError `PROOF_KEY_INVALID`, or `PROOF_KEY_UNREADABLE` if the file
 *   cannot be read
 */
export async function openKey(
  { given, ownFile, name }: KeyPlaces,
  keeper: KeyKeeper,
): Promise<SignerKey> {
  if (given !== undefined) return decodeSignerKey(given);
  const filed = await readKeyFile(ownFile);
  const { mirrorId, signingKey } = await keeper.readKey();
  // An invalid key must not be stored in the database, where nobody could correct it.
  if (signingKey === null && filed !== undefined) requireKey(filed, ownFile);
  const kept = signingKey ?? (await keeper.keepKey(filed ?? makeKey()));
  if (filed === undefined) await writeKeyFile(ownFile, kept);
  return decodeSignerKey(kept);

  function makeKey(): string {
    return encodeSignerKey(generateKey(name ?? `ledger-mirror/${mirrorId}`));
  }
}

/** What `doctor` reports about a key file. */
export interface KeyFileFacts {
  /** The key in the file; undefined if the file has no valid one. */
  readonly key: SignerKey | undefined;
  /** The permissions, as four octal digits: `0600`. */
  readonly mode: string;
  /** What every user of the machine may do with the file; undefined if nothing. */
  readonly exposure: 'read' | 'replace' | undefined;
}

/**
 * Examines a key file.
 * @returns undefined if the file does not exist
 * @throws PermanentError `PROOF_KEY_UNREADABLE`
 */
export async function examineKeyFile(
  path: string,
): Promise<KeyFileFacts | undefined> {
  const text = await readKeyFile(path);
  if (text === undefined) return undefined;
  const { mode } = await stat(path);
  let exposure: KeyFileFacts['exposure'];
  if ((mode & OTHERS_MAY_READ) !== 0) exposure = 'read';
  if ((mode & OTHERS_MAY_WRITE) !== 0) exposure = 'replace';
  const digits = (mode & 0o7777).toString(8).padStart(4, '0');
  return { key: keyIn(text), mode: digits, exposure };
}

function keyIn(text: string): SignerKey | undefined {
  try {
    return decodeSignerKey(text);
  } catch {
    return undefined;
  }
}

function requireKey(text: string, path: string): void {
  if (keyIn(text) !== undefined) return;
  throw new PermanentError(
    `Cannot use the key of proofs in ${path}: the file ` +
      `${text === '' ? 'is empty' : 'does not contain a signed-note key'}; ` +
      'restore it from a copy, or remove it if no night was signed with it',
    { code: 'PROOF_KEY_INVALID', meta: { path } },
  );
}

async function readKeyFile(path: string): Promise<string | undefined> {
  try {
    return (await readFile(path, 'utf8')).trim();
  } catch (error) {
    const code = errorCode(error);
    if (code === 'ENOENT') return undefined;
    throw unreadable(path, code, error);
  }
}

/**
 * Writes the key file. If the data folder is not writable, the key is kept only in the
 * database.
 */
async function writeKeyFile(path: string, key: string): Promise<void> {
  try {
    await writeFile(path, `${key}\n`, { mode: 0o600, flag: 'wx' });
  } catch (error) {
    const isTolerated = ['EEXIST', 'EROFS', 'EACCES', 'ENOENT', 'EPERM'];
    if (!isTolerated.includes(errorCode(error)))
      throw unreadable(path, errorCode(error), error);
  }
}

function unreadable(
  path: string,
  state: string,
  cause: unknown,
): PermanentError {
  return new PermanentError(
    `Cannot use the key of proofs in ${path}: ${state}; check the file ` +
      'and its permissions',
    { code: 'PROOF_KEY_UNREADABLE', meta: { path }, cause },
  );
}
