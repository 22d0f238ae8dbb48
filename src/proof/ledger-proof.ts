/**
 * The proof that a mirror had certain rows of one ledger on a given night. It is a small
 * file that can be checked without the mirror, using only its public key.
 */
import { z } from 'zod';
import { PermanentError } from '../errors/errors.ts';
import { formatInstant, nowMicros } from '../time/time.ts';
import { readTypedTime, TYPED_TIME_FORMS } from '../time/typed-time.ts';
import {
  type Checkpoint,
  decodeCheckpoint,
  openCheckpoint,
} from './checkpoint.ts';
import {
  decodeRecord,
  type LedgerRecord,
  recordHash,
} from './ledger-record.ts';
import { inclusionPath, leafHash, rootFromInclusion } from './merkle.ts';
import type { PageEntry } from './pages.ts';
import {
  type ProofFiles,
  readCheckpointNote,
  readLog,
  readRecord,
  readRecordEntries,
  readStatement,
} from './proof-files.ts';
import type { VerifierKey } from './signed-note.ts';
import {
  decodeStatement,
  type Statement,
  statementEntry,
} from './statement.ts';

const PROOF_FORMAT = 'ledger-mirror proof v1';

const path = z.array(z.string().regex(/^[0-9a-f]{64}$/)).max(64);
const schema = z.strictObject({
  format: z.literal(PROOF_FORMAT),
  /** The signed checkpoint of the log. */
  checkpoint: z.string(),
  /** The statement of the night, byte for byte. */
  statement: z.string(),
  /** The hashes from the statement's SHA-256 up to the checkpoint's hash. */
  statementPath: path,
  /** The statement's record of the ledger, byte for byte. */
  record: z.string(),
  /** The record's index among all records. */
  recordIndex: z.int().nonnegative(),
  /** The hashes from the record up to the statement's hash of all ledgers. */
  recordPath: path,
});

export type LedgerProof = Readonly<z.output<typeof schema>>;

/** The contents of a valid proof. */
export interface ProvenLedger {
  readonly checkpoint: Checkpoint;
  readonly statement: Statement;
  readonly record: LedgerRecord;
}

/** Names the ledger and the night to prove. */
export interface ProofQuestion {
  /** A full id, or a prefix that matches only one ledger. */
  readonly party: string;
  /** The asset of the ledger; if undefined, the ledger of any asset matches. */
  readonly asset?: string | undefined;
  /**
   * The number of a night, or a date or time as a user types it, which selects the last
   * night that ended by then. If undefined, the last night is selected.
   */
  readonly at?: string | undefined;
}

/**
 * Builds the proof of one ledger from the files of a log.
 * @throws PermanentError `PROOF_NOT_FOUND` if there is no such night or ledger
 */
export async function proveLedger(
  files: ProofFiles,
  question: ProofQuestion,
): Promise<LedgerProof> {
  const note = await readCheckpointNote(files);
  if (note === undefined)
    throw notFound(`${files.where} has no log of nights`, 'run a night first');
  const checkpoint = decodeCheckpoint(note);
  const { entries, leaves } = await readLog(files, checkpoint);
  const night = await findNight(files, entries, question.at);
  const { text, statement } = await readStatement(files, night, entries[night]);

  const { entry, index, hashes } = await findRecord(files, statement, question);
  const { text: record } = await readRecord(files, entry);
  const proof: LedgerProof = {
    format: PROOF_FORMAT,
    checkpoint: note,
    statement: text,
    statementPath: inclusionPath(night, leaves).map(toHex),
    record,
    recordIndex: index,
    recordPath: inclusionPath(index, hashes).map(toHex),
  };
  checkPaths(
    proof,
    checkpoint,
    `${files.where} does not prove its own statement`,
  );
  return proof;
}

export function encodeProof(proof: LedgerProof): string {
  return `${JSON.stringify(proof, undefined, 2)}\n`;
}

/**
 * Checks a proof.
 * @param text the contents of the file
 * @throws PermanentError `PROOF_INVALID` with the reason, or `PROOF_SIGNATURE_INVALID`
 */
export function checkProof(text: string, key: VerifierKey): ProvenLedger {
  const proof = decodeProof(text);
  const checkpoint = openCheckpoint(proof.checkpoint, key);
  return checkPaths(proof, checkpoint, 'it does not hold');
}

function decodeProof(text: string): LedgerProof {
  const state = 'it is not a proof that `ledger-mirror prove` wrote';
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (error) {
    throw invalid(state, error);
  }
  const parsed = schema.safeParse(json);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const name = issue?.path.join('.') ?? '';
  const field = name === '' ? '' : `${name}: `;
  throw invalid(`${state}: ${field}${issue?.message ?? ''}`);
}

