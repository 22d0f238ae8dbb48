/**
 * What differs between releases of the service: the columns of an export, how each value is written, and which
 * entries its query finds, in which order. 0.71.4 is the one that the interface's label most plausibly means.
 */
import type { Micros } from '../core/time.ts';
import { timestamptz, type Chain, type Foundation } from './network/chain.ts';
import { ACCOUNT_TYPE, NETWORK, NO_MARKET, type Account, type Movement } from './network/cycle.ts';
import type { BlockRange, Ledger } from './network/ledger.ts';
import { KIND, noise, STREAM } from './network/seeded.ts';
import type { ReleaseName } from './release-names.ts';

/** A question with its names resolved. */
export interface Selected {
  readonly party: number;
  readonly asset: number | undefined;
  /** Whole seconds, half-open. */
  readonly from: Micros | undefined;
  readonly to: Micros | undefined;
  /** The newest block. */
  readonly headBlock: number;
  /** The number of this call: orders that the service leaves open differ by it. */
  readonly call: number;
}

export interface Release {
  /** The CSV's first line, with its line end. */
  readonly header: string;
  /** Which entries are sent for a question, in which order: with this release's mistakes. */
  readonly select: (ledger: Ledger, chain: Chain, asked: Selected) => Iterable<Movement>;
  /** An end without a start brings the whole node down. */
  readonly dies: boolean;
  /** Makes the writer of one export's rows; a row comes with its line end. */
  readonly rowWriter: (network: Foundation, party: number) => (movement: Movement) => string;
}

const COLUMNS_12 =
  'vega_time,quantity,transfer_type,asset_id,account_from_market_id,account_from_party_id,' +
  'account_from_account_type,account_to_market_id,account_to_party_id,account_to_account_type,' +
  'account_from_balance,account_to_balance\n';
const COLUMNS_13 =
  'vega_time,quantity,effect,transfer_type,asset_id,account_from_market_id,account_from_party_id,' +
  'account_from_account_type,account_from_balance,account_to_market_id,account_to_party_id,' +
  'account_to_account_type,account_to_balance\n';

const ACCOUNT_NAMES: Readonly<Record<number, string>> = {
  [ACCOUNT_TYPE.settlement]: 'SETTLEMENT',
  [ACCOUNT_TYPE.margin]: 'MARGIN',
  [ACCOUNT_TYPE.general]: 'GENERAL',
  [ACCOUNT_TYPE.feesMaker]: 'FEES_MAKER',
  [ACCOUNT_TYPE.external]: 'EXTERNAL',
};

/**
 * Up to 65 ms behind its block an entry's own time lies: entries are numbered through the block, one a
 * microsecond, and other parties' come before.
 */
const ENTRY_OFFSET_MICROS_MAX = 65_536;

export const RELEASES: Readonly<Record<ReleaseName, Release>> = {
  '0.71.4': { header: COLUMNS_12, select: outgoingUnordered, dies: false, rowWriter: writeBytea },
  '0.71.6': { header: COLUMNS_13, select: wrongFilters, dies: true, rowWriter: writePlain },
  '0.73': { header: COLUMNS_13, select: rightFilters, dies: false, rowWriter: writePlain },
};

/** 0.71.1 to 0.71.5: what leaves the party, filtered rightly, in an order that changes from call to call. */
function* outgoingUnordered(ledger: Ledger, chain: Chain, asked: Selected): Generator<Movement> {
  const { from, to } = blocksWithin(chain, asked.headBlock, asked.from, asked.to);
  const middle = from + (noise(0, STREAM.rowOrder, asked.call) % Math.max(1, to - from));
  for (const blocks of [
    { from: middle, to },
    { from, to: middle - 1 },
  ]) {
    for (const block of byBlock(ledger.movementsOfPair(asked.party, blocks), asked.call)) {
      for (const movement of block) {
        const isAsked = asked.asset === undefined || movement.asset === asked.asset;
        if (isAsked && movement.from.owner === asked.party) yield movement;
      }
    }
  }
}

