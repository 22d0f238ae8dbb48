/**
 * What differs between releases of the service: the columns of an export, how each value is written, and which
 * entries its query finds, in which order. 0.71.4 is the one that the interface's label most plausibly means.
 */
import type { Micros } from '../time/time.ts';
import { ACCOUNT_TYPE, NETWORK, NO_MARKET } from './network/ledger.ts';
import type { Account, BlockRange, Movement } from './network/ledger.ts';
import { timestamptz, type Network } from './network/network.ts';
import { KIND, noise, STREAM } from './network/seeded.ts';
import type { ReleaseName } from './options.ts';

/** A question with its names resolved. */
interface Selected {
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

interface Release {
  /** The CSV's first line, with its line end. */
  readonly header: string;
  /** How ids, `network`, accounts without a market and account types are written. */
  readonly spelling: typeof BYTEA;
  /** Which entries are sent for a question, in which order: with this release's mistakes. */
  readonly select: (network: Network, asked: Selected) => Iterable<Movement>;
  /** An end without a start brings the whole node down. */
  readonly dies: boolean;
}

const COLUMNS_12 =
  'vega_time,quantity,transfer_type,asset_id,account_from_market_id,account_from_party_id,' +
  'account_from_account_type,account_to_market_id,account_to_party_id,account_to_account_type,' +
  'account_from_balance,account_to_balance\n';
const COLUMNS_13 =
  'vega_time,quantity,effect,transfer_type,asset_id,account_from_market_id,account_from_party_id,' +
  'account_from_account_type,account_from_balance,account_to_market_id,account_to_party_id,' +
  'account_to_account_type,account_to_balance\n';

/** Ids as Postgres writes bytea, account types as numbers. */
const BYTEA = {
  beforeId: '\\x',
  network: '\\x03',
  noMarket: '\\x',
  typeOf: (type: Account['type']): string => `${ACCOUNT_TYPE[type]}`,
};
/** Ids plain or as a word, account types by their bare names. */
const PLAIN = {
  beforeId: '',
  network: 'network',
  noMarket: '""',
  typeOf: (type: string): string => type,
};

/**
 * Up to 65 ms behind its block an entry's own time lies: entries are numbered through the block, one a
 * microsecond, and other parties' come before.
 */
const ENTRY_OFFSET_MICROS_MAX = 65_536;

export const RELEASES: Readonly<Record<ReleaseName, Release>> = {
  '0.71.4': {
    header: COLUMNS_12,
    spelling: BYTEA,
    select: outgoingUnordered,
    dies: false,
  },
  '0.71.6': { header: COLUMNS_13, spelling: PLAIN, select: wrongFilters, dies: true },
  '0.73': { header: COLUMNS_13, spelling: PLAIN, select: rightFilters, dies: false },
};

/** 0.71.1 to 0.71.5: what leaves the party, filtered rightly, in an order that changes from call to call. */
function* outgoingUnordered(network: Network, asked: Selected): Generator<Movement> {
  const { from, to } = blocksWithin(network, asked);
  const middle = from + (noise(0, STREAM.rowOrder, asked.call) % Math.max(1, to - from));
  for (const range of [
    { from: middle, to },
    { from, to: middle - 1 },
  ]) {
    for (const block of byBlock(network, asked.party, range, asked.call)) {
      yield* block.filter(
        (movement) => isOfAsset(asked, movement) && movement.from.owner === asked.party,
      );
    }
  }
}

/**
 * 0.71.6 and 0.72: `to = P or from = P and asset = A and time ...`, without brackets. What comes in comes
 * whatever was asked; and the end is compared with the start, so that with both nothing goes out.
 * Ordered by block time alone.
 */
function* wrongFilters(network: Network, asked: Selected): Generator<Movement> {
  const { party, to, headBlock, call } = asked;
  const { from } = blocksWithin(network, asked);
  for (const block of byBlock(network, party, { from: 1, to: headBlock }, call)) {
    yield* block.filter((movement) => {
      const isAsked =
        to === undefined && movement.block >= from && isOfAsset(asked, movement);
      return movement.to.owner === party || (isAsked && movement.from.owner === party);
    });
  }
}

/** 0.73: right, but bounds and order are by the entry's own time, which is not exported. */
function* rightFilters(network: Network, asked: Selected): Generator<Movement> {
  const { party, from, to } = asked;
  const earliest =
    from === undefined ? undefined : from - BigInt(ENTRY_OFFSET_MICROS_MAX);
  const range = blocksWithin(network, { ...asked, from: earliest });
  for (const block of byBlock(network, party, range)) {
    yield* block.filter((movement, index) => {
      if (movement.from.owner !== party && movement.to.owner !== party) return false;
      const offset =
        (noise(0, STREAM.entryOffset, movement.block) % ENTRY_OFFSET_MICROS_MAX) + index;
      const time = network.chain.timeOf(movement.block) + BigInt(offset);
      const isInTime =
        (from === undefined || time >= from) && (to === undefined || time < to);
      return isInTime && isOfAsset(asked, movement);
    });
  }
}

function isOfAsset({ asset }: Selected, movement: Movement): boolean {
  return asset === undefined || movement.asset === asset;
}

/** The first block of a question's range, and its last. */
function blocksWithin({ chain }: Network, { from, to, headBlock }: Selected): BlockRange {
  return {
    from: from === undefined ? 1 : chain.firstFrom(from),
    to: to === undefined ? headBlock : Math.min(headBlock, chain.firstFrom(to) - 1),
  };
}

/**
 * The movements of each block together; the ledger yields them block after block.
 * @param call where the order within a block is open: it is the other way round in half of the calls
 */
function* byBlock(
  { movementsOfPair }: Network,
  party: number,
  blocks: BlockRange,
  call?: number,
) {
  const isBackwards = call !== undefined && noise(1, STREAM.rowOrder, call) % 2 === 1;
  let block: Movement[] = [];
  const take = () => (isBackwards ? block.toReversed() : block);
  for (const movement of movementsOfPair(party, blocks)) {
    if (block[0] !== undefined && block[0].block !== movement.block) {
      yield take();
      block = [];
    }
    block.push(movement);
  }
  yield take();
}

/** Makes the writer of one export's rows; a row comes with its line end. */
export function openRowWriter(
  network: Network,
  party: number,
): (movement: Movement) => string {
  const { header, spelling } = RELEASES[network.settings.release];
  // One export names two parties, a few assets and markets: that is all it has to remember.
  const names = new Map<number, string>();
  // Entries of one block follow one another, so its time is written once.
  let lastBlock = -1;
  let time = '';

  function name(kind: number, index: number) {
    const key = index * 16 + kind;
    let text = names.get(key);
    if (text === undefined)
      names.set(key, (text = `${spelling.beforeId}${network.ids.id(kind, index)}`));
    return text;
  }

  function account({ owner, type, market }: Account) {
    const id = market === NO_MARKET ? spelling.noMarket : name(KIND.market, market);
    return `${id},${owner === NETWORK ? spelling.network : name(KIND.party, owner)},${spelling.typeOf(type)}`;
  }

  return ({ block, type, asset, from, to, quantity, fromBalance, toBalance }) => {
    if (block !== lastBlock) {
      lastBlock = block;
      time = timestamptz(network.chain.timeOf(block));
    }
    const what = `TRANSFER_TYPE_${type},${name(KIND.asset, asset)}`;
    if (header === COLUMNS_12) {
      return `${time},${quantity},${what},${account(from)},${account(to)},${fromBalance},${toBalance}\n`;
    }
    const effect =
      (to.owner === party ? quantity : 0n) - (from.owner === party ? quantity : 0n);
    return `${time},${quantity},${effect},${what},${account(from)},${fromBalance},${account(to)},${toBalance}\n`;
  };
}
