/**
 * Compares two mirrors and locates their differences, from the statements down to the
 * months of single ledgers. Pages that are equal on both sides are not read, so the
 * number of requests grows with the differences and not with the size of the mirrors.
 */
import { differingMonths, type MonthDifference } from './csv-sums.ts';
import type { LedgerRecord } from './ledger-record.ts';
import { ledgerKey, type PageEntry } from './pages.ts';
import { type ProofFiles, readPages, readRecord } from './proof-files.ts';
import type { ListSum, Statement } from './statement.ts';

/** Maximum number of differing ledgers to describe; further ones are only counted. */
const SHOWN_MAX = 100;

/** One side of a comparison: a statement and, if available, the files it refers to. */
export interface ComparedSide {
  readonly name: string;
  readonly statement: Statement;
  readonly files: ProofFiles | undefined;
}

export interface LedgerDifference {
  readonly party: string;
  readonly asset: string | null;
  /** Which side has a record of the ledger. */
  readonly heldBy: 'left' | 'right' | 'both';
  readonly months: readonly MonthDifference[];
  /** The covered ranges of each side, if they differ. */
  readonly covered?: {
    readonly left: LedgerRecord['covered'];
    readonly right: LedgerRecord['covered'];
  };
}

export interface MirrorDifference {
  readonly isSame: boolean;
  readonly lists: readonly {
    readonly list: keyof Statement['lists'];
    readonly left: ListSum;
    readonly right: ListSum;
  }[];
  /**
   * How many ledgers differ; null if some differ but one side's records are unavailable.
   */
  readonly ledgerCount: number | null;
  /** The first differing ledgers. */
  readonly ledgers: readonly LedgerDifference[];
}

/**
 * Compares two mirrors.
 * @throws PermanentError if a page or a record is not the one that its statement names
 */
export async function compareMirrors(
  left: ComparedSide,
  right: ComparedSide,
): Promise<MirrorDifference> {
  const lists = (['parties', 'checkpoints'] as const)
    .map((list) => ({
      list,
      left: left.statement.lists[list],
      right: right.statement.lists[list],
    }))
    .filter(
      ({ left: one, right: other }) =>
        one.rows !== other.rows || one.digest !== other.digest,
    );
  if (left.statement.ledgers.root === right.statement.ledgers.root)
    return { isSame: lists.length === 0, lists, ledgerCount: 0, ledgers: [] };
  if (left.files === undefined || right.files === undefined)
    return { isSame: false, lists, ledgerCount: null, ledgers: [] };

  const pairs = await differingRecords(
    { ledgers: left.statement.ledgers, files: left.files },
    { ledgers: right.statement.ledgers, files: right.files },
  );
  const shown = pairs.slice(0, SHOWN_MAX);
  const ledgers: LedgerDifference[] = [];
  for (const pair of shown)
    ledgers.push(await describePair(pair, left.files, right.files));
  return { isSame: false, lists, ledgerCount: pairs.length, ledgers };
}

/** The entries of one ledger on both sides; at least one side has an entry. */
export interface RecordPair {
  readonly left: PageEntry | undefined;
  readonly right: PageEntry | undefined;
}

/** The records of one side, and the files to read them from. */
export interface RecordsSide {
  readonly ledgers: Pick<Statement['ledgers'], 'top' | 'levels'>;
  readonly files: ProofFiles;
}

/**
 * Finds the records that differ.
 * @param isWanted selects the pages that may list a wanted ledger; by default, all pages
 * @returns the records that differ, in order
 */
export async function differingRecords(
  left: RecordsSide,
  right: RecordsSide,
  isWanted?: WantedLedgers,
): Promise<RecordPair[]> {
  let leftLevel = levelOf(left);
  let rightLevel = levelOf(right);
  while (leftLevel.height > 0 || rightLevel.height > 0) {
    if (leftLevel.height === rightLevel.height)
      dropCommon(leftLevel.entries, rightLevel.entries);
    const isLeftHigher = leftLevel.height >= rightLevel.height;
    const isRightHigher = rightLevel.height >= leftLevel.height;
    if (isLeftHigher)
      leftLevel = await levelBelow(left.files, leftLevel, isWanted);
    if (isRightHigher)
      rightLevel = await levelBelow(right.files, rightLevel, isWanted);
  }
  dropCommon(leftLevel.entries, rightLevel.entries);
  const keys = new Set([
    ...leftLevel.entries.keys(),
    ...rightLevel.entries.keys(),
  ]);
  return [...keys].toSorted().map((key) => ({
    left: leftLevel.entries.get(key),
    right: rightLevel.entries.get(key),
  }));
}

/** The entries on one level of pages, keyed by the first ledger that each entry covers. */
interface Level {
  /** The number of levels below this one. At 0, the entries refer to records. */
  readonly height: number;
  readonly entries: Map<string, PageEntry>;
}

/**
 * Whether any ledger in a range of parties is wanted; `to` is undefined for the last
 * page.
 */
export type WantedLedgers = (from: string, to: string | undefined) => boolean;

function levelOf({ ledgers }: RecordsSide): Level {
  const { top, levels } = ledgers;
  const entries = top === null ? [] : [top];
  return { height: levels, entries: byLedger(entries) };
}

async function levelBelow(
  files: ProofFiles,
  level: Level,
  isWanted: WantedLedgers = () => true,
): Promise<Level> {
  const entries = [...level.entries.values()];
  // The ledgers of a page end no later than where the next remaining page begins.
  const wanted = entries.filter(([party], index) =>
    isWanted(party, entries[index + 1]?.[0]),
  );
  const pages = await readPages(files, wanted);
  return { height: level.height - 1, entries: byLedger(pages.flat()) };
}

function byLedger(entries: readonly PageEntry[]): Map<string, PageEntry> {
  return new Map(entries.map((entry) => [ledgerKey(entry), entry]));
}

/**
 * Removes the entries that both sides have, because everything below equal hashes is
 * equal.
 */
function dropCommon(
  left: Map<string, PageEntry>,
  right: Map<string, PageEntry>,
): void {
  for (const [key, [, , hash]] of left) {
    if (right.get(key)?.[2] !== hash) continue;
    left.delete(key);
    right.delete(key);
  }
}

async function describePair(
  { left, right }: RecordPair,
  leftFiles: ProofFiles,
  rightFiles: ProofFiles,
): Promise<LedgerDifference> {
  const one = left && (await readRecord(leftFiles, left)).record;
  const other = right && (await readRecord(rightFiles, right)).record;
  const [party, asset] = left ?? right ?? ['', null];
  const months = differingMonths(one?.months ?? [], other?.months ?? []);
  const difference = { party, asset, months };
  if (one === undefined) return { ...difference, heldBy: 'right' };
  if (other === undefined) return { ...difference, heldBy: 'left' };
  const isCoveredAlike =
    JSON.stringify(one.covered) === JSON.stringify(other.covered);
  if (isCoveredAlike) return { ...difference, heldBy: 'both' };
  const covered = { left: one.covered, right: other.covered };
  return { ...difference, heldBy: 'both', covered };
}