/**
 * 0.71.6 and 0.72: `to = P or from = P and asset = A and time ...`, without brackets. What comes in comes
 * whatever was asked; and the end is compared with the start, so that with both nothing goes out.
 * Ordered by block time alone.
 */
function* wrongFilters(ledger: Ledger, chain: Chain, asked: Selected): Generator<Movement> {
  const { party, asset, from, to, headBlock, call } = asked;
  const firstBlock = from === undefined ? 1 : chain.firstFrom(from);
  for (const block of byBlock(ledger.movementsOfPair(party, { from: 1, to: headBlock }), call)) {
    const isInTime = to === undefined && block[0].block >= firstBlock;
    for (const movement of block) {
      const isAsked = isInTime && (asset === undefined || movement.asset === asset);
      if (movement.to.owner === party || (isAsked && movement.from.owner === party)) yield movement;
    }
  }
}

/** 0.73: right, but bounds and order are by the entry's own time, which is not exported. */
function* rightFilters(ledger: Ledger, chain: Chain, asked: Selected): Generator<Movement> {
  const { party, asset, from, to, headBlock } = asked;
  const earliest = from === undefined ? undefined : from - BigInt(ENTRY_OFFSET_MICROS_MAX);
  const blocks = blocksWithin(chain, headBlock, earliest, to);
  for (const block of byBlock(ledger.movementsOfPair(party, blocks))) {
    const offset = noise(0, STREAM.entryOffset, block[0].block) % ENTRY_OFFSET_MICROS_MAX;
    const firstTime = chain.timeOf(block[0].block) + BigInt(offset);
    for (const [index, movement] of block.entries()) {
      if (movement.from.owner !== party && movement.to.owner !== party) continue;
      if (asset !== undefined && movement.asset !== asset) continue;
      const time = firstTime + BigInt(index);
      if ((from === undefined || time >= from) && (to === undefined || time < to)) yield movement;
    }
  }
}

/**
 * The movements of each block together; the ledger yields them block after block.
 * @param call where the order within a block is open: it is the other way round in half of the calls
 */
function* byBlock(movements: Iterable<Movement>, call?: number): Generator<[Movement, ...Movement[]]> {
  const isBackwards = call !== undefined && noise(1, STREAM.rowOrder, call) % 2 === 1;
  let block: Movement[] = [];
  const take = (): [Movement, ...Movement[]] => (isBackwards ? block.toReversed() : block) as [Movement];
  for (const movement of movements) {
    if (block.length > 0 && block[0]?.block !== movement.block) {
      yield take();
      block = [];
    }
    block.push(movement);
  }
  if (block.length > 0) yield take();
}

function blocksWithin(
  chain: Chain,
  headBlock: number,
  from: Micros | undefined,
  to: Micros | undefined,
): BlockRange {
  return {
    from: from === undefined ? 1 : chain.firstFrom(from),
    to: to === undefined ? headBlock : Math.min(headBlock, chain.firstFrom(to) - 1),
  };
}

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
    `${owner === NETWORK ? 'network' : id(KIND.party, owner)},${ACCOUNT_NAMES[type] ?? 'UNKNOWN'},${balance}`;
  const timeOf = writeBlockTime(network);
  return ({ block, type, asset, from, to, quantity, fromBalance, toBalance }) => {
    const effect = (to.owner === party ? quantity : 0n) - (from.owner === party ? quantity : 0n);
    return (
      `${timeOf(block)},${quantity},${effect},TRANSFER_TYPE_${type},${id(KIND.asset, asset)},` +
      `${account(from, fromBalance)},${account(to, toBalance)}\n`
    );
  };
}

/** Entries of one block follow one another, so its time is written once. */
function writeBlockTime({ chain }: Foundation): (block: number) => string {
  let [last, text] = [-1, ''];
  return (block) => {
    if (block !== last) [last, text] = [block, timestamptz(chain.timeOf(block))];
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
