/**
 * What differs between releases of the service: the columns of an export, how each value is written, and
 * which entries its query finds. 0.71.4 is the one that the interface's label most plausibly means.
 */
import { ACCOUNT_TYPE, NETWORK, NO_MARKET, type Account, type Movement } from './network/cycle.ts';
import type { Foundation } from './network/chain.ts';
import { KIND } from './network/ids.ts';
import type { ReleaseName } from './release-names.ts';
import { outgoingUnordered, rightFilters, wrongFilters, type Selection } from './http/selection.ts';
import { timestamptz } from './network/times.ts';

export interface Release {
  /** The CSV's first line, with its line end. */
  readonly header: string;
  /** Which entries are sent for a question, in which order: with this release's mistakes. */
  readonly select: Selection;
  /** An end without a start brings the whole node down. */
  readonly dies: boolean;
  /** Makes the writer of one export's rows; a row comes with its line end. */
  rowWriter(network: Foundation, party: number): (movement: Movement) => string;
}

const COLUMNS_12 =
  'vega_time,quantity,transfer_type,asset_id,account_from_market_id,account_from_party_id,' +
  'account_from_account_type,account_to_market_id,account_to_party_id,account_to_account_type,' +
  'account_from_balance,account_to_balance\n';
const COLUMNS_13 =
  'vega_time,quantity,effect,transfer_type,asset_id,account_from_market_id,account_from_party_id,' +
  'account_from_account_type,account_from_balance,account_to_market_id,account_to_party_id,' +
  'account_to_account_type,account_to_balance\n';

const ACCOUNT_NAMES: ReadonlyMap<number, string> = new Map([
  [ACCOUNT_TYPE.settlement, 'SETTLEMENT'],
  [ACCOUNT_TYPE.margin, 'MARGIN'],
  [ACCOUNT_TYPE.general, 'GENERAL'],
  [ACCOUNT_TYPE.feesMaker, 'FEES_MAKER'],
  [ACCOUNT_TYPE.external, 'EXTERNAL'],
]);

export const RELEASES: Readonly<Record<ReleaseName, Release>> = {
  '0.71.4': {
    header: COLUMNS_12,
    select: outgoingUnordered,
    dies: false,
    rowWriter: writeBytea,
  },
  '0.71.6': {
    header: COLUMNS_13,
    select: wrongFilters,
    dies: true,
    rowWriter: writePlain,
  },
  '0.73': {
    header: COLUMNS_13,
    select: rightFilters,
    dies: false,
    rowWriter: writePlain,
  },
};

/** 12 columns, ids as Postgres writes bytea, account types as numbers. */
function writeBytea(network: Foundation): (movement: Movement) => string {
  const bytea = memo((kind: number, index: number) => `\\x${network.ids.id(kind, index)}`);
  const account = ({ owner, type, market }: Account): string =>
    `${market === NO_MARKET ? '\\x' : bytea(KIND.market, market)},` +
    `${owner === NETWORK ? '\\x03' : bytea(KIND.party, owner)},${type}`;
  const timeOf = writeBlockTime(network);
  return (movement) =>
    `${timeOf(movement.block)},${movement.quantity},TRANSFER_TYPE_${movement.type},` +
    `${bytea(KIND.asset, movement.asset)},${account(movement.from)},${account(movement.to)},` +
    `${movement.fromBalance},${movement.toBalance}\n`;
}

/** 13 columns in another order, ids plain or as a word, account types by their bare names. */
function writePlain(network: Foundation, party: number): (movement: Movement) => string {
  const id = memo((kind: number, index: number) => network.ids.id(kind, index));
  const account = ({ owner, type, market }: Account, balance: bigint): string =>
    `${market === NO_MARKET ? '""' : id(KIND.market, market)},` +
    `${owner === NETWORK ? 'network' : id(KIND.party, owner)},${ACCOUNT_NAMES.get(type) ?? 'UNKNOWN'},${balance}`;
  const timeOf = writeBlockTime(network);
  return (movement) => {
    const { from, to, quantity } = movement;
    const effect = (to.owner === party ? quantity : 0n) - (from.owner === party ? quantity : 0n);
    return (
      `${timeOf(movement.block)},${quantity},${effect},TRANSFER_TYPE_${movement.type},` +
      `${id(KIND.asset, movement.asset)},${account(from, movement.fromBalance)},${account(to, movement.toBalance)}\n`
    );
  };
}

/** Entries of one block follow one another, so its time is written once. */
function writeBlockTime({ chain, settings }: Foundation): (block: number) => string {
  let [last, text] = [-1, ''];
  return (block) => {
    if (block !== last) [last, text] = [block, timestamptz(chain.timeOf(block), settings.zoneMinutes)];
    return text;
  };
}

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
