/**
 * What differs between releases of the service: the columns of an export and how each value is written.
 * 0.71.4 is the one that the interface's label most plausibly means.
 */
import type { Micros } from '../core/time.ts';
import { NETWORK, NO_MARKET, type Account, type Movement } from './cycle.ts';
import { KIND, type IdCipher } from './ids.ts';
import { timestamptz } from './times.ts';

export interface Release {
  readonly name: string;
  /** The CSV's first line, with its line end. */
  readonly header: string;
  /** Makes the writer of one export's rows; a row comes with its line end. */
  rowWriter(names: Names): (movement: Movement) => string;
}

/** Turns the sandbox's numbers into what the service's tables hold. */
export interface Names {
  ids: IdCipher;
  timeOf(block: number): Micros;
  zoneMinutes: number;
}

const COLUMNS_0_71_4 = [
  'vega_time',
  'quantity',
  'transfer_type',
  'asset_id',
  'account_from_market_id',
  'account_from_party_id',
  'account_from_account_type',
  'account_to_market_id',
  'account_to_party_id',
  'account_to_account_type',
  'account_from_balance',
  'account_to_balance',
];

/** 12 columns, ids as Postgres writes bytea, account types as numbers, entries of the from-side only. */
export const RELEASE_0_71_4: Release = {
  name: '0.71.4',
  header: `${COLUMNS_0_71_4.join(',')}\n`,
  rowWriter: (names) => {
    const bytea = memo((kind: number, index: number) => `\\x${names.ids.id(kind, index)}`);
    const account = ({ owner, type, market }: Account): string =>
      `${market === NO_MARKET ? '\\x' : bytea(KIND.market, market)},` +
      `${owner === NETWORK ? '\\x03' : bytea(KIND.party, owner)},${type}`;
    let block = -1;
    let time = '';
    return (movement) => {
      if (movement.block !== block) {
        block = movement.block;
        time = timestamptz(names.timeOf(block), names.zoneMinutes);
      }
      return (
        `${time},${movement.quantity},TRANSFER_TYPE_${movement.type},${bytea(KIND.asset, movement.asset)},` +
        `${account(movement.from)},${account(movement.to)},${movement.fromBalance},${movement.toBalance}\n`
      );
    };
  },
};

/** One export names two parties, a few assets and markets: that is all it has to remember. */
function memo(make: (kind: number, index: number) => string): (kind: number, index: number) => string {
  const made = new Map<number, string>();
  return (kind, index) => {
    const key = index * 16 + kind;
    let text = made.get(key);
    if (text === undefined) made.set(key, (text = make(kind, index)));
    return text;
  };
}
