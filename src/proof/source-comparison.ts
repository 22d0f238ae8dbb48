/**
 * Compares a mirror of a mirror with the statement of its source: which ledgers differ
 * although both sides have covered them, and which cannot be judged.
 */
import { addDigests } from '../ledger/digest.ts';
import type { Micros } from '../time/time.ts';
import {
  differingRecords,
  type RecordPair,
  type RecordsSide,
  type WantedLedgers,
} from './compare.ts';
import { differingMonths, type MonthDifference } from './csv-sums.ts';
import type { LedgerRecord, MonthSum } from './ledger-record.ts';
import { type ProofFiles, readRecord } from './proof-files.ts';
import type { Statement } from './statement.ts';

/** Maximum number of differing parties to examine; further ones are only counted. */
const EXAMINED_MAX = 200;

/** One side of the comparison: this mirror's draft or its source's statement. */
export interface JudgedSide {
  readonly ledgers: RecordsSide['ledgers'] &
    Pick<Statement['ledgers'], 'root' | 'coveredTo'>;
  readonly files: ProofFiles;
}

/** A ledger that differs although both sides claim to have all of it. */
export interface DifferingLedger {
  readonly party: string;
  readonly months: readonly MonthDifference[];
}

export interface LedgerComparison {
  /** The differing ledgers, sorted by party. */
  readonly differing: readonly DifferingLedger[];
  /**
   * How many parties one side has not fully covered; that side's own records show which
   * ranges it lacks.
   */
  readonly behind: number;
  /**
   * How many parties differ only in rows that are later than the range covered by both
   * sides.
   */
  readonly movedOn: number;
  /** How many differing parties were not examined, because there were too many. */
  readonly unexamined: number;
}

const SAME: LedgerComparison = {
  differing: [],
  behind: 0,
  movedOn: 0,
  unexamined: 0,
};

/**
 * Compares this mirror's ledgers with the source's statement.
 * @param wanted the parties that this mirror should have; undefined for all
 * @throws PermanentError if a page or a record is not the one that its statement names
 */
export async function compareWithStatement(
  own: JudgedSide,
  source: JudgedSide,
  wanted: readonly string[] | undefined,
): Promise<LedgerComparison> {
  if (own.ledgers.root === source.ledgers.root) return SAME;

  const among = wanted && new Set(wanted);
  const pairs = await differingRecords(own, source, wanted && wantedIn(wanted));
  const parties = Map.groupBy(
    pairs.filter((pair) => among?.has(partyOf(pair)) !== false),
    partyOf,
  );
  const examined = [...parties].slice(0, EXAMINED_MAX);
  const differing: DifferingLedger[] = [];
  let behind = 0;
  let movedOn = 0;
  for (const [party, records] of examined) {
    const { months, isCovered } = await readParty(records, own, source);
    const judged = months.filter(({ month }) => isClosed(month, own, source));
    if (judged.length > 0 && isCovered)
      differing.push({ party, months: judged });
    else if (judged.length > 0) behind += 1;
    else if (months.length > 0) movedOn += 1;
  }
  const unexamined = parties.size - examined.length;
  return { differing, behind, movedOn, unexamined };
}

/** Returns the range from the start of the first month to the end of the last one. */
export function rangeOfMonths(months: readonly string[]): {
  readonly from: Micros;
  readonly to: Micros;
} {
  const sorted = months.toSorted();
  const first = sorted[0] ?? '1970-01';
  const [year = 0, month = 0] = (sorted.at(-1) ?? first).split('-').map(Number);
  return {
    from: BigInt(Date.parse(`${first}-01T00:00:00Z`)) * 1000n,
    to: BigInt(Date.UTC(year, month)) * 1000n,
  };
}

/**
 * Returns a predicate for the pages that may list a wanted party.
 * @param wanted parties in any order
 */
function wantedIn(wanted: readonly string[]): WantedLedgers {
  const sorted = wanted
    .map((id) => Buffer.from(id))
    .toSorted((a, b) => Buffer.compare(a, b));
  return (from, to) => {
    const first = sorted.find((id) => id.compare(Buffer.from(from)) >= 0);
    if (first === undefined) return false;
    return to === undefined || first.compare(Buffer.from(to)) <= 0;
  };
}

function partyOf({ left, right }: RecordPair): string {
  return (left ?? right)?.[0] ?? '';
}

/**
 * Compares both sides of a party over all of its assets: one mirror may have a ledger
 * for each asset, and the other a single ledger for all of them.
 */
async function readParty(
  pairs: readonly RecordPair[],
  own: JudgedSide,
  source: JudgedSide,
): Promise<{
  readonly months: readonly MonthDifference[];
  readonly isCovered: boolean;
}> {
  const lefts: LedgerRecord[] = [];
  const rights: LedgerRecord[] = [];
  for (const { left, right } of pairs) {
    if (left !== undefined)
      lefts.push((await readRecord(own.files, left)).record);
    if (right !== undefined)
      rights.push((await readRecord(source.files, right)).record);
  }
  const months = differingMonths(addMonths(lefts), addMonths(rights));
  return { months, isCovered: isWhole(lefts) && isWhole(rights) };
}

function addMonths(records: readonly LedgerRecord[]): MonthSum[] {
  const months = Map.groupBy(
    records.flatMap((record) => record.months),
    ([month]) => month,
  );
  return [...months].map(([month, sums]) => [
    month,
    String(sums.reduce((total, [, rows]) => total + BigInt(rows), 0n)),
    addDigests(sums.map(([, , digest]) => digest)),
  ]);
}

/**
 * Whether all rows up to the statement's instant are covered and included in the sums.
 */
function isWhole(records: readonly LedgerRecord[]): boolean {
  return (
    records.length > 0 &&
    records.every(
      ({ covered, notLoaded }) =>
        notLoaded === '0' &&
        covered.length === 1 &&
        covered[0]?.[0] === null &&
        covered[0][1] === null,
    )
  );
}

/**
 * Whether the month has ended for both sides. The month that contains the earlier
 * `coveredTo` has not ended, unless both sides are covered up to the same instant.
 */
function isClosed(month: string, own: JudgedSide, source: JudgedSide): boolean {
  const ownTo = own.ledgers.coveredTo;
  const sourceTo = source.ledgers.coveredTo;
  if (ownTo === sourceTo) return true;
  if (ownTo === null || sourceTo === null) return false;
  const earlier = ownTo < sourceTo ? ownTo : sourceTo;
  return month < earlier.slice(0, 7);
}
