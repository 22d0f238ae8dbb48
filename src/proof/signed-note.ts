/**
 * Signed notes and their keys, as C2SP `signed-note` defines them and Go's
 * `golang.org/x/mod/sumdb/note` reads them: a text, a blank line, and a line for each
 * signature.
 */
import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  sign,
  verify,
} from 'node:crypto';
import { PermanentError } from '../errors/errors.ts';

/** The byte for the algorithm, Ed25519, in keys and in their hashes. */
const ED25519 = Buffer.of(1);
const KEY_BYTES = 32;
const KEY_HASH_BYTES = 4;
const SIGNATURE_BYTES = 64;
/**
 * The bytes before the 32 bytes of a private key in PKCS#8, and of a public key in
 * SPKI.
 */
const PKCS8_PREFIX = Buffer.from('302e020100300506032b657004220420', 'hex');
const SPKI_PREFIX = Buffer.from('302a300506032b6570032100', 'hex');
const SIGNATURE_LINE =
  /^— (?<name>[^\s+]+) (?<signature>[A-Za-z0-9+/]+={0,2})$/u;
const SIGNER_KEY =
  /^PRIVATE\+KEY\+(?<name>[^\s+]+)\+(?<hash>[0-9a-f]{8})\+(?<key>[A-Za-z0-9+/]+={0,2})$/;
const VERIFIER_KEY =
  /^(?<name>[^\s+]+)\+(?<hash>[0-9a-f]{8})\+(?<key>[A-Za-z0-9+/]+={0,2})$/;
/**
 * A name must not contain a space or a plus sign, because it is part of an encoded key
 * and of a signature line.
 */
const NAME = /^[^\s+]{1,200}$/u;

/** A public key, with the signer's name. */
export interface VerifierKey {
  readonly name: string;
  readonly publicKey: Buffer;
}

/** A key pair. */
export interface SignerKey extends VerifierKey {
  /** The private key: 32 bytes. */
  readonly seed: Buffer;
}

/**
 * Generates a new key.
 * @throws PermanentError `PROOF_KEY_INVALID` if the name contains a space or a plus sign
 */
export function generateKey(name: string): SignerKey {
  if (!NAME.test(name))
    throw invalidKey(
      'its name has a space, a plus, or more than 200 characters',
    );
  const { privateKey } = generateKeyPairSync('ed25519');
  const der = privateKey.export({ format: 'der', type: 'pkcs8' });
  return signerOf(name, der.subarray(PKCS8_PREFIX.length));
}

/** Formats a private key, which is a secret, as `PRIVATE+KEY+<name>+<hash>+<key>`. */
export function encodeSignerKey(key: SignerKey): string {
  const bytes = Buffer.concat([ED25519, key.seed]).toString('base64');
  return `PRIVATE+KEY+${key.name}+${keyHash(key).toString('hex')}+${bytes}`;
}

/** Formats a public key as `<name>+<hash>+<key>`, which is all that a verifier needs. */
export function encodeVerifierKey(key: VerifierKey): string {
  const bytes = Buffer.concat([ED25519, key.publicKey]).toString('base64');
  return `${key.name}+${keyHash(key).toString('hex')}+${bytes}`;
}

/**
 * Parses a private key.
 * @throws PermanentError `PROOF_KEY_INVALID`
 */
export function decodeSignerKey(text: string): SignerKey {
  const { name, hash, bytes } = keyParts(SIGNER_KEY, text, 'a private key');
  const key = signerOf(name, bytes);
  if (keyHash(key).toString('hex') !== hash)
    throw invalidKey('its hash does not belong to its name and its bytes');
  return key;
}

/**
 * Parses a public key.
 * @throws PermanentError `PROOF_KEY_INVALID`
 */
export function decodeVerifierKey(text: string): VerifierKey {
  const { name, hash, bytes } = keyParts(VERIFIER_KEY, text, 'a public key');
  const key = { name, publicKey: bytes };
  if (keyHash(key).toString('hex') !== hash)
    throw invalidKey('its hash does not belong to its name and its bytes');
  return key;
}

/**
 * Signs a text and returns the note.
 * @param text must end with a line break
 */
export function signNote(text: string, key: SignerKey): string {
  const signature = sign(null, Buffer.from(text), privateKeyOf(key.seed));
  const signed = Buffer.concat([keyHash(key), signature]).toString('base64');
  return `${text}\n— ${key.name} ${signed}\n`;
}

/**
 * Checks the signature of a note.
 * @returns the note's text, which the key has signed
 * @throws PermanentError `PROOF_SIGNATURE_INVALID` if the key has not signed it
 */
