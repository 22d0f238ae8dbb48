/**
 * A statement's record of one ledger, which is a leaf of its tree. It changes only if
 * the rows change, or if the ledger's coverage falls behind or catches up: the record
 * of an idle ledger stays the same for years.
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
  /** The asset of the ledger; null if one ledger has all assets. */
  asset: z.string().nullable(),
  /**
   * The covered ranges, `[from, to)`, as RFC 3339. A `from` of null means the beginning
   * of time; a `to` of null means at least up to the statement's `coveredTo`.
   */
  covered: z.array(z.tuple([z.string().nullable(), z.string().nullable()])),
  rows: z.string().regex(/^\d+$/),
  /** Each month with rows: the month, its number of rows and their additive digest. */
  months: z.array(monthSum),
  /** Rows that are stored but not loaded, and therefore not included in the sums. */
  notLoaded: z.string().regex(/^\d+$/),
});

export type LedgerRecord = Readonly<z.output<typeof schema>>;
/**
 * The sum of one month of a ledger: the month (`2023-05`), the number of rows and their
 * additive digest.
 */
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
      `Cannot read the record ${where}: it is not the record of a ledger ` +
        'in a statement; restore it from a copy',
      { code: 'PROOF_RECORD_INVALID', meta: { where }, cause: error },
    );
  }
}

export function recordHash(text: string): Buffer {
  return leafHash(text);
}
