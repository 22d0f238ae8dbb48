/**
 * Reads the proof log from the object store, compares it with the database's record
 * of it, and continues it. A log must never fork: if two histories had the same name,
 * some readers would trust the wrong one.
 */
import { errorCode, PermanentError } from '../errors/errors.ts';
import type { ObjectStore } from '../storage/object-store.ts';
import { openCheckpoint, signCheckpoint } from './checkpoint.ts';
import { leafHash, rootHash } from './merkle.ts';
import {
  type ByteRange,
  CHECKPOINT_PATH,
  damaged,
  type ProofFiles,
  readCheckpointNote,
  type LogEntries,
  readLog,
  readStatement,
} from './proof-files.ts';
import {
  shortKey,
  type SignerKey,
  signersOf,
  type VerifierKey,
} from './signed-note.ts';
import { type Statement, statementEntry, statementPath } from './statement.ts';
import { grownTiles } from './tiles.ts';

export const PROOF_PREFIX = 'proof/';
const FILE_BYTES_MAX = 256 * 2 ** 20;

/** What the database remembers about the log that was written from it. */
export interface RememberedLog {
  /** The name of the key that signed the log. */
  readonly keyName: string;
  readonly size: number;
  /** The root hash of the log at that size; 64 hex digits. */
  readonly root: string;
}

/** A log that has not forked and that this key may continue. */
export interface ProofLog extends LogEntries {
  readonly key: SignerKey;
  /** How many nights the published checkpoint covers. */
  readonly signedSize: number;
  /** The last statement; undefined in an empty log. */
  readonly last: LoggedStatement | undefined;
}

export interface LoggedStatement {
  readonly text: string;
  readonly statement: Statement;
}

/**
 * Gives access to the log's files in the object store.
 * @param prefix prefix of the files' object keys; empty if the store is a published
 *   folder
 */
export function storedFiles(
  objects: ObjectStore,
  signal: AbortSignal,
  prefix: string = PROOF_PREFIX,
): ProofFiles {
  return {
    where: objects.url,
    async read(path, range) {
      const key = prefix + path;
      try {
        const bytes = await objects.read(key, signal, storedRange(range));
        return await readWithin(bytes, key);
      } catch (error) {
        if (errorCode(error) === 'OBJECT_MISSING') return undefined;
        throw error;
      }
    },
  };
}

/**
 * Reads the log before it is continued.
 * @param remembered undefined if the database remembers no log
 * @throws PermanentError `PROOF_LOG_FORKED` if the log does not continue the remembered
 *   one, `PROOF_SIGNATURE_INVALID` if it was signed with a different key, or
 *   `PROOF_LOG_DAMAGED`
 */
export async function openLog(
  files: ProofFiles,
  key: SignerKey,
  remembered: RememberedLog | undefined,
): Promise<ProofLog> {
  const note = await readCheckpointNote(files);
  if (note !== undefined) requireSigner(note, key, files.where);
  const checkpoint = note === undefined ? undefined : openCheckpoint(note, key);
  const signed =
    checkpoint === undefined
      ? { entries: [], leaves: [] }
      : await readLog(files, checkpoint);
  const log = await withUnsigned(files, {
    ...signed,
    key,
    signedSize: signed.entries.length,
    last: undefined,
  });
  if (remembered?.keyName === key.name)
    requireContinued(remembered, log, files.where);
  return log;
}

/**
 * Checks that a log's checkpoint claims to be signed by this key. If it was signed by
 * another one, the mirror most likely was given the wrong key.
 * @throws PermanentError `PROOF_SIGNATURE_INVALID`
 */
export function requireSigner(
  note: string,
  key: VerifierKey,
  where: string,
): void {
  const signers = signersOf(note);
  const own = shortKey(key);
  if (signers.length === 0 || signers.includes(own)) return;
  throw new PermanentError(
    `Cannot continue the log of nights in ${where}: ${signers.join(', ')} signed it, and ` +
      `the key of this mirror is ${own}; give it the former key again (PROOF_KEY, or ` +
      'proof.key in DATA_DIR), or begin another log (docs/proof.md)',
    { code: 'PROOF_SIGNATURE_INVALID' },
  );
}

/**
 * Checks that the log continues the remembered one.
 * @throws PermanentError `PROOF_LOG_FORKED`
 */