export function openNote(note: string, key: VerifierKey): string {
  const split = note.lastIndexOf('\n\n');
  if (split === -1 || !note.endsWith('\n'))
    throw unsigned('it has no signature line');
  const text = note.slice(0, split + 1);
  const lines = note.slice(split + 2, -1).split('\n');
  const signatures = lines.map(decodeSignature);
  const wantedHash = keyHash(key);
  for (const { name, bytes } of signatures) {
    const isOurs =
      name === key.name &&
      bytes.length === KEY_HASH_BYTES + SIGNATURE_BYTES &&
      bytes.subarray(0, KEY_HASH_BYTES).equals(wantedHash);
    if (!isOurs) continue;
    const signed = bytes.subarray(KEY_HASH_BYTES);
    const publicKey = publicKeyOf(key.publicKey);
    if (verify(null, Buffer.from(text), publicKey, signed)) return text;
    throw unsigned(`the signature by ${key.name} does not match this text`);
  }
  throw unsigned(`none of its signatures is by ${encodeVerifierKey(key)}`);
}

/**
 * Returns the keys that a note claims to be signed by, each as `<name>+<hash>`; nothing
 * is checked. Empty if the note has a line that is not a signature.
 */
export function signersOf(note: string): readonly string[] {
  const lines = note.slice(note.lastIndexOf('\n\n') + 2, -1).split('\n');
  const signers = lines.map((line) => {
    const { name, signature = '' } = SIGNATURE_LINE.exec(line)?.groups ?? {};
    const hash = Buffer.from(signature, 'base64').subarray(0, KEY_HASH_BYTES);
    return name === undefined ? undefined : `${name}+${hash.toString('hex')}`;
  });
  return signers.includes(undefined)
    ? []
    : signers.filter((signer) => signer !== undefined);
}

/** Returns a key as `<name>+<hash>`. */
export function shortKey(key: VerifierKey): string {
  return `${key.name}+${keyHash(key).toString('hex')}`;
}

/**
 * Parses a signature line. As in Go's package, every line must be valid, even for unknown
 * keys, and base64 must be in canonical form, so that no byte can change unnoticed.
 * @throws PermanentError `PROOF_SIGNATURE_INVALID`
 */
function decodeSignature(line: string): {
  readonly name: string;
  readonly bytes: Buffer;
} {
  const { name = '', signature = '' } = SIGNATURE_LINE.exec(line)?.groups ?? {};
  const bytes = Buffer.from(signature, 'base64');
  if (name === '' || bytes.toString('base64') !== signature)
    throw unsigned('it has a line that is not a signature');
  return { name, bytes };
}

/**
 * Computes the first four bytes of the SHA-256 of name, line break, algorithm and
 * public key.
 */
function keyHash({ name, publicKey }: VerifierKey): Buffer {
  return createHash('sha256')
    .update(`${name}\n`)
    .update(ED25519)
    .update(publicKey)
    .digest()
    .subarray(0, KEY_HASH_BYTES);
}

function signerOf(name: string, seed: Buffer): SignerKey {
  const der = createPublicKey(privateKeyOf(seed)).export({
    format: 'der',
    type: 'spki',
  });
  return { name, seed, publicKey: der.subarray(SPKI_PREFIX.length) };
}

function privateKeyOf(seed: Buffer) {
  const key = Buffer.concat([PKCS8_PREFIX, seed]);
  return createPrivateKey({ key, format: 'der', type: 'pkcs8' });
}

function publicKeyOf(publicKey: Buffer) {
  const key = Buffer.concat([SPKI_PREFIX, publicKey]);
  return createPublicKey({ key, format: 'der', type: 'spki' });
}

function keyParts(pattern: RegExp, text: string, what: string) {
  const {
    name = '',
    hash = '',
    key = '',
  } = pattern.exec(text.trim())?.groups ?? {};
  const decoded = Buffer.from(key, 'base64');
  const isEd25519 = decoded.subarray(0, ED25519.length).equals(ED25519);
  // Node ignores characters after the last byte, so a mistyped key would pass.
  const isWhole = decoded.toString('base64') === key;
  if (!isEd25519 || !isWhole || decoded.length !== ED25519.length + KEY_BYTES)
    throw invalidKey(
      `it is not ${what} of Ed25519 in the form of a signed note`,
    );
  return { name, hash, bytes: decoded.subarray(ED25519.length) };
}

function invalidKey(state: string): PermanentError {
  return new PermanentError(
    `Cannot use the key of proofs: ${state}; give the text that doctor prints, or the file that was kept`,
    { code: 'PROOF_KEY_INVALID' },
  );
}

function unsigned(state: string): PermanentError {
  return new PermanentError(
    `Cannot trust the checkpoint: ${state}; compare it with a copy that you kept`,
    { code: 'PROOF_SIGNATURE_INVALID' },
  );
}
