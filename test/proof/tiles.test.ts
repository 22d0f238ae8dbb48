/** The tiles of a log: their paths, and that a grown log has every tile of its size. */
import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { leafHash, rootHash } from '../../src/proof/merkle.ts';
import {
  decodeEntries,
  encodeEntries,
  entriesPath,
  grownTiles,
  lowestTiles,
  tilePath,
} from '../../src/proof/tiles.ts';

describe('tilePath', () => {
  test.each([
    [0, 0, 256, 'tile/0/000'],
    [0, 0, 5, 'tile/0/000.p/5'],
    [1, 67, 256, 'tile/1/067'],
    [0, 1_234_067, 256, 'tile/0/x001/x234/067'],
    [2, 1000, 1, 'tile/2/x001/000.p/1'],
  ])(
    'names tile %i/%i of width %i as C2SP does',
    (level, index, width, path) => {
      expect(tilePath(level, index, width)).toBe(path);
    },
  );

  test('entriesPath names bundles in the same way', () => {
    expect(entriesPath(1_234_067, 8)).toBe('tile/entries/x001/x234/067.p/8');
  });
});

describe('grownTiles', () => {
  test('leaves every tile of every size behind, and never changes one', () => {
    const files = new Map<string, Buffer>();
    const entries = Array.from({ length: 600 }, (_, index) =>
      createHash('sha256').update(`night ${index}`).digest(),
    );
    const leaves = entries.map(leafHash);
    let size = 0;
    for (const grown of [1, 2, 3, 255, 256, 257, 511, 512, 600]) {
      const from = entries.slice(size - (size % 256), grown);
      for (const { path, content } of grownTiles(
        size,
        from,
        leaves.slice(0, grown),
      )) {
        expect(files.get(path) ?? content).toEqual(content);
        files.set(path, content);
      }
      size = grown;
      const read = lowestTiles(size).flatMap(({ index, width }) =>
        decodeEntries(files.get(entriesPath(index, width)) ?? Buffer.alloc(0)),
      );
      expect(read).toEqual(entries.slice(0, size));
      for (const { index, width } of lowestTiles(size)) {
        const hashes = leaves.slice(index * 256, index * 256 + width);
        expect(files.get(tilePath(0, index, width))).toEqual(
          Buffer.concat(hashes),
        );
      }
    }
    const above = [leaves.slice(0, 256), leaves.slice(256, 512)].map(rootHash);
    expect(files.get('tile/1/000.p/2')).toEqual(Buffer.concat(above));
    expect(files.get('tile/1/000.p/1')).toEqual(above[0]);
  });
});

describe('decodeEntries', () => {
  test('refuses a bundle that ends within an entry', () => {
    const bundle = encodeEntries([Buffer.from('one'), Buffer.from('two')]);
    expect(decodeEntries(bundle).map(String)).toEqual(['one', 'two']);
    expect(() => decodeEntries(bundle.subarray(0, -1))).toThrow(RangeError);
    expect(() => decodeEntries(bundle.subarray(0, 6))).toThrow(RangeError);
  });
});
