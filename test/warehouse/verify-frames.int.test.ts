/** A segment of several frames, as an export publishes it: what `verify` says of them. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { filesBelow, openHome } from '../cli/mirror-home.ts';
import { freshDatabase } from '../support/database.ts';
import { startSandbox } from '../support/sandbox.ts';

/** Some 32 MB of CSV, which is several frames. */
const WHALE_ENTRIES = 130_000;

const database = await freshDatabase();

test('a manifest that hides a part of its object from readers is found', async () => {
  await using sandbox = await startSandbox({
    parties: 2,
    whaleEntries: WHALE_ENTRIES,
  });
  await using home = await openHome({
    SOURCE_URL: sandbox.url,
    DATABASE_URL: database.url,
  });
  const night = await home.json(['nightly']);
  expect([night.code, night.document.verdict]).toEqual([0, 'complete']);
  const ledgers = join(home.objectsDir, 'ledger');
  const framed: string[] = [];
  for (const path of await filesBelow(ledgers)) {
    const isManifest = path.endsWith('.manifest.json');
    if (isManifest && (await readFile(path, 'utf8')).includes('"frames"'))
      framed.push(path);
  }
  expect(framed).not.toEqual([]);
  const [path = ''] = framed;

  const good = await home.json(['verify']);
  expect([good.code, good.document.verdict]).toEqual([0, 'complete']);
  const text = await readFile(path, 'utf8');
  const [, latest = ''] = /"latest": "(?<day>[^T]+)T/.exec(text) ?? [];
  await writeFile(
    path,
    text.replace(`"latest": "${latest}T`, '"latest": "2001-01-01T'),
  );
  const bad = await home.json(['verify']);
  expect(bad.code).not.toBe(0);
  expect(bad.stdout).toContain('differ in frames');
});
