/**
 * Builds an account statement: opening and closing balances, and a verdict on whether the
 * month is known in full and whether the amounts agree.
 */
import { formatPlural, formatTimeUtc } from '../../format/format.js';
import type { Rows } from '../../postgres/api-rows.ts';
import { chainLines } from './chained-lines.ts';
import {
  accountsOfMonth,
  knowledgeOfMonth,
  linesOfMonth,
  type MonthAccount,
  type MonthKnowledge,
  type MonthLine,
} from './store/account-statements.ts';

/**
 * Maximum number of lines shown. Printing lays out all of them, and the time that a
 * browser needs for that grows with the square of their number: 5,000 lines took 75 s on
 * two busy cores. The ready question `statement` returns all lines of a longer statement,
 * and so does the download.
 */
export const LINES_MAX = 5_000;

/** The candidates for a balance: one if it is certain, none if it is unknown. */
type Balance = readonly string[];

export interface StatementAccount {
  readonly assetId: string;
  readonly accountType: string;
  readonly marketId: string | null;
  readonly entries: string;
  readonly received: string;
  readonly sent: string;
  readonly opening: Balance;
  readonly closing: Balance;
  /**
   * Whether opening + received - sent equals the closing balance; `unknown` if one of the
   * balances is not certain, `oneSided` if the source leaves received amounts out.
   */
  readonly sums: 'agree' | 'differ' | 'unknown' | 'oneSided';
}

export interface StatementVerdict {
  readonly verdict: 'complete' | 'incomplete' | 'suspicious';
  /** Why the month is not complete, as sentences; empty if it is complete. */
  readonly reasons: readonly string[];
  /**
   * The instant up to which an unfinished month is proven; null if the month is over, or
   * if its verdict is not `complete`.
   */
  readonly provenTo: string | null;
}

export interface AccountStatement extends StatementVerdict {
  readonly partyId: string;
  readonly month: string;
  readonly accounts: readonly StatementAccount[];
  /**
   * Every change of an account, sorted by time. Within a block, the changes are ordered
   * so that each account's balances follow from one another.
   */
  readonly lines: readonly MonthLine[];
  /** Whether there are more lines than these. */
  readonly isCut: boolean;
  /** The instant up to which the ledger is known; null if it was never exported. */
  readonly knownTo: string | null;
  /**
   * Whether the source leaves out what the party receives. This limit of the source is
   * not a fault: it does not change the verdict.
   */
  readonly isSentOnly: boolean;
}

/** Reads the statement of a party for a month (`2026-03`, in UTC). */
export async function readAccountStatement(
  rows: Rows,
  partyId: string,
  month: string,
  assetIds: readonly string[],
): Promise<AccountStatement> {
  const range = { partyId, month: `${month}-01` };
  const [accounts, lines, [known]] = await Promise.all([
    rows('read the accounts of a month', accountsOfMonth(range)),
    rows('read the lines of a month', linesOfMonth(range, LINES_MAX + 1)),
    rows('read how a month is known', knowledgeOfMonth(range, assetIds)),
  ]);
  if (known === undefined) throw new TypeError('the statement yields one row');
  const shown = accounts.map((account) =>
    describeAccount(account, known.isSentOnly),
  );
  return {
    partyId,
    month,
    accounts: shown,
    lines: chainLines(lines, shown).slice(0, LINES_MAX),
    isCut: lines.length > LINES_MAX,
    knownTo: known.knownTo,
    isSentOnly: known.isSentOnly,
    ...judgeMonth(known, shown),
  };
}

function describeAccount(
  { before, first, closing, ...account }: MonthAccount,
  isSentOnly: boolean,
): StatementAccount {
  const opening = chooseOpening(before ?? [], first ?? []);
  const ended = closing ?? [];
  return isSentOnly
    ? { ...account, opening, closing: ended, sums: 'oneSided' }
    : { ...account, ...checkSums(account, opening, ended) };
}

/**
 * Chooses the opening balance: the balance before the month. If the last block before the
 * month leaves several candidates, the month's first block may decide.
 */
