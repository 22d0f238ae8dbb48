/**
 * Merkle trees as RFC 9162 defines them (section 2.1): the hash of a list, the proof
 * that an item is in it, and the proof that a list continues a shorter one. Other tools
 * check these hashes and proofs, so nothing may differ from the standard.
 */
import { hash as digest } from 'node:crypto';

export const HASH_BYTES = 32;
const LEAF_PREFIX = Buffer.of(0);
const NODE_PREFIX = Buffer.of(1);

/** Computes the hash of one item of a list. */
export function leafHash(item: Buffer | string): Buffer {
  const bytes = typeof item === 'string' ? Buffer.from(item) : item;
  return sha256(Buffer.concat([LEAF_PREFIX, bytes]));
}

/**
 * Hashes in a single call; creating a hash object takes three times as long for so few
 * bytes.
 */
function sha256(bytes: Buffer): Buffer {
  return digest('sha256', bytes, 'buffer');
}

function nodeHash(left: Buffer, right: Buffer): Buffer {
  return sha256(Buffer.concat([NODE_PREFIX, left, right]));
}

/**
 * Computes the hash of a list from its leaf hashes, one at a time, keeping only a few
 * hashes in memory.
 */
export class RootHasher {
  size = 0;
  /** Complete subtrees from left to right, largest first. */
  readonly #subtrees: { readonly hash: Buffer; readonly size: number }[] = [];

  add(leaf: Buffer): void {
    this.size += 1;
    let subtree = { hash: leaf, size: 1 };
    let last = this.#subtrees.at(-1);
    while (last?.size === subtree.size) {
      this.#subtrees.pop();
      const hash = nodeHash(last.hash, subtree.hash);
      subtree = { hash, size: 2 * subtree.size };
      last = this.#subtrees.at(-1);
    }
    this.#subtrees.push(subtree);
  }

  root(): Buffer {
    const hashes = this.#subtrees.map(({ hash }) => hash);
    const smallest = hashes.pop();
    if (smallest === undefined) return sha256(Buffer.alloc(0));
    return hashes.reduceRight((right, left) => nodeHash(left, right), smallest);
  }
}

/** Computes the hash of the whole list. */
export function rootHash(leaves: readonly Buffer[]): Buffer {
  const hasher = new RootHasher();
  for (const leaf of leaves) hasher.add(leaf);
  return hasher.root();
}

/**
 * Returns the hashes from which `rootFromInclusion` computes the list's hash, from the
 * item upwards.
 * @throws RangeError if the list has no item at `index`
 */
export function inclusionPath(
  index: number,
  leaves: readonly Buffer[],
): Buffer[] {
  if (index < 0 || index >= leaves.length)
    throw new RangeError(`a list of ${leaves.length} has no item ${index}`);
  const path: Buffer[] = [];
  let start = 0;
  let end = leaves.length;
  while (end - start > 1) {
    const middle = start + leftSize(end - start);
    if (index < middle) {
      path.push(rootHash(leaves.slice(middle, end)));
      end = middle;
    } else {
      path.push(rootHash(leaves.slice(start, middle)));
      start = middle;
    }
  }
  return path.toReversed();
}

/**
 * Computes the hash of a list of `size` items from one item's hash and its path (RFC
 * 9162, 2.1.3.2).
 * @returns undefined if the path does not have the length that this index requires
 */
export function rootFromInclusion(
  index: number,
  size: number,
  leaf: Buffer,
  path: readonly Buffer[],
): Buffer | undefined {
  if (index < 0 || index >= size) return undefined;
  let place = index;
  let last = size - 1;
  let hash = leaf;
  for (const other of path) {
    if (last === 0) return undefined;
    const isRightmost = place === last;
    if (place % 2 === 1 || isRightmost) {
      hash = nodeHash(other, hash);
      while (place % 2 === 0 && place !== 0) {
        place /= 2;
        last = Math.floor(last / 2);
      }
    } else {
      hash = nodeHash(hash, other);
    }
    place = Math.floor(place / 2);
    last = Math.floor(last / 2);
  }
  return last === 0 ? hash : undefined;
}

/**
 * Returns the hashes that prove that a list continues its first `size` items (RFC 9162,
 * 2.1.4.1).
 * @throws RangeError if the list is shorter, or `size` is 0
 */
export function consistencyPath(
  size: number,
  leaves: readonly Buffer[],
): Buffer[] {
  if (size < 1 || size > leaves.length)
    throw new RangeError(
      `a list of ${leaves.length} continues none of ${size}`,
    );
  const path: Buffer[] = [];
  let start = 0;
  let end = leaves.length;
  // Whether the rest of the shorter list is a complete subtree whose hash the reader
  // has.
  let isKnown = true;
  while (end > size) {
    const middle = start + leftSize(end - start);
    if (size <= middle) {
      path.push(rootHash(leaves.slice(middle, end)));
      end = middle;
    } else {
      path.push(rootHash(leaves.slice(start, middle)));
      start = middle;
      isKnown = false;
    }
  }
  if (!isKnown) path.push(rootHash(leaves.slice(start, end)));
  return path.toReversed();
}

/** The size and the hash of a list. */
export interface ListHash {
  readonly size: number;
  readonly root: Buffer;
}

/** Whether the newer list continues the older one (RFC 9162, 2.1.4.2). */
export function continuesList(
  older: ListHash,
  newer: ListHash,
  path: readonly Buffer[],
): boolean {
  if (older.size === 0) return path.length === 0;
  if (older.size > newer.size) return false;
  if (older.size === newer.size)
    return path.length === 0 && older.root.equals(newer.root);

  const isWholeSubtree = Number.isInteger(Math.log2(older.size));
  const [first, ...others] = isWholeSubtree ? [older.root, ...path] : path;
  if (first === undefined) return false;
  let place = older.size - 1;
  let last = newer.size - 1;
  while (place % 2 === 1) {
    place = Math.floor(place / 2);
    last = Math.floor(last / 2);
  }
  let olderRoot = first;
  let newerRoot = first;
  for (const other of others) {
    if (last === 0) return false;
    if (place % 2 === 1 || place === last) {
      olderRoot = nodeHash(other, olderRoot);
      newerRoot = nodeHash(other, newerRoot);
      while (place % 2 === 0 && place !== 0) {
        place /= 2;
        last = Math.floor(last / 2);
      }
    } else {
      newerRoot = nodeHash(newerRoot, other);
    }
    place = Math.floor(place / 2);
    last = Math.floor(last / 2);
  }
  return (
    last === 0 && olderRoot.equals(older.root) && newerRoot.equals(newer.root)
  );
}

/**
 * Returns how many items of a list are in its left subtree: the largest power of two
 * below the size.
 */
function leftSize(size: number): number {
  let left = 1;
  while (left * 2 < size) left *= 2;
  return left;
}
