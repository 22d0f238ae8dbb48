/**
 * The differences between releases of the service: the columns of an export, the format
 * of each value, and which entries its query finds, in which order. The version in the
 * interface document most probably refers to 0.71.4.
 */
import type { Micros } from '../time/time.ts';
import { ACCOUNT_TYPE, NETWORK, NO_MARKET } from './network/ledger.ts';
import type { Account, BlockRange, Movement } from './network/ledger.ts';
import { timestamptz, type Network } from './network/network.ts';
import { KIND, noise, STREAM } from './network/seeded.ts';
import type { ReleaseName } from './options.ts';

/** A request for an export, with ids resolved to numbers. */
interface Selection {
  readonly party: number;
  readonly asset: number | undefined;
  /** The range in whole seconds, half-open. */
  readonly from: Micros | undefined;
  readonly to: Micros | undefined;
  /** The newest block. */
  readonly headBlock: number;
  /**
   * Number of this call. Where the service does not define an order, the order varies
   * from call to call.
   */
  readonly call: number;
}

interface Release {
  /** The CSV's first line, including its line break. */
  readonly header: string;
  /** How ids, `network`, accounts without a market, and account types are written. */
  readonly spelling: typeof BYTEA;
  /** Yields the entries of a response in order, reproducing this release's bugs. */
  readonly select: (
    network: Network,
    selection: Selection,
  ) => Iterable<Movement>;
  /** Whether a request with an end but no start crashes the node. */
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

/** Ids are written as Postgres writes bytea, and account types as numbers. */
const BYTEA = {
  beforeId: '\\x',
  network: '\\x03',
  noMarket: '\\x',
  typeOf: (type: Account['type']): string => `${ACCOUNT_TYPE[type]}`,
};
/** Ids are plain hex or a word, and account types are bare names. */
const PLAIN = {
  beforeId: '',
  network: 'network',
  noMarket: '""',
  typeOf: (type: string): string => type,
};

/**
 * Upper limit, in microseconds, for the time from a block to a party's first entry in it.
 * Each entry's time is one microsecond after that of the previous entry in the block, and
 * any number of other parties' entries may come first.
 */
const ENTRY_OFFSET_MICROS_MAX = 65_536;

export const RELEASES: Readonly<Record<ReleaseName, Release>> = {
  '0.71.4': {
    header: COLUMNS_12,
    spelling: BYTEA,
    select: outgoingUnordered,
    dies: false,
  },
  '0.71.6': {
    header: COLUMNS_13,
    spelling: PLAIN,
    select: wrongFilters,
    dies: true,
  },
  '0.73': {
    header: COLUMNS_13,
    spelling: PLAIN,
    select: rightFilters,
    dies: false,
  },
};

/**
 * 0.71.1 to 0.71.5: selects the outgoing entries. The filter is correct, but the order
 * varies from call to call.
 */
function* outgoingUnordered(
  network: Network,
  selection: Selection,
): Generator<Movement> {
  const { from, to } = blocksWithin(network, selection);
  const middle =
    from + (noise(0, STREAM.rowOrder, selection.call) % Math.max(1, to - from));
  for (const range of [
    { from: middle, to },
    { from, to: middle - 1 },
  ]) {
    for (const block of byBlock(
      network,
      selection.party,
      range,
      selection.call,
    )) {
      yield* block.filter(
        (movement) =>
          isOfAsset(selection, movement) &&
          movement.from.owner === selection.party,
      );
    }
  }
}

/**
 * 0.71.6 and 0.72: the filter is `to = P or from = P and asset = A and time ...`, without
 * parentheses. Incoming entries are therefore always sent, whatever the request. The end
 * is compared with the start, so a request with both gets no outgoing entries. Entries
 * are ordered by block time only.
 */
function* wrongFilters(
  network: Network,
  selection: Selection,
): Generator<Movement> {
  const { party, to, headBlock, call } = selection;
  const { from } = blocksWithin(network, selection);
  for (const block of byBlock(
    network,
    party,
    { from: 1, to: headBlock },
    call,
  )) {
    yield* block.filter((movement) => {
      const isSelected =
        to === undefined &&
        movement.block >= from &&
        isOfAsset(selection, movement);
      return (
        movement.to.owner === party ||
        (isSelected && movement.from.owner === party)
      );
    });
  }
}

/**
 * 0.73: the filter is correct, but bounds and order use the entry's own time, which is
 * not exported.
 */
function* rightFilters(
  network: Network,
  selection: Selection,
): Generator<Movement> {
  const { party, from, to } = selection;
  const earliest =
    from === undefined ? undefined : from - BigInt(ENTRY_OFFSET_MICROS_MAX);
  const range = blocksWithin(network, { ...selection, from: earliest });
  for (const block of byBlock(network, party, range)) {
    yield* block.filter((movement, index) => {
      if (movement.from.owner !== party && movement.to.owner !== party)
        return false;
      const offset =
        (noise(0, STREAM.entryOffset, movement.block) %
          ENTRY_OFFSET_MICROS_MAX) +
        index;
      const time = network.chain.timeOf(movement.block) + BigInt(offset);
      const isInTime =
        (from === undefined || time >= from) && (to === undefined || time < to);
      return isInTime && isOfAsset(selection, movement);
    });
  }
}

function isOfAsset({ asset }: Selection, movement: Movement): boolean {
  return asset === undefined || movement.asset === asset;
}

/** Returns the first and the last block of a request's range. */
function blocksWithin(
  { chain }: Network,
  { from, to, headBlock }: Selection,
): BlockRange {
  return {
    from: from === undefined ? 1 : chain.firstFrom(from),
    to:
      to === undefined
        ? headBlock
        : Math.min(headBlock, chain.firstFrom(to) - 1),
  };
}

/**
 * Groups movements by block; the ledger yields them block by block.
 * @param call the number of the call, if the order within a block is undefined; half of
 *   the calls then get the reverse order
 */
function* byBlock(
  { movementsOfPair }: Network,
  party: number,
  blocks: BlockRange,
  call?: number,
) {
  const isBackwards =
    call !== undefined && noise(1, STREAM.rowOrder, call) % 2 === 1;
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

/** Returns a function that writes one row of an export, including its line break. */
export function openRowWriter(
  network: Network,
  party: number,
): (movement: Movement) => string {
  const { header, spelling } = RELEASES[network.settings.release];
  // One export contains two parties and a few assets and markets, so this map stays
  // small.
  const names = new Map<number, string>();
  // Entries of the same block are adjacent, so its time is formatted only once.
  let lastBlock = -1;
  let time = '';

  function name(kind: number, index: number) {
    const key = index * 16 + kind;
    const known = names.get(key);
    if (known !== undefined) return known;
    const text = `${spelling.beforeId}${network.ids.id(kind, index)}`;
    names.set(key, text);
    return text;
  }

  function account({ owner, type, market }: Account) {
    const id =
      market === NO_MARKET ? spelling.noMarket : name(KIND.market, market);
    const ownerId =
      owner === NETWORK ? spelling.network : name(KIND.party, owner);
    return `${id},${ownerId},${spelling.typeOf(type)}`;
  }

  return (movement) => {
    const { block, type, asset, from, to, quantity, fromBalance, toBalance } =
      movement;
    if (block !== lastBlock) {
      lastBlock = block;
      time = timestamptz(network.chain.timeOf(block));
    }
    const what = `TRANSFER_TYPE_${type},${name(KIND.asset, asset)}`;
    if (header === COLUMNS_12) {
      const accounts = `${account(from)},${account(to)}`;
      return `${time},${quantity},${what},${accounts},${fromBalance},${toBalance}\n`;
    }
    const effect =
      (to.owner === party ? quantity : 0n) -
      (from.owner === party ? quantity : 0n);
    const sender = `${account(from)},${fromBalance}`;
    const receiver = `${account(to)},${toBalance}`;
    return `${time},${quantity},${effect},${what},${sender},${receiver}\n`;
  };
}
