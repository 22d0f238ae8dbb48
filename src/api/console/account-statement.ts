/**
 * Puts an account statement together: opening and closing balances, and a verdict that
 * says whether the month is known in full and whether the amounts agree.
 */
import { formatPlural, formatTimeUtc } from '../../format/format.js';
import type { Rows } from '../../postgres/rows.ts';
import {
  accountsOfMonth,
  knowledgeOfMonth,
  linesOfMonth,
  type MonthAccount,
  type MonthKnowledge,
  type MonthLine,
} from './store/account-statements.ts';

/** A statement with more lines is read with the ready question, or saved as a file. */
export const LINES_MAX = 1_000;

/** Candidates of a balance; one if it is certain, none if it is unknown. */
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
   * Whether opening + received - sent is the closing balance; `unknown` if one of the
   * balances is not certain.
   */
  readonly sums: 'agree' | 'differ' | 'unknown';
}

export interface StatementVerdict {
  readonly verdict: 'complete' | 'incomplete' | 'suspicious';
  /** Why it is not complete, in sentences; empty if it is. */
  readonly reasons: readonly string[];
}

export interface AccountStatement extends StatementVerdict {
  readonly partyId: string;
  readonly month: string;
  readonly accounts: readonly StatementAccount[];
  /** Each change of an account, in the order of time. */
  readonly lines: readonly MonthLine[];
  /** Whether there are more lines than these. */
  readonly isCut: boolean;
  /** The instant up to which the ledger is known; null if it was never exported. */
  readonly knownTo: string | null;
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
  const shown = accounts.map(describeAccount);
  return {
    partyId,
    month,
    accounts: shown,
    lines: lines.slice(0, LINES_MAX),
    isCut: lines.length > LINES_MAX,
    knownTo: known.knownTo,
    isSentOnly: known.isSentOnly,
    ...judgeMonth(known, shown),
  };
}

function describeAccount({
  before,
  first,
  closing,
  ...account
}: MonthAccount): StatementAccount {
  const candidates = [before, first].map((found) => found ?? []);
  // The balance before the month counts; where its last block leaves several, the
  // month's own first entry may decide.
  const opening =
    candidates.find((found) => found.length === 1) ??
    candidates.find((found) => found.length > 0) ??
    [];
  const ended = closing ?? [];
  return {
    ...account,
    opening,
    closing: ended,
    sums: compareSums(account, opening, ended),
  };
}

function compareSums(
  { received, sent }: Pick<MonthAccount, 'received' | 'sent'>,
  opening: Balance,
  closing: Balance,
): StatementAccount['sums'] {
  const [from, otherFrom] = opening;
  const [to, otherTo] = closing;
  if (from === undefined || to === undefined) return 'unknown';
  if (otherFrom !== undefined || otherTo !== undefined) return 'unknown';
  const sum = BigInt(from) + BigInt(received) - BigInt(sent);
  return sum === BigInt(to) ? 'agree' : 'differ';
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
  const gaps = [
    ...known.missing.map(describeHole),
    ...(known.notLoaded === '0'
      ? []
      : [
          `${formatPlural(known.notLoaded, 'segment')} of the month ` +
            `${known.notLoaded === '1' ? 'is' : 'are'} not loaded yet.`,
        ]),
    ...(known.isSentOnly
      ? [
          'The source exports what the party sends, not what it receives: received ' +
            'amounts may be missing.',
        ]
      : []),
    ...(known.isQuarantined
      ? ['The ledger is in quarantine: its last exports failed.']
      : []),
  ];
  const reasons = [...doubts, ...gaps];
  if (doubts.length > 0) return { verdict: 'suspicious', reasons };
  return { verdict: gaps.length > 0 ? 'incomplete' : 'complete', reasons };
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

/** Formats an instant of the database's JSON, which has an offset. */
function shorten(instant: string): string {
  return formatTimeUtc(new Date(instant).toISOString());
}
