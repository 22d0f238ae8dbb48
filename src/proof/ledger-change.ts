/**
 * Decides whether a ledger has only grown since a statement. A ledger's entries never
 * change, and new ones follow the old ones: any other difference means that somebody
 * changed the objects, the tables or the log.
 */
import type { HashedRow } from '../catalog/row-hashes.ts';
import { NO_ROWS_DIGEST, RowDigest } from '../ledger/digest.ts';
import type { LedgerRecord, MonthSum } from './ledger-record.ts';
import type { LedgerName } from './store/proof-store.ts';

export interface ChangedLedger {
  /** The statement's record. */
  readonly stated: LedgerRecord;
  /**
   * The record that the tables yield now; undefined if they contain nothing of the
   * ledger.
   */
  readonly now: LedgerRecord | undefined;
  /** The statement's `coveredTo`. */
  readonly coveredTo: string | null;
}

export interface ChangeDeps {
  readonly store: {
    /** Yields the loaded entries of one month, sorted by time. */
    readMonth(
      ledger: LedgerName,
      month: string,
      signal: AbortSignal,
    ): AsyncIterable<readonly HashedRow[]>;
  };
  readonly signal: AbortSignal;
}

/** How a ledger differs from its record in a statement. */
export type LedgerChange =
  /** The entries of the statement are still there, and new ones may follow them. */
  | { readonly kind: 'grown' }
  /** Entries are published but not loaded, so the tables do not contain them. */
  | { readonly kind: 'not compared' }
  | { readonly kind: 'changed'; readonly reason: string };

/**
 * Compares a ledger with its record in the statement. A month whose beginning the
 * statement does not prove is skipped, because entries may have been added there since.
 */
export async function findChange(
  { stated, now, coveredTo }: ChangedLedger,
  deps: ChangeDeps,
): Promise<LedgerChange> {
  if (now === undefined)
    return {
      kind: 'changed',
      reason:
        'the database does not have this ledger, which is in the last ' +
        'statement',
    };
  const isLoaded = stated.notLoaded === '0' && now.notLoaded === '0';
  if (!isLoaded) return { kind: 'not compared' };

  const sums = new Map(now.months.map((sum) => [sum[0], sum]));
  const statedSums = new Map(stated.months.map((sum) => [sum[0], sum]));
  for (const month of new Set([...statedSums.keys(), ...sums.keys()])) {
    const wanted = statedSums.get(month) ?? noRows(month);
    const found = sums.get(month) ?? noRows(month);
    if (wanted[1] === found[1] && wanted[2] === found[2]) continue;
    const end = provenEnd(month, stated, coveredTo);
    if (end === undefined) continue;
    const ledger = { partyId: stated.party, assetId: stated.asset };
    const rows = deps.store.readMonth(ledger, month, deps.signal);
    if (await hasOnlyGrown(rows, wanted, end)) continue;
    return {
      kind: 'changed',
      reason:
        `the database holds ${found[1]} entries of ${month}, and the ${wanted[1]} ` +
        'of the last statement are not the first of them',
    };
  }
  return { kind: 'grown' };
}

function noRows(month: string): MonthSum {
  return [month, '0', NO_ROWS_DIGEST];
}

/**
 * Returns the instant up to which the statement proves a month without a gap, starting at
 * the month's first instant. Undefined if it does not prove the beginning of the month,
 * because entries may then have been added there since.
 */
function provenEnd(
  month: string,
  { covered }: LedgerRecord,
  coveredTo: string | null,
): string | undefined {
  const begin = `${month}-01T00:00:00.000000Z`;
  const range = covered.find(([from, to]) => {
    const end = to ?? coveredTo;
    return (from ?? '') <= begin && (end === null || end > begin);
  });
  return range === undefined ? undefined : (range[1] ?? coveredTo ?? undefined);
}

/**
 * Whether a month begins with exactly the entries of the statement, and has no other
 * entry before `end`, the instant up to which the statement proves the month.
 */
async function hasOnlyGrown(
  rows: AsyncIterable<readonly HashedRow[]>,
  [, count, digest]: MonthSum,
  end: string,
): Promise<boolean> {
  const sum = new RowDigest();
  const wanted = Number(count);
  for await (const batch of rows) {
    for (const { time, hash } of batch) {
      if (sum.rows < wanted) sum.add(hash);
      else if (time < end) return false;
    }
  }
  return sum.rows === wanted && sum.hex() === digest;
}
