/**
 * Merkle trees, compared with the recursive definition of RFC 9162 (2.1.1) and with the
 * vectors of the reference implementation of Certificate Transparency.
 */
import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import {
  consistencyPath,
  continuesList,
  inclusionPath,
  leafHash,
  rootFromInclusion,
  rootHash,
} from '../../src/proof/merkle.ts';

const SIZE_MAX = 70;

describe('rootHash', () => {
  test('agrees with the vectors of Certificate Transparency for its eight inputs', () => {
    const roots = [
      '6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d',
      'fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125',
      'aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77',
      'd37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7',
      '4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4',
      '76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef',
      'ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c',
      '5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328',
    ];
    const found = roots.map((_, last) => rootHash(leavesOf(last + 1)));
    expect(found.map((hash) => hash.toString('hex'))).toEqual(roots);
  });

  test('of an empty list is the hash of nothing', () => {
    const empty = createHash('sha256').digest();
    expect(rootHash([])).toEqual(empty);
  });

  test('is the recursive definition for every size', () => {
    for (let size = 1; size <= SIZE_MAX; size += 1) {
      const leaves = numberedLeaves(size);
      expect(rootHash(leaves)).toEqual(definedRoot(leaves));
    }
  });
});

describe('consistencyPath', () => {
  test('shows of every list that it continues each of its beginnings', () => {
    for (let size = 1; size <= SIZE_MAX; size += 1) {
      const leaves = numberedLeaves(size);
      const newer = { size, root: rootHash(leaves) };
      for (let before = 1; before <= size; before += 1) {
        const root = rootHash(leaves.slice(0, before));
        const path = consistencyPath(before, leaves);
        expect(continuesList({ size: before, root }, newer, path)).toBe(true);
      }
    }
  });

  test('shows of no list that it continues another one', () => {
    for (let size = 2; size <= 20; size += 1) {
      const leaves = numberedLeaves(size);
      const newer = { size, root: rootHash(leaves) };
      for (let before = 1; before <= size; before += 1) {
        const others = [leafHash('another'), ...leaves.slice(1, before)];
        const path = consistencyPath(before, leaves);
        const root = rootHash(leaves.slice(0, before));
        const wrong = [
          continuesList({ size: before, root: rootHash(others) }, newer, path),
          continuesList({ size: before, root }, newer, [...path, root]),
          continuesList({ size: size + 1, root }, newer, path),
          path.length > 0 &&
            continuesList({ size: before, root }, newer, path.slice(1)),
          path.length > 0 && continuesList({ size: before, root }, newer, []),
        ];
        expect(wrong).not.toContain(true);
      }
    }
  });

  test('is refused of a beginning that the list does not have', () => {
    const leaves = numberedLeaves(3);
    for (const size of [0, 4])
      expect(() => consistencyPath(size, leaves)).toThrow(RangeError);
  });
});

describe('inclusionPath', () => {
  test('leads from every item of every list to its hash', () => {
    for (let size = 1; size <= SIZE_MAX; size += 1) {
      const leaves = numberedLeaves(size);
      const root = rootHash(leaves);
      leaves.forEach((leaf, index) => {
        const path = inclusionPath(index, leaves);
        expect(rootFromInclusion(index, size, leaf, path)).toEqual(root);
      });
    }
  });

  test('leads no other item, place, size or path to the hash', () => {
    for (let size = 2; size <= 20; size += 1) {
      const leaves = numberedLeaves(size);
      const root = rootHash(leaves);
      leaves.forEach((leaf, index) => {
        const path = inclusionPath(index, leaves);
        const wrong = [
          rootFromInclusion(index, size, leafHash('another'), path),
          rootFromInclusion((index + 1) % size, size, leaf, path),
          rootFromInclusion(index, size, leaf, path.slice(1)),
          rootFromInclusion(index, size, leaf, [...path, leaf]),
          rootFromInclusion(size, size, leaf, path),
          rootFromInclusion(-1, size, leaf, path),
        ];
        for (const hash of wrong) expect(hash?.equals(root)).not.toBe(true);
      });
    }
  });

  test('refuses a place that the list has not', () => {
    expect(() => inclusionPath(3, numberedLeaves(3))).toThrow(RangeError);
    expect(() => inclusionPath(0, [])).toThrow(RangeError);
  });
});

/** Inputs of the reference implementation's tests. */
const INPUTS = [
  '',
  '00',
  '10',
  '2021',
  '3031',
  '40414243',
  '5051525354555657',
  '606162636465666768696a6b6c6d6e6f',
];

function leavesOf(count: number): Buffer[] {
  return INPUTS.slice(0, count).map((hex) => leafHash(Buffer.from(hex, 'hex')));
}

function numberedLeaves(count: number): Buffer[] {
  return Array.from({ length: count }, (_, index) => leafHash(`item ${index}`));
}

/** RFC 9162, 2.1.1: MTH(D[n]) = SHA-256(0x01 || MTH(D[0:k]) || MTH(D[k:n])). */
function definedRoot(leaves: readonly Buffer[]): Buffer {
  const [only] = leaves;
  if (only !== undefined && leaves.length === 1) return only;
  const k = 2 ** Math.floor(Math.log2(leaves.length - 1));
  return createHash('sha256')
    .update(Buffer.of(1))
    .update(definedRoot(leaves.slice(0, k)))
    .update(definedRoot(leaves.slice(k)))
    .digest();
}
