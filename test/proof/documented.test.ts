/** The programs that docs/proof.md tells readers to run. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { expect, test } from 'vitest';
import {
  decodeSignerKey,
  encodeVerifierKey,
  openNote,
  signNote,
} from '../../src/proof/signed-note.ts';

const DOCS = resolve(import.meta.dirname, '../../docs');

test('docs/proof.md prints ledger_digest.py as it is', () => {
  const page = readFileSync(resolve(DOCS, 'proof.md'), 'utf8');
  const program = readFileSync(resolve(DOCS, 'proof/ledger_digest.py'), 'utf8');
  expect(page).toContain(`\`\`\`python\n${program}\`\`\``);
});

test('make-key.mjs makes a key that signs and that has the given name', () => {
  const program = resolve(DOCS, 'proof/make-key.mjs');
  const made = execFileSync(process.execPath, [program, 'mirror.example/2']);
  const key = decodeSignerKey(made.toString());
  expect(encodeVerifierKey(key)).toMatch(/^mirror\.example\/2\+[0-9a-f]{8}\+/);
  expect(openNote(signNote('a text\n', key), key)).toBe('a text\n');
});
