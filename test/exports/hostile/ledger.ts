/** The true rows of a case: what a source has booked for one party. */
import { Random } from '../../lists/plain-source/random.ts';

export interface Side {
  readonly market: string;
  readonly party: string;
  readonly account: string;
  readonly balance: string;
}

/**
 * One ledger entry. Times are microseconds since 1970; ids lower-case hex; kinds bare
 * names.
 */
export interface Entry {
  readonly time: bigint;
  readonly quantity: string;
  readonly transfer: string;
  readonly asset: string;
  readonly from: Side;
  readonly to: Side;
}

/**
 * A row of `mirror.ledger_entries` as the contract names its columns; `vega_time` in UTC
 * with microseconds.
 */
export type LedgerRow = Readonly<Record<string, string | null>>;

export const SECOND = 1_000_000n;
export const HOUR = 3600n * SECOND;
export const DAY = 24n * HOUR;

export interface LedgerRecipe {
  readonly seed: string;
  readonly party: string;
  readonly rows: number;
  /** The first and the last instant, as hours before the world's now. */
  readonly fromHours: number;
  readonly toHours: number;
  /** The side of the transfers that the party is on. */
  readonly side: 'from' | 'either';
}

export const ASSETS = ['c0', 'a5'].map((digits) => digits.repeat(32));
const TRANSFERS = ['MARGIN_HIGH', 'DEPOSIT', 'LOSS', 'WIN', 'MAKER_FEE_PAY'];
const ACCOUNTS = ['MARGIN', 'GENERAL', 'BOND', 'EXTERNAL', 'INSURANCE'];

/**
 * Entries by time, two of a block here and there, and one that is repeated in every
 * field.
 */
export function makeLedger(
  now: bigint,
  recipe: Partial<LedgerRecipe> & Pick<LedgerRecipe, 'seed' | 'party'>,
): Entry[] {
  const { seed, party, rows, fromHours, toHours, side } = {
    rows: 100,
    fromHours: 720,
    toHours: 3,
    side: 'either',
    ...recipe,
  };
  const random = new Random(
    [...Buffer.from(seed)].reduce((sum, byte) => (sum * 31 + byte) >>> 0, 7),
  );
  const begin = now - BigInt(fromHours) * HOUR;
  const step = (BigInt(fromHours - toHours) * HOUR) / BigInt(Math.max(1, rows));
  const entries: Entry[] = [];
  for (let at = 0; at < rows; at += 1) {
    const last = entries.at(-1);
    const place = at % 5 === 4 ? at - 1 : at;
    const time = begin + BigInt(place) * step + BigInt(place * 1013);
    if (last !== undefined && at % 17 === 0) entries.push(last);
    else
      entries.push(
        makeEntry(random, party, side === 'from' || at % 3 > 0, time),
      );
  }
  return entries;
}

function makeEntry(
  random: Random,
  party: string,
  isFrom: boolean,
  time: bigint,
): Entry {
  const own: Side = {
    market: random.chance(0.5) ? random.hex(64) : '',
    party,
    account: random.pick(ACCOUNTS),
    balance: String(random.between(0, 2 ** 31)).repeat(2),
  };
  const other: Side = {
    market: random.chance(0.5) ? random.hex(64) : '',
    party: random.chance(0.3) ? 'network' : random.hex(64),
    account: random.pick(ACCOUNTS),
    balance: String(random.between(0, 2 ** 31)),
  };
  return {
    time,
    quantity: String(random.between(1, 2 ** 31)),
    transfer: random.pick(TRANSFERS),
    asset: random.pick(ASSETS),
    from: isFrom ? own : other,
    to: isFrom ? other : own,
  };
}

/** The row that a mirror should hold; `effect` only where the source's layout has it. */
export function toLedgerRow(
  entry: Entry,
  party: string,
  hasEffect: boolean,
): LedgerRow {
  return {
    party_id: party,
    vega_time: writeInstant(entry.time),
    quantity: entry.quantity,
    effect: hasEffect ? effectOf(entry, party) : null,
    transfer_type: entry.transfer,
    asset_id: entry.asset,
    account_from_market_id: entry.from.market,
    account_from_party_id: entry.from.party,
    account_from_account_type: entry.from.account,
    account_from_balance: entry.from.balance,
    account_to_market_id: entry.to.market,
    account_to_party_id: entry.to.party,
    account_to_account_type: entry.to.account,
    account_to_balance: entry.to.balance,
  };
}

export function effectOf(entry: Entry, party: string): string {
  if (entry.from.party === entry.to.party) return '0';
  return entry.to.party === party ? entry.quantity : `-${entry.quantity}`;
}

/** RFC 3339 in UTC with six digits; for times that a JavaScript date can hold. */
export function writeInstant(time: bigint): string {
  const fraction = ((time % SECOND) + SECOND) % SECOND;
  const seconds = (time - fraction) / SECOND;
  const text = new Date(Number(seconds) * 1000).toISOString().slice(0, -5);
  return `${text}.${String(fraction).padStart(6, '0')}Z`;
}
