/**
 * The statement of a night: the mirror's claims about its own data when the night ended.
 * Equal contents have equal bytes. docs/proof.md explains each field to auditors.
 */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { PermanentError } from '../errors/errors.ts';
import { canonicalJson } from './canonical-json.ts';
import { pageEntry } from './pages.ts';

export const STATEMENT_FORMAT = 'ledger-mirror statement v1';

const hex64 = z.string().regex(/^[0-9a-f]{64}$/);
const count = z.string().regex(/^\d+$/);
const listSum = z.object({
  /**
   * The epoch of the list's chain, which increases each time the chain starts again.
   */
  epoch: z.int().nullable(),
  rows: count,
  /** The additive digest of the rows, whose encoding is described in docs/proof.md. */
  digest: hex64,
});

const schema = z.object({
  format: z.literal(STATEMENT_FORMAT),
  /** The name of the mirror, which is the name of its key and of its log. */
  mirror: z.string(),
  /** The index of the statement in the log; the first is 0. */
  night: z.int().nonnegative(),
  runId: z.uuid(),
  /** The report of the same night: its key in the store, and the SHA-256 of its bytes. */
  report: z.object({ key: z.string(), sha256: hex64 }),
  /** The URL of the source, without credentials. */
  source: z.string().nullable(),
  /**
   * The network: the epoch of its chain, and the chain's height when it was last read.
   */
  network: z.object({ epoch: z.int().nullable(), height: count.nullable() }),
  /** The instant that the statement describes, as RFC 3339. */
  heldAt: z.string(),
  verdict: z.enum(['complete', 'incomplete', 'suspicious', 'failed']),
  /** The data that was wanted, and how much of it was covered. */
  covers: z.record(z.string(), z.json()),
  /** Every unresolved reason to doubt the source's lists. */
  doubts: z.array(z.record(z.string(), z.json())),
  /** Every known gap of the lists. */
  gaps: z.array(z.record(z.string(), z.json())),
  lists: z.object({ parties: listSum, checkpoints: listSum }),
  ledgers: z.object({
    /** The number of ledgers, which are the leaves of the tree. */
    count: z.int().nonnegative(),
    rows: count,
    /** The instant up to which a ledger is covered if its record gives no end. */
    coveredTo: z.string().nullable(),
    /** The row encoding that the sums are computed over. */
    rowForm: z.literal('values-v1'),
    /** The RFC 9162 hash of all records, sorted by party and asset. */
    root: hex64,
    /** The page from which all records can be found; null if there are no records. */
    top: pageEntry.nullable(),
    /** How many levels of pages there are. */
    levels: z.int().nonnegative(),
  }),
});

export type Statement = Readonly<z.output<typeof schema>>;

/** The sum of one list in a statement. */
export type ListSum = Statement['lists']['parties'];

export function encodeStatement(statement: Statement): string {
  return canonicalJson(statement);
}

/**
 * @param where names the statement in messages
 * @throws PermanentError `PROOF_STATEMENT_INVALID`
 */
export function decodeStatement(text: string, where: string): Statement {
  try {
    return schema.parse(JSON.parse(text));
  } catch (error) {
    throw new PermanentError(
      `Cannot read the statement ${where}: it is not a nightly ` +
        'statement; restore it from a copy',
      { code: 'PROOF_STATEMENT_INVALID', meta: { where }, cause: error },
    );
  }
}

/** Returns the log's entry for a statement: the SHA-256 of its bytes. */
export function statementEntry(text: string | Buffer): Buffer {
  return createHash('sha256').update(text).digest();
}

/** Returns the path relative to the log's folder: `statements/000000012`. */
export function statementPath(night: number): string {
  return `statements/${String(night).padStart(9, '0')}`;
}
