/**
 * Access to the files of a log, whether in the object store, on a web server or in a
 * folder. All code that proves or compares reads them through this module.
 */
import { PermanentError } from '../errors/errors.ts';
import { type Checkpoint, decodeCheckpoint } from './checkpoint.ts';
import {
  decodeRecord,
  type LedgerRecord,
  recordHash,
} from './ledger-record.ts';
import { leafHash, rootHash } from './merkle.ts';
import {
  decodePage,
  type PageEntry,
  placeOf,
  placePath,
  type Place,
} from './pages.ts';
import {
  decodeStatement,
  type Statement,
  statementEntry,
  statementPath,
} from './statement.ts';
import { decodeEntries, entriesPath, lowestTiles, tilePath } from './tiles.ts';

export const CHECKPOINT_PATH = 'checkpoint';
/** How many pages are read concurrently. */
const READS_AT_ONCE = 8;

/** A part of a file, in bytes. */
export interface ByteRange {
  readonly start: number;
  /** The end, exclusive. */
  readonly end: number;
}

export interface ProofFiles {
  /** The location of the files, for messages, without credentials. */
  readonly where: string;

  /**
   * Reads a file, or part of it.
   * @returns undefined if the file does not exist
   * @throws PermanentError or RetryableError if it cannot be read
   */
  read(path: string, range?: ByteRange): Promise<Buffer | undefined>;
}

/** The log's entries, one for each statement, in order. */
export interface LogEntries {
  /** The SHA-256 of each statement. */
  readonly entries: readonly Buffer[];
  /** The leaf hashes of the entries (RFC 9162). */
  readonly leaves: readonly Buffer[];
}

/**
 * Reads the last checkpoint, with its signatures.
 * @returns undefined if there is no log
 */
export async function readCheckpointNote(
  files: ProofFiles,
): Promise<string | undefined> {
  return (await files.read(CHECKPOINT_PATH))?.toString('utf8');
}

/**
 * Reads the entries of a log, and compares them with its tiles and with its checkpoint.
 * @throws PermanentError `PROOF_LOG_DAMAGED`
 */
export async function readLog(
  files: ProofFiles,
  { size, root }: Pick<Checkpoint, 'size' | 'root'>,
): Promise<LogEntries> {
  const entries = await readEntries(files, size);
  const leaves = entries.map(leafHash);
  for (const { index, width } of lowestTiles(size)) {
    const path = tilePath(0, index, width);
    const tile = await needFile(files, path);
    const hashes = leaves.slice(index * 256, index * 256 + width);
    if (!tile.equals(Buffer.concat(hashes)))
      throw damaged(
        `${files.where}: ${path} does not have the hashes of its entries`,
      );
  }
  if (!rootHash(leaves).equals(root)) {
    throw damaged(
      `${files.where}: its ${size} nights have another hash than its checkpoint says`,
    );
  }
  return { entries, leaves };
}

/** Reads the SHA-256 of each statement in a log of this size. */
async function readEntries(files: ProofFiles, size: number): Promise<Buffer[]> {
  const entries: Buffer[] = [];
  for (const { index, width } of lowestTiles(size)) {
    const path = entriesPath(index, width);
    entries.push(...entriesOf(await needFile(files, path), path, files));
  }
  if (entries.length !== size)
    throw damaged(
      `${files.where}: it has ${entries.length} entries, not ${size}`,
    );
  return entries;
}

function entriesOf(
  content: Buffer,
  path: string,
  { where }: ProofFiles,
): Buffer[] {
  try {
    return decodeEntries(content);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw damaged(`${where}: ${path} ends within an entry`, error);
  }
}

/**
 * Reads a statement, and compares its bytes with the log's entry.
 * @throws PermanentError `PROOF_LOG_DAMAGED` or `PROOF_STATEMENT_INVALID`
 */
