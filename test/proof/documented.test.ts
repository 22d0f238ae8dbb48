/** docs/proof.md prints the program that it tells readers to run. */
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { expect, test } from 'vitest';

const DOCS = resolve(import.meta.dirname, '../../docs');

test('docs/proof.md prints ledger_digest.py as it is', () => {
  const page = readFileSync(resolve(DOCS, 'proof.md'), 'utf8');
  const program = readFileSync(resolve(DOCS, 'proof/ledger_digest.py'), 'utf8');
  expect(page).toContain(`\`\`\`python\n${program}\`\`\``);
});
