/**
 * The hashes of a log as tiles (C2SP `tlog-tiles`): plain files of at most 256 hashes,
 * which any web server can publish and from which any reader can compute proofs.
 */
import { rootHash } from './merkle.ts';

const WIDTH = 256;
const ENTRY_LENGTH_BYTES = 2;

/** One file of the log. */
export interface TileFile {
  /** The path relative to the log's folder. */
  readonly path: string;
  readonly content: Buffer;
}

/** Returns the path of the file that contains the entries hashed in a tile. */
export function entriesPath(index: number, width: number): string {
  return `tile/entries/${indexPath(index)}${partial(width)}`;
}

export function tilePath(level: number, index: number, width: number): string {
  return `tile/${level}/${indexPath(index)}${partial(width)}`;
}

/**
 * Returns the files to add when a log grows from `oldSize` entries to include all of
 * these. A tile that is not full yet gets a separate file for each width, so that no file
 * ever changes.
 * @param entries the entries starting with the first tile that is not full at `oldSize`
 * @param leaves the hashes of all entries of the log
 */
export function grownTiles(
  oldSize: number,
  entries: readonly Buffer[],
  leaves: readonly Buffer[],
): TileFile[] {
  const files: TileFile[] = [];
  let hashes = leaves;
  let known = oldSize;
  for (let level = 0; hashes.length > 0; level += 1) {
    for (const { index, from, to } of unknownTiles(known, hashes.length)) {
      const content = Buffer.concat(hashes.slice(from, to));
      files.push({ path: tilePath(level, index, to - from), content });
    }
    hashes = hashesAbove(hashes);
    known = Math.floor(known / WIDTH);
  }
  const firstEntry = Math.floor(oldSize / WIDTH) * WIDTH;
  for (const { index, from, to } of unknownTiles(oldSize, leaves.length)) {
    const bundle = entries.slice(from - firstEntry, to - firstEntry);
    const content = encodeEntries(bundle);
    files.push({ path: entriesPath(index, to - from), content });
  }
  return files;
}

/** Returns the tiles on the lowest level of a log of this size, in order. */
export function lowestTiles(
  size: number,
): readonly { readonly index: number; readonly width: number }[] {
  return unknownTiles(0, size).map(({ index, from, to }) => ({
    index,
    width: to - from,
  }));
}

/** Concatenates entries, each preceded by its length in two bytes. */
export function encodeEntries(entries: readonly Buffer[]): Buffer {
  return Buffer.concat(
    entries.flatMap((entry) => {
      const length = Buffer.alloc(ENTRY_LENGTH_BYTES);
      length.writeUInt16BE(entry.length);
      return [length, entry];
    }),
  );
}

/**
 * Splits concatenated entries.
 * @throws RangeError if the content ends within an entry
 */
export function decodeEntries(content: Buffer): Buffer[] {
  const entries: Buffer[] = [];
  let at = 0;
  while (at < content.length) {
    const start = at + ENTRY_LENGTH_BYTES;
    const end = start + content.readUInt16BE(at);
    if (end > content.length) throw new RangeError('an entry is cut off');
    entries.push(content.subarray(start, end));
    at = end;
  }
  return entries;
}

interface TileRange {
  readonly index: number;
  /** Index of the first hash of the tile, and the index after its last. */
  readonly from: number;
  readonly to: number;
}

function unknownTiles(known: number, size: number): TileRange[] {
  const tiles: TileRange[] = [];
  if (size === known) return tiles;
  const first = Math.floor(known / WIDTH);
  for (let index = first; index * WIDTH < size; index += 1) {
    const from = index * WIDTH;
    tiles.push({ index, from, to: Math.min(from + WIDTH, size) });
  }
  return tiles;
}

/** Computes one hash for each full tile. */
function hashesAbove(hashes: readonly Buffer[]): Buffer[] {
  const above: Buffer[] = [];
  for (let from = 0; from + WIDTH <= hashes.length; from += WIDTH)
    above.push(rootHash(hashes.slice(from, from + WIDTH)));
  return above;
}

/**
 * Formats an index as `x001/x234/067`: three digits per folder, all but the last group
 * prefixed with an x.
 */
function indexPath(index: number): string {
  const digits = String(index);
  const padded = digits.padStart(Math.ceil(digits.length / 3) * 3, '0');
  const groups = padded.match(/\d{3}/g) ?? [];
  return groups
    .map((group, at) => (at < groups.length - 1 ? `x${group}` : group))
    .join('/');
}

function partial(width: number): string {
  return width === WIDTH ? '' : `.p/${width}`;
}
