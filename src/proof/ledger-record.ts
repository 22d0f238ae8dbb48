/**
 * What a statement says of one ledger: a leaf of its tree. It changes only if the rows
 * change, or if the ledger falls behind or catches up: an idle ledger's stays the same
 * for years.
 */
import { z } from 'zod';
import { PermanentError } from '../errors/errors.ts';
import { canonicalJson } from './canonical-json.ts';
import { leafHash } from './merkle.ts';

const monthSum = z.tuple([
  z.string().regex(/^\d{4}-\d{2}$/),
  z.string().regex(/^\d+$/),
  z.string().regex(/^[0-9a-f]{64}$/),
]);
const schema = z.strictObject({
  party: z.string(),
  /** null: every asset in one ledger. */
  asset: z.string().nullable(),
  /**
   * The covered ranges, `[from, to)`, RFC 3339. From null: from the beginning of time. To
   * null: at least to the statement's `coveredTo`.
   */
  covered: z.array(z.tuple([z.string().nullable(), z.string().nullable()])),
  rows: z.string().regex(/^\d+$/),
  /** For each month with rows: the month, how many, and their additive digest. */
  months: z.array(monthSum),
  /** Rows that are stored, but not loaded, and therefore not summed here. */
  notLoaded: z.string().regex(/^\d+$/),
});

export type LedgerRecord = Readonly<z.output<typeof schema>>;
/** A month of a ledger: `2023-05`, how many rows, their additive digest. */
export type MonthSum = LedgerRecord['months'][number];

export function encodeRecord(record: LedgerRecord): string {
  return canonicalJson(record);
}

/**
 * @param where names the record in messages
 * @throws PermanentError `PROOF_RECORD_INVALID`
 */
export function decodeRecord(text: string, where: string): LedgerRecord {
  try {
    return schema.parse(JSON.parse(text));
  } catch (error) {
    throw new PermanentError(
      `Cannot read the record ${where}: it is not what a statement says of a ledger; restore it from a copy`,
      { code: 'PROOF_RECORD_INVALID', meta: { where }, cause: error },
    );
  }
}

export function recordHash(text: string): Buffer {
  return leafHash(text);
}
