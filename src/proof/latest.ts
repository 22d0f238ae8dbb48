/**
 * The last statement of a log in a single response: the statement, the checkpoint that
 * signs it, and the hashes that connect the two (C2SP `tlog-proof`). A mirror of a mirror
 * requests it at the end of each nightly run.
 */
import { z } from 'zod';
import { PermanentError } from '../errors/errors.ts';
import { canonicalJson } from './canonical-json.ts';
import {
  type Checkpoint,
  decodeCheckpoint,
  openCheckpoint,
} from './checkpoint.ts';
import {
  consistencyPath,
  continuesList,
  HASH_BYTES,
  inclusionPath,
  leafHash,
  rootFromInclusion,
} from './merkle.ts';
import {
  type ProofFiles,
  readCheckpointNote,
  readLog,
  readStatement,
} from './proof-files.ts';
import type { VerifierKey } from './signed-note.ts';
import {
  decodeStatement,
  type Statement,
  statementEntry,
} from './statement.ts';

const FIRST_LINE = 'c2sp.org/tlog-proof@v1';
const FORM =
  /^c2sp\.org\/tlog-proof@v1\nextra (?<extra>[A-Za-z0-9+/]+={0,2})\nindex (?<index>0|[1-9]\d{0,8})\n(?<path>(?:[A-Za-z0-9+/]{43}=\n){0,63})\n(?<note>[^]+)$/;
const hash = z.string().regex(/^[A-Za-z0-9+/]{43}=$/);

/** The contents of the `extra` line, which is JSON in base64. */
const extraSchema = z.looseObject({
  /** The public key of the log; null if the mirror has not stored it. */
  key: z.string().nullable(),
  /** The bytes of the statement. */
  statement: z.string(),
  /** The proof that the log of the checkpoint continues the log that the reader has. */
  consistency: z.array(hash).max(64),
});

/** The contents of a source's response, not checked yet. */
export interface LatestAnswer {
  readonly note: string;
  readonly index: number;
  readonly path: readonly Buffer[];
  /** The key that the source claims as its own. */
  readonly key: string | null;
  readonly statement: string;
  readonly consistency: readonly Buffer[];
}

/** The state of a log that a reader has seen before. */
export interface SeenLog {
  readonly size: number;
  readonly root: Buffer;
}

/**
 * Builds the response with the last statement.
 * @param key the stored public key
 * @param from the size of the log that the reader has; 0 if it has none
 * @returns undefined if the log has no night yet
 * @throws PermanentError `PROOF_LOG_DAMAGED`
 */
export async function readLatest(
  files: ProofFiles,
  key: string | null,
  from: number,
): Promise<string | undefined> {
  const note = await readCheckpointNote(files);
  if (note === undefined) return undefined;
  const checkpoint = decodeCheckpoint(note);
  const index = checkpoint.size - 1;
  if (index < 0) return undefined;
  const { entries, leaves } = await readLog(files, checkpoint);
  const { text } = await readStatement(files, index, entries[index]);
  const hasFrom = from > 0 && from <= checkpoint.size;
  const consistency = hasFrom ? consistencyPath(from, leaves) : [];
  const extra = canonicalJson({
    key,
    statement: text,
    consistency: consistency.map(toBase64),
  });
  const lines = [
    FIRST_LINE,
    `extra ${Buffer.from(extra).toString('base64')}`,
    `index ${index}`,
    ...inclusionPath(index, leaves).map(toBase64),
    '',
    note,
  ];
  return lines.join('\n');
}

/**
 * Parses a response.
 * @returns undefined if it is not in this format, which means that the source serves no
 *   statements
 */
export function decodeLatest(text: string): LatestAnswer | undefined {
  const parts = FORM.exec(text)?.groups;
  if (parts === undefined) return undefined;
  const { extra = '', index = '', path = '', note = '' } = parts;
  let told: z.output<typeof extraSchema>;
  try {
    const json = Buffer.from(extra, 'base64').toString('utf8');
    told = extraSchema.parse(JSON.parse(json));
  } catch {
    return undefined;
  }
  return {
    note,
    index: Number(index),
    path: path.split('\n').filter(Boolean).map(fromBase64),
    key: told.key,
    statement: told.statement,
    consistency: told.consistency.map(fromBase64),
  };
}

/**
 * Checks a response.
 * @param seen undefined if the log has not been seen before
 * @throws PermanentError `PROOF_SIGNATURE_INVALID`, `PROOF_INVALID`, or
 *   `PROOF_SOURCE_FORKED` if the log does not continue the log that was seen before
 */
export function checkLatest(
  answer: LatestAnswer,
  key: VerifierKey,
  seen: SeenLog | undefined,
): { readonly checkpoint: Checkpoint; readonly statement: Statement } {
  const checkpoint = openCheckpoint(answer.note, key);
  const statement = decodeStatement(answer.statement, 'of the source');
  const logged = rootFromInclusion(
    answer.index,
    checkpoint.size,
    leafHash(statementEntry(answer.statement)),
    answer.path,
  );
  const isLast =
    answer.index === checkpoint.size - 1 &&
    statement.night === answer.index &&
    statement.mirror === checkpoint.origin;
  if (logged?.equals(checkpoint.root) !== true || !isLast) {
    throw new PermanentError(
      "Cannot believe the source's statement: it is not the last one in the log that the source signed; tell the source's keeper",
      { code: 'PROOF_INVALID' },
    );
  }
  if (
    seen !== undefined &&
    !continuesList(seen, checkpoint, answer.consistency)
  )
    throw forked(seen, checkpoint);
  return { checkpoint, statement };
}

function forked(seen: SeenLog, now: Checkpoint): PermanentError {
  return new PermanentError(
    `Cannot believe the source's log of ${now.size} nights: it does not continue the ${seen.size} nights that it had signed before; tell the source's keeper`,
    { code: 'PROOF_SOURCE_FORKED', meta: { seen: seen.size, now: now.size } },
  );
}

function toBase64(bytes: Buffer): string {
  return bytes.toString('base64');
}

function fromBase64(text: string): Buffer {
  return Buffer.from(text, 'base64').subarray(0, HASH_BYTES);
}