/** Returns the statement contained in a proof; undefined if the text is not a proof. */
export function statementInProof(text: string): string | undefined {
  try {
    return schema.parse(JSON.parse(text)).statement;
  } catch {
    return undefined;
  }
}

function checkPaths(
  proof: LedgerProof,
  checkpoint: Checkpoint,
  state: string,
): ProvenLedger {
  const statement = decodeStatement(proof.statement, 'of the proof');
  const logged = rootFromInclusion(
    statement.night,
    checkpoint.size,
    leafHash(statementEntry(proof.statement)),
    proof.statementPath.map(fromHex),
  );
  if (logged?.equals(checkpoint.root) !== true)
    throw invalid(
      `${state}: the statement is not in the log of the checkpoint`,
    );
  if (statement.mirror !== checkpoint.origin)
    throw invalid(`${state}: the statement belongs to another mirror`);

  const held = rootFromInclusion(
    proof.recordIndex,
    statement.ledgers.count,
    recordHash(proof.record),
    proof.recordPath.map(fromHex),
  );
  if (held?.toString('hex') !== statement.ledgers.root)
    throw invalid(`${state}: the ledger's record is not in the statement`);
  const record = decodeRecord(proof.record, 'of the proof');
  return { checkpoint, statement, record };
}

/**
 * Finds a night.
 * @returns its index in the log
 */
async function findNight(
  files: ProofFiles,
  entries: readonly Buffer[],
  at: string | undefined,
): Promise<number> {
  const last = entries.length - 1;
  if (last < 0)
    throw notFound(`${files.where} has no night yet`, 'run a night first');
  if (at === undefined) return last;
  if (/^\d{1,9}$/.test(at)) {
    const night = Number(at);
    if (night <= last) return night;
    throw notFound(`there is no night ${at}`, `the last one is ${last}`);
  }

  const end = endOf(at);
  if (end === undefined) {
    throw notFound(
      `${JSON.stringify(at)} names no night`,
      `give its number, or a time such as ${TYPED_TIME_FORMS}`,
    );
  }
  // The nights are sorted by time, so a binary search finds the last one.
  let low = 0;
  let high = last;
  let found: number | undefined;
  while (low <= high) {
    const middle = (low + high) >> 1;
    const { statement } = await readStatement(files, middle, entries[middle]);
    if (statement.heldAt <= end) {
      found = middle;
      low = middle + 1;
    } else {
      high = middle - 1;
    }
  }
  if (found !== undefined) return found;
  const { statement: first } = await readStatement(files, 0, entries[0]);
  throw notFound(
    `no night ended before ${end}`,
    `the first one ended at ${first.heldAt}, so give that time or a later one`,
  );
}

/**
 * Returns the last instant of a day or month that the user typed, or the typed instant
 * itself, in the format of `heldAt`.
 */
function endOf(at: string): string | undefined {
  const time = readTypedTime(at, nowMicros());
  if (time === undefined) return undefined;
  const isInstant = time.from === time.to;
  return formatInstant(isInstant ? time.from : time.to - 1n);
}

interface FoundRecord {
  readonly entry: PageEntry;
  readonly index: number;
  /** The leaf hashes of all records, in order. */
  readonly hashes: readonly Buffer[];
}

async function findRecord(
  files: ProofFiles,
  statement: Statement,
  { party, asset }: ProofQuestion,
): Promise<FoundRecord> {
  const hashes: Buffer[] = [];
  const found: { entry: PageEntry; index: number }[] = [];
  for await (const entry of readRecordEntries(files, statement)) {
    const isAsked =
      entry[0].startsWith(party) && (asset === undefined || entry[1] === asset);
    if (isAsked) found.push({ entry, index: hashes.length });
    hashes.push(Buffer.from(entry[2], 'hex'));
  }
  const exact = found.filter(({ entry }) => entry[0] === party);
  const [record, another] = exact.length > 0 ? exact : found;
  const night = `night ${statement.night}`;
  if (record === undefined) {
    throw notFound(
      `${night} has no ledger of ${JSON.stringify(party)}`,
      'give an id as the source lists it',
    );
  }
  if (another !== undefined) {
    throw notFound(
      `${night} has several ledgers of ${JSON.stringify(party)}`,
      'give the whole id, and the asset if each asset has a ledger',
    );
  }
  return { ...record, hashes };
}

function fromHex(hex: string): Buffer {
  return Buffer.from(hex, 'hex');
}

function toHex(hash: Buffer): string {
  return hash.toString('hex');
}

function invalid(state: string, cause?: unknown): PermanentError {
  return new PermanentError(
    `Cannot believe the proof: ${state}; ask for it again`,
    { code: 'PROOF_INVALID', cause },
  );
}

function notFound(state: string, advice: string): PermanentError {
  return new PermanentError(`Cannot prove a ledger: ${state}; ${advice}`, {
    code: 'PROOF_NOT_FOUND',
  });
}