export async function readStatement(
  files: ProofFiles,
  night: number,
  entry?: Buffer,
): Promise<{ readonly text: string; readonly statement: Statement }> {
  const path = statementPath(night);
  const bytes = await needFile(files, path);
  if (entry !== undefined && !statementEntry(bytes).equals(entry))
    throw damaged(`${files.where}: ${path} is not the statement in the log`);
  const text = bytes.toString('utf8');
  return { text, statement: decodeStatement(text, `${files.where}: ${path}`) };
}

/** Reads the last statement of a log; undefined if the log has no night. */
export async function readLastStatement(
  files: ProofFiles,
): Promise<
  { readonly text: string; readonly statement: Statement } | undefined
> {
  const note = await readCheckpointNote(files);
  if (note === undefined) return undefined;
  const { size } = decodeCheckpoint(note);
  return size === 0 ? undefined : readStatement(files, size - 1);
}

/**
 * Reads the page that an entry refers to.
 * @throws PermanentError `PROOF_PAGE_INVALID` or `PROOF_LOG_DAMAGED`
 */
export async function readPage(
  files: ProofFiles,
  entry: PageEntry,
): Promise<PageEntry[]> {
  const text = await readPlace(files, placeOf(entry), false);
  return decodePage(text, entry);
}

/** Reads several pages at a time, and returns them in the order of the entries. */
export async function readPages(
  files: ProofFiles,
  entries: readonly PageEntry[],
): Promise<PageEntry[][]> {
  const pages: PageEntry[][] = [];
  for (let from = 0; from < entries.length; from += READS_AT_ONCE) {
    const some = entries.slice(from, from + READS_AT_ONCE);
    pages.push(
      ...(await Promise.all(some.map((entry) => readPage(files, entry)))),
    );
  }
  return pages;
}

/** Yields the entries of all records of a statement, in order. */
export async function* readRecordEntries(
  files: ProofFiles,
  { ledgers }: Statement,
): AsyncGenerator<PageEntry> {
  if (ledgers.top !== null)
    yield* recordsBelow(files, ledgers.top, ledgers.levels);
}

async function* recordsBelow(
  files: ProofFiles,
  entry: PageEntry,
  levels: number,
): AsyncGenerator<PageEntry> {
  const entries = await readPage(files, entry);
  if (levels <= 1) {
    yield* entries;
    return;
  }
  if (levels > 2) {
    for (const below of entries) yield* recordsBelow(files, below, levels - 1);
    return;
  }
  for (let from = 0; from < entries.length; from += READS_AT_ONCE) {
    const some = entries.slice(from, from + READS_AT_ONCE);
    for (const page of await readPages(files, some)) yield* page;
  }
}

/**
 * Reads a statement's record of one ledger, with its original text.
 * @throws PermanentError `PROOF_LOG_DAMAGED` if the record does not match the entry's
 *   hash
 */
export async function readRecord(
  files: ProofFiles,
  entry: PageEntry,
): Promise<{ readonly text: string; readonly record: LedgerRecord }> {
  const place = placeOf(entry);
  const text = await readPlace(files, place, true);
  const where = `${files.where}: ${placePath(place, true)} at byte ${place[1]}`;
  if (recordHash(text).toString('hex') !== entry[2])
    throw damaged(`${where} is not the record on its page`);
  const record = decodeRecord(text, where);
  if (record.party !== entry[0] || record.asset !== entry[1])
    throw damaged(`${where} belongs to a different ledger than its page says`);
  return { text, record };
}

async function readPlace(
  files: ProofFiles,
  place: Place,
  isRecord: boolean,
): Promise<string> {
  const [, start, bytes] = place;
  const path = placePath(place, isRecord);
  const part = await needFile(files, path, { start, end: start + bytes });
  return part.toString('utf8');
}

async function needFile(
  files: ProofFiles,
  path: string,
  range?: ByteRange,
): Promise<Buffer> {
  const content = await files.read(path, range);
  if (content === undefined)
    throw damaged(`${files.where} has no file ${path}`);
  return content;
}

export function damaged(state: string, cause?: unknown): PermanentError {
  return new PermanentError(
    `Cannot believe the log of nights: ${state}; restore the files below proof/ from a copy`,
    { code: 'PROOF_LOG_DAMAGED', cause },
  );
}
