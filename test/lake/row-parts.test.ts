import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fc } from '../support/properties.ts';
import { expect, it } from 'vitest';
import { oneAhead, rowParts } from '../../src/lake/row-parts.ts';

/** What is in the parts that were asked for; no file may be left, whenever the reader stops. */
async function partsOf(
  chunks: readonly Buffer[],
  bytesMax: number,
  partsMax = Infinity,
): Promise<readonly string[]> {
  const folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-parts-'));
  let made = 0;
  const parts: string[] = [];
  try {
    const rows = (async function* () {
      yield* chunks;
    })();
    const written = rowParts(rows, () => Promise.resolve(join(folder, `${(made += 1)}`)), bytesMax);
    for await (const path of oneAhead(written, (left) => rm(left))) {
      parts.push(await readFile(path, 'utf8'));
      await rm(path);
      if (parts.length >= partsMax) break;
    }
    expect(await readdir(folder)).toEqual([]);
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

it('leaves no file where the reader stops early', async () => {
  const chunks = Array.from({ length: 100 }, () => Buffer.from('abcdefghi\n'));
  for (const partsMax of [1, 2, 3]) expect(await partsOf(chunks, 100, partsMax)).toHaveLength(partsMax);
});

it('passes a failure on, behind what was written before it', async () => {
  const items = (async function* (): AsyncGenerator<number, undefined> {
    yield 1;
    throw new Error('broken');
  })();
  const seen: number[] = [];
  const reading = (async () => {
    for await (const item of oneAhead(items, async () => undefined)) seen.push(item);
  })();
  await expect(reading).rejects.toThrow('broken');
  expect(seen).toEqual([1]);
});
