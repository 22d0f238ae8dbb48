/**
 * Pages let a reader find a ledger's record, or the records in which two mirrors differ,
 * with a number of requests that grows with the difference. The records' hashes are
 * listed in pages, and the pages' hashes in pages above them, up to a single top page.
 *
 * Where a page ends depends only on the names of the ledgers, not on their number. So a
 * new ledger changes one page on each level, and two mirrors with the same records have
 * the same pages. A page that equals an earlier one is not written again, so each entry
 * names the file that contains its bytes.
 */
import { hash as digest } from 'node:crypto';
import { z } from 'zod';
import { PermanentError } from '../errors/errors.ts';
import { rootHash } from './merkle.ts';

/** Bits of the hash that end a page: 6 bits give 64 entries per page on average. */
const BOUNDARY_BITS = 6;
const ENTRIES_MAX = 1024;

/**
 * The location of some bytes: the file of one night, the offset in that file, and the
 * length.
 */
const place = z.tuple([
  z.string().regex(/^\d+-[0-9a-f]{8}$/),
  z.int().nonnegative(),
  z.int().nonnegative(),
]);
export type Place = Readonly<z.output<typeof place>>;

/**
 * Party and asset, hash, and location. In a page of pages, party and asset are those of
 * the first record below. The hash is a record's leaf hash, or the RFC 9162 hash of the
 * hashes of a page's entries.
 */
export const pageEntry = z.tuple([
  z.string(),
  z.string().nullable(),
  z.string().regex(/^[0-9a-f]{64}$/),
  ...place.def.items,
]);
export type PageEntry = z.output<typeof pageEntry>;

export function entryOf(
  party: string,
  asset: string | null,
  hash: string,
  [file, at, bytes]: Place,
): PageEntry {
  return [party, asset, hash, file, at, bytes];
}

export function placeOf([, , , file, at, bytes]: PageEntry): Place {
  return [file, at, bytes];
}

/** Returns the key of a ledger in maps. */
export function ledgerKey([party, asset]: PageEntry): string {
  return JSON.stringify([party, asset]);
}

/**
 * Compares ledgers in the order of the records: by the bytes of party and asset, with the
 * ledger of all assets first.
 */
export function compareLedgers(
  [party, asset]: PageEntry,
  [otherParty, otherAsset]: PageEntry,
): number {
  const byParty = Buffer.compare(Buffer.from(party), Buffer.from(otherParty));
  if (byParty !== 0 || asset === otherAsset) return byParty;
  if (asset === null) return -1;
  if (otherAsset === null) return 1;
  return Buffer.compare(Buffer.from(asset), Buffer.from(otherAsset));
}

/**
 * Returns the path of the file that contains the bytes. Records and pages have separate
 * files.
 */
export function placePath([file]: Place, isRecord: boolean): string {
  return `${isRecord ? 'ledgers' : 'pages'}/${file}`;
}

/** Formats a page, one entry per line. */
export function encodePage(entries: readonly PageEntry[]): string {
  return entries.map((entry) => JSON.stringify(entry)).join('\n');
}

/**
 * Computes the hash of a page from the hashes of its entries; the locations of the
 * entries do not affect it.
 */
export function pageHash(entries: readonly PageEntry[]): string {
  const hashes = entries.map(([, , hash]) => Buffer.from(hash, 'hex'));
  return rootHash(hashes).toString('hex');
}

/**
 * Parses a page.
 * @param entry the entry of this page in the page above it
 * @throws PermanentError `PROOF_PAGE_INVALID` if it is not the page that the entry refers
 *   to
 */
export function decodePage(text: string, entry: PageEntry): PageEntry[] {
  let entries: PageEntry[];
  try {
    const lines = text.split('\n');
    entries = z
      .array(pageEntry)
      .parse(lines.map((line) => JSON.parse(line) as unknown));
  } catch (error) {
    throw invalid(entry, 'it is not a page', error);
  }
  if (pageHash(entries) !== entry[2])
    throw invalid(
      entry,
      'its content does not have the hash that the page above states',
    );
  return entries;
}

/** Stores a page and returns its location. */
export type KeepPage = (hash: string, text: string) => Promise<Place>;

/** The result of `PageBuilder`: the top page. */
export interface BuiltPages {
  readonly top: PageEntry | null;
  /** How many levels of pages there are; 1 if the top page lists records. */
  readonly levels: number;
}

/** Builds pages from the entries of records, which are added in order. */
export class PageBuilder {
  readonly #keep: KeepPage;
  readonly #levels: Level[] = [];

  constructor(keep: KeepPage) {
    this.#keep = keep;
  }

  async add(entry: PageEntry): Promise<void> {
    await this.#addTo(0, entry);
  }

  async finish(): Promise<BuiltPages> {
    for (let level = 0; level < this.#levels.length; level += 1) {
      const { pending, last } = this.#level(level);
      if (pending.length > 0) await this.#endPage(level);
      const { pages, last: top } = this.#level(level);
      if (pages === 1) return { top: top ?? last ?? null, levels: level + 1 };
    }
    return { top: null, levels: 0 };
  }

  async #addTo(level: number, entry: PageEntry): Promise<void> {
    const { pending } = this.#level(level);
    pending.push(entry);
    if (pending.length >= ENTRIES_MAX || isLastOfPage(entry, level))
      await this.#endPage(level);
  }

  async #endPage(at: number): Promise<void> {
    const level = this.#level(at);
    const entries = level.pending;
    const [first] = entries;
    if (first === undefined) return;
    level.pending = [];
    level.pages += 1;
    const hash = pageHash(entries);
    const [party, asset] = first;
    const kept = await this.#keep(hash, encodePage(entries));
    level.last = entryOf(party, asset, hash, kept);
    await this.#addTo(at + 1, level.last);
  }

  #level(at: number): Level {
    const level = this.#levels[at] ?? {
      pending: [],
      pages: 0,
      last: undefined,
    };
    this.#levels[at] = level;
    return level;
  }
}

interface Level {
  /** The entries of the current, incomplete page. */
  pending: PageEntry[];
  /** The number of complete pages. */
  pages: number;
  /** The entry that stands for the last complete page on the level above. */
  last: PageEntry | undefined;
}

/**
 * Whether a ledger ends its page. Only its name decides: one ledger in 64 ends a page,
 * and one in 64 of these also ends the page above.
 */
function isLastOfPage([party, asset]: PageEntry, level: number): boolean {
  const name = digest('sha256', JSON.stringify([party, asset]), 'buffer');
  const bits = BOUNDARY_BITS * (level + 1);
  return leadingZeroBits(name) >= bits;
}

function leadingZeroBits(bytes: Buffer): number {
  const first = bytes.findIndex((byte) => byte !== 0);
  if (first === -1) return bytes.length * 8;
  return first * 8 + Math.clz32(bytes[first] ?? 0) - 24;
}

function invalid(
  entry: PageEntry,
  state: string,
  cause?: unknown,
): PermanentError {
  const where = `${placePath(placeOf(entry), false)} at byte ${entry[4]}`;
  return new PermanentError(
    `Cannot use the page ${where}: ${state}; restore the file from a copy`,
    { code: 'PROOF_PAGE_INVALID', meta: { where }, cause },
  );
}
