import { access, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as fc from 'fast-check';
import { expect, it } from 'vitest';
import { csvParts } from '../../src/lake/csv-parts.ts';

async function partsOf(chunks: readonly Buffer[], bytesMax: number): Promise<readonly string[]> {
  const folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-parts-'));
  let made = 0;
  const parts: string[] = [];
  const paths: string[] = [];
  try {
    const rows = (async function* () {
      yield* chunks;
    })();
    for await (const path of csvParts(
      rows,
      () => Promise.resolve(join(folder, `${(made += 1)}`)),
      bytesMax,
    )) {
      parts.push(await readFile(path, 'utf8'));
      paths.push(path);
    }
    for (const path of paths) await expect(access(path)).rejects.toMatchObject({ code: 'ENOENT' });
  } finally {
    await rm(folder, { recursive: true });
  }
  return parts;
}

it('cuts at row ends only, whatever the chunks, and leaves no file', async () => {
  const rows = fc.array(fc.stringMatching(/^[a-z,]{0,9}$/), { maxLength: 12 });
  await fc.assert(
    fc.asyncProperty(
      rows,
      fc.array(fc.nat(60)),
      fc.integer({ min: 1, max: 40 }),
      async (lines, cuts, bytesMax) => {
        const text = Buffer.from(lines.map((line) => `${line}\n`).join(''));
        const borders = [...new Set([0, ...cuts.filter((cut) => cut < text.length), text.length])].toSorted(
          (a, b) => a - b,
        );
        const chunks = borders.slice(1).map((end, index) => text.subarray(borders[index], end));
        const parts = await partsOf(chunks, bytesMax);
        expect(parts.join('')).toBe(text.toString());
        for (const part of parts) expect(part.endsWith('\n')).toBe(true);
      },
    ),
    { numRuns: 60 },
  );
});

it('keeps to its limit where rows allow it', async () => {
  const chunks = Array.from({ length: 100 }, () => Buffer.from('abcdefghi\n'));
  const parts = await partsOf(chunks, 250);
  expect(parts.every((part) => part.length <= 260)).toBe(true);
  expect(parts.length).toBeLessThanOrEqual(5);
});