function requireContinued(
  { keyName, size, root }: RememberedLog,
  { leaves }: ProofLog,
  where: string,
): void {
  if (leaves.length < size) {
    throw forked(
      `${where} has ${leaves.length} nights of ${keyName}, and this database has written ${size}`,
    );
  }
  if (rootHash(leaves.slice(0, size)).toString('hex') !== root) {
    throw forked(
      `the first ${size} nights of ${keyName} in ${where} are not those that this database has written`,
    );
  }
}

/**
 * Adds a statement that was written but not signed because its writer was killed in
 * between. It is part of the log, and the next checkpoint will cover it.
 */
async function withUnsigned(
  files: ProofFiles,
  log: ProofLog,
): Promise<ProofLog> {
  const size = log.entries.length;
  const bytes = await files.read(statementPath(size));
  if (bytes !== undefined) {
    const entry = statementEntry(bytes);
    const last = await readStatement(files, size);
    if (last.statement.mirror !== log.key.name || last.statement.night !== size)
      throw damaged(`${files.where}: ${statementPath(size)} is of another log`);
    return {
      ...log,
      entries: [...log.entries, entry],
      leaves: [...log.leaves, leafHash(entry)],
      last,
    };
  }
  if (size === 0) return log;
  const last = await readStatement(files, size - 1, log.entries.at(-1));
  return { ...log, last };
}

/**
 * Adds a statement. It belongs to the log as soon as its object exists.
 * @throws PermanentError `PROOF_LOG_FORKED` if another writer added a statement at the
 *   same time
 */
export async function addStatement(
  log: ProofLog,
  text: string,
  objects: ObjectStore,
  signal: AbortSignal,
): Promise<ProofLog> {
  const night = log.entries.length;
  const key = PROOF_PREFIX + statementPath(night);
  const outcome = await objects.putIfAbsent(key, Buffer.from(text), signal);
  if (outcome === 'present') {
    throw forked(
      `another writer has added night ${night} to the log in ${objects.url} meanwhile`,
    );
  }
  const entry = statementEntry(text);
  return {
    ...log,
    entries: [...log.entries, entry],
    leaves: [...log.leaves, leafHash(entry)],
  };
}

/**
 * Publishes the tiles of the whole log, and then the checkpoint that signs them.
 * @returns the checkpoint
 */
export async function publishCheckpoint(
  { key, entries, leaves, signedSize }: ProofLog,
  objects: ObjectStore,
  signal: AbortSignal,
): Promise<string> {
  const firstOfTile = signedSize - (signedSize % 256);
  const files = grownTiles(signedSize, entries.slice(firstOfTile), leaves);
  await Promise.all(
    files.map(({ path, content }) =>
      objects.publishBytes(PROOF_PREFIX + path, content, signal),
    ),
  );
  const root = rootHash(leaves);
  const note = signCheckpoint({ size: leaves.length, root }, key);
  const checkpoint = PROOF_PREFIX + CHECKPOINT_PATH;
  await objects.replaceBytes(checkpoint, Buffer.from(note), signal);
  return note;
}

/**
 * Compares a checkpoint that was kept elsewhere with the current log.
 * @throws PermanentError `PROOF_LOG_FORKED` if the log does not continue it
 */
export function checkContinues(
  kept: { readonly size: number; readonly root: Buffer },
  leaves: readonly Buffer[],
  where: string,
): void {
  if (kept.size > leaves.length) {
    throw forked(
      `the kept checkpoint has ${kept.size} nights, the log in ${where} has ${leaves.length}`,
    );
  }
  if (!rootHash(leaves.slice(0, kept.size)).equals(kept.root)) {
    throw forked(
      `the first ${kept.size} nights in ${where} are not those of the kept checkpoint`,
    );
  }
}

function storedRange(range: ByteRange | undefined) {
  if (range === undefined) return undefined;
  return { start: BigInt(range.start), end: BigInt(range.end) };
}

async function readWithin(
  bytes: AsyncIterable<Buffer>,
  key: string,
): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of bytes) {
    length += chunk.length;
    if (length > FILE_BYTES_MAX)
      throw damaged(`${key} is larger than ${FILE_BYTES_MAX} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks, length);
}

function forked(state: string): PermanentError {
  return new PermanentError(
    `Cannot continue the log of nights: ${state}; ` +
      'restore the missing files below proof/, or begin another log ' +
      '(docs/proof.md)',
    { code: 'PROOF_LOG_FORKED' },
  );
}