function chooseOpening(before: Balance, first: Balance): Balance {
  const certain = [before, first].find((found) => found.length === 1);
  if (certain !== undefined) return certain;
  const common = before.filter((balance) => first.includes(balance));
  return [common, before, first].find((found) => found.length > 0) ?? [];
}

/**
 * Compares the sums with the balances. If there are several candidates, only those that
 * the sums explain are kept.
 */
function checkSums(
  { received, sent }: Pick<MonthAccount, 'received' | 'sent'>,
  opening: Balance,
  closing: Balance,
): Pick<StatementAccount, 'opening' | 'closing' | 'sums'> {
  if (opening.length === 0 || closing.length === 0)
    return { opening, closing, sums: 'unknown' };
  const moved = BigInt(received) - BigInt(sent);
  const ends = new Set(closing.map(BigInt));
  const from = opening.filter((balance) => ends.has(BigInt(balance) + moved));
  const starts = new Set(from.map(BigInt));
  const to = closing.filter((balance) => starts.has(BigInt(balance) - moved));
  if (from.length === 1) return { opening: from, closing: to, sums: 'agree' };
  if (from.length > 1) return { opening: from, closing: to, sums: 'unknown' };
  const isCertain = opening.length === 1 && closing.length === 1;
  return { opening, closing, sums: isCertain ? 'differ' : 'unknown' };
}

/** Decides whether a month is known in full. Pure. */
export function judgeMonth(
  known: MonthKnowledge,
  accounts: readonly StatementAccount[],
): StatementVerdict {
  const differing = accounts.filter(({ sums }) => sums === 'differ').length;
  const doubts = [
    ...(differing > 0
      ? [
          `The entries of ${formatPlural(differing, 'account')} do not add up to the ` +
            'balances: an entry is missing, or the source left a change out.',
        ]
      : []),
    ...(known.faulty === '0'
      ? []
      : [
          `${formatPlural(known.faulty, 'range')} of the month ${known.faulty === '1' ? 'is' : 'are'} ` +
            'not trusted.',
        ]),
  ];
  const provenTo = known.isOver ? null : lastProven(known);
  const holes = known.missing.map(describeHole);
  const gaps = [
    ...(known.hasBegun ? [] : ['The month has not begun.']),
    ...(provenTo === null ? holes : []),
    ...(known.notLoaded === '0'
      ? []
      : [
          `${formatPlural(known.notLoaded, 'segment')} of the month ` +
            `${known.notLoaded === '1' ? 'is' : 'are'} not loaded yet.`,
        ]),
    ...(known.isQuarantined
      ? ['The ledger is in quarantine: its last exports failed.']
      : []),
  ];
  const reasons = [...doubts, ...gaps];
  if (doubts.length > 0)
    return { verdict: 'suspicious', reasons, provenTo: null };
  if (gaps.length > 0)
    return {
      verdict: 'incomplete',
      // The result has no `provenTo`, so the end of the known range is given as a reason
      // instead.
      reasons: provenTo === null ? reasons : [...reasons, ...holes],
      provenTo: null,
    };
  return { verdict: 'complete', reasons, provenTo };
}

/**
 * Returns the instant up to which an unfinished month is proven from its beginning
 * without a gap; null if there is no such instant.
 */
function lastProven({ missing, knownTo }: MonthKnowledge): string | null {
  if (missing.some(({ isNow, isFromStart }) => !isNow || isFromStart))
    return null;
  const ends = missing.map(({ from }) => new Date(from).toISOString());
  // Instants in the same format sort as strings.
  return ends.toSorted()[0] ?? knownTo;
}

function describeHole({
  assetId,
  from,
  to,
  isNow,
}: MonthKnowledge['missing'][number]): string {
  const asset = assetId === null ? '' : ` for the asset ${assetId}`;
  if (isNow)
    return `The month is not over: nothing is known yet after ${shorten(from)}${asset}.`;
  return `Nothing is known from ${shorten(from)} to ${shorten(to)}${asset}.`;
}

/** Formats an instant from the database's JSON, which gives it with a UTC offset. */
function shorten(instant: string): string {
  return formatTimeUtc(new Date(instant).toISOString());
}
