/** Signed notes, with the key and the note that Go's own package has as its example. */
import { describe, expect, test } from 'vitest';
import { errorCode } from '../../src/errors/errors.ts';
import {
  decodeCheckpoint,
  openCheckpoint,
  signCheckpoint,
} from '../../src/proof/checkpoint.ts';
import { leafHash } from '../../src/proof/merkle.ts';
import {
  decodeSignerKey,
  decodeVerifierKey,
  encodeSignerKey,
  encodeVerifierKey,
  generateKey,
  openNote,
  signNote,
} from '../../src/proof/signed-note.ts';

const GO_SIGNER =
  'PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz';
const GO_VERIFIER =
  'PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW';
const GO_TEXT =
  'If you think cryptography is the answer to your problem,\n' +
  "then you don't know what your problem is.\n";
const GO_NOTE =
  `${GO_TEXT}\n` +
  '— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n';

describe('signNote', () => {
  test('signs the example of Go with its key to its very bytes', () => {
    expect(signNote(GO_TEXT, decodeSignerKey(GO_SIGNER))).toBe(GO_NOTE);
  });
});

describe('openNote', () => {
  test('opens the example of Go with its public key', () => {
    expect(openNote(GO_NOTE, decodeVerifierKey(GO_VERIFIER))).toBe(GO_TEXT);
  });

  test('finds our signature among those of others', () => {
    const key = generateKey('mirror.example/one');
    const other = generateKey('witness.example');
    const [, theirs] = signNote('text\n', other).split('\n\n');
    const note = `${signNote('text\n', key)}${theirs}`;
    expect(openNote(note, key)).toBe('text\n');
    expect(openNote(note, other)).toBe('text\n');
  });

  test.each([
    ['a changed text', (note: string) => note.replace('text', 'test')],
    [
      'a changed signature',
      (note: string) =>
        note.replace(/.(?=.{9}\n$)/, (held) => (held === 'A' ? 'B' : 'A')),
    ],
    ['no signature', () => 'text\n'],
    ['no line end', (note: string) => note.slice(0, -1)],
    ['nothing', () => ''],
  ])('refuses %s', (_, change) => {
    const key = generateKey('mirror.example/one');
    const note = change(signNote('text\n', key));
    expect(codeOf(() => openNote(note, key))).toBe('PROOF_SIGNATURE_INVALID');
  });

  test('refuses another key of the same name', () => {
    const note = signNote('text\n', generateKey('mirror'));
    const open = () => openNote(note, generateKey('mirror'));
    expect(codeOf(open)).toBe('PROOF_SIGNATURE_INVALID');
  });
});

describe('keys', () => {
  test('are what they were after they were written', () => {
    const key = generateKey('mirror.example/one');
    expect(decodeSignerKey(encodeSignerKey(key))).toEqual(key);
    const { name, publicKey } = key;
    const verifier = decodeVerifierKey(encodeVerifierKey(key));
    expect(verifier).toEqual({ name, publicKey });
    expect(encodeVerifierKey(decodeSignerKey(GO_SIGNER))).toBe(GO_VERIFIER);
  });

  test.each([
    ['nothing', ''],
    ['words', 'my secret key'],
    ['a public key', GO_VERIFIER],
    ['another hash', GO_SIGNER.replace('c74f20a3', 'c74f20a4')],
    ['another name', GO_SIGNER.replace('Peter', 'Petra')],
    ['a byte less', GO_SIGNER.slice(0, -4)],
    ['another algorithm', GO_SIGNER.replace('+AY', '+Ao')],
  ])('decodeSignerKey refuses %s', (_, text) => {
    expect(codeOf(() => decodeSignerKey(text))).toBe('PROOF_KEY_INVALID');
  });

  test.each([
    ['a character more', (text: string) => `${text}x`],
    ['padding more', (text: string) => `${text}=`],
    ['three characters more', (text: string) => `${text}xyz`],
  ])('are refused with %s at the end', (_, mistype) => {
    const key = generateKey('mirror.example/one');
    expect(
      codeOf(() => decodeVerifierKey(mistype(encodeVerifierKey(key)))),
    ).toBe('PROOF_KEY_INVALID');
    expect(codeOf(() => decodeSignerKey(mistype(encodeSignerKey(key))))).toBe(
      'PROOF_KEY_INVALID',
    );
  });

  test.each(['two words', 'one+two', ''])(
    'generateKey refuses the name %j',
    (name) => {
      expect(codeOf(() => generateKey(name))).toBe('PROOF_KEY_INVALID');
    },
  );
});

describe('checkpoints', () => {
  const key = generateKey('mirror.example/one');
  const root = leafHash('a night');

  test('are what they were after they were signed', () => {
    const note = signCheckpoint({ size: 7, root }, key);
    const checkpoint = { origin: key.name, size: 7, root };
    expect(openCheckpoint(note, key)).toEqual(checkpoint);
    expect(decodeCheckpoint(note)).toEqual(checkpoint);
  });

  test.each([
    ['a size with a sign', `name\n+7\n${root.toString('base64')}\n`],
    ['a size with a zero in front', `name\n07\n${root.toString('base64')}\n`],
    ['a short hash', `name\n7\n${root.toString('base64').slice(4)}\n`],
    ['no name', `\n7\n${root.toString('base64')}\n`],
    ['one line', 'name'],
  ])('decodeCheckpoint refuses %s', (_, text) => {
    expect(codeOf(() => decodeCheckpoint(text))).toBe(
      'PROOF_CHECKPOINT_INVALID',
    );
  });
});

function codeOf(act: () => unknown): string {
  try {
    act();
  } catch (error) {
    return errorCode(error);
  }
  return 'nothing was thrown';
}
