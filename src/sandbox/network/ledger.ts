/**
 * The ledger: when each pair of twins is active, and how the two move money between them.
 * Activity is heavy-tailed, as in a market, and consists of cycles: a trade, a transfer,
 * or margin that moves back and forth. A cycle begins with balances derived from the
 * seed, and ends with a deposit or withdrawal that sets the balances for the next cycle.
 * Any cycle can therefore be computed without the earlier ones, and every balance is
 * exact.
 *
 * Money that enters a network account leaves it in the same block, so the account's
 * balance is known no matter how many parties use it. The account outside the network has
 * no balance and shows 0.
 */
import type { Settings } from '../options.ts';
import { fraction, noise, scramble, STREAM } from './seeded.ts';

/** The owner of the network's own accounts, in place of a party's number. */
export const NETWORK = -1;
/** An account that belongs to no market. */
export const NO_MARKET = -1;
/** Account types, with the service's numbers for them. */
export const ACCOUNT_TYPE = {
  SETTLEMENT: 2,
  MARGIN: 3,
  GENERAL: 4,
  FEES_MAKER: 7,
  EXTERNAL: 10,
} as const;

export interface Account {
  /** A party's number, or `NETWORK`. */
  readonly owner: number;
  readonly type: keyof typeof ACCOUNT_TYPE;
  /** A market's number, or `NO_MARKET`. */
  readonly market: number;
}

/** One entry of the ledger. */
export interface Movement {
  readonly block: number;
  readonly type: string;
  readonly asset: number;
  readonly from: Account;
  readonly to: Account;
  readonly quantity: bigint;
  /** The balances after the movement. */
  readonly fromBalance: bigint;
  readonly toBalance: bigint;
}

/** A range of blocks; both ends are inclusive. */
export type BlockRange = Readonly<Record<'from' | 'to', number>>;

/** The scale of each asset's amounts, from 64-bit integers to more than 30 digits. */
export const ASSET_UNITS = [1_000n, 10n ** 13n, 10n ** 25n] as const;
const MARKETS = 5;
/** Average number of rows that a party exports per cycle; rates are computed from it. */
const ROWS_PER_CYCLE = 2.9;
/** Maximum number of blocks that a cycle is spread over. */
const CYCLE_BLOCKS_MAX = 6;
/**
 * Parties arrive throughout the history, so the average party is present for half of it.
 */
const LATE_ARRIVAL = 2;
/**
 * Balances at the start of a cycle are at least 2^32 units, and a cycle moves less than
 * that.
 */
const LEVEL_UNITS = 2 ** 32;

/**
 * Opens the ledger.
 * @param historyBlocks the number of blocks in the history, over which the entries that
 *   the settings specify are spread
 * @returns a function that yields all movements of a party's pair, in both directions and
 *   in order
 */
export function openLedger(
  seed: number,
  { entriesMean, entriesMax, partiesMax, whaleEntries }: Settings,
  historyBlocks: number,
  arrivalBlock: (party: number) => number,
): (party: number, blocks: BlockRange) => Generator<Movement> {
  const typicalEntries = findTypicalEntries(
    LATE_ARRIVAL * entriesMean,
    entriesMax,
  );
  return function* movementsOfPair(party, { from, to }) {
    // Twins start together when the later one arrives. If the number of parties is odd,
    // the last one has no twin.
    const pair = Math.floor(party / 2);
    if (pair * 2 + 1 >= partiesMax) return;
    const startBlock = arrivalBlock(pair * 2 + 1);
    const chance = fraction(noise(seed, STREAM.activity, pair));
    const byChance = Math.min(entriesMax, typicalEntries * (1 / chance - 1));
    const entries = pair === 0 && whaleEntries > 0 ? whaleEntries : byChance;
    // The number of blocks between two cycles; Infinity if there are no cycles.
    const spacing = (historyBlocks * ROWS_PER_CYCLE) / entries;
    // The position of the first cycle within `spacing`, from 0 to 1.
    const phase = fraction(noise(seed, STREAM.phase, pair));
    const isInRange = ({ block }: Movement): boolean =>
      block >= from && block <= to;

    yield* openingMovements(seed, pair, startBlock).filter(isInRange);
    // A cycle ends before the next one begins, unless there are several per block.
    const blocks = Math.min(CYCLE_BLOCKS_MAX, Math.floor(spacing));
    const earliest =
      Math.floor((from - CYCLE_BLOCKS_MAX - startBlock - 1) / spacing - phase) -
      1;
    for (let cycle = Math.max(0, earliest); ; cycle += 1) {
      const block = startBlock + 1 + Math.floor((cycle + phase) * spacing);
      if (block > to) return;
      yield* cycleMovements(seed, pair, cycle, { block, blocks }).filter(
        isInRange,
      );
    }
  };
}

/**
 * Computes the scale `s` of the tail for the mean `mean`. A fraction u of all pairs has
 * at least s·(1/u − 1) entries, up to the maximum; half of all pairs have fewer than s.
 */
function findTypicalEntries(mean: number, max: number): number {
  let low = 0;
  let high = mean;
  for (let round = 0; round < 60; round += 1) {
    const scale = (low + high) / 2;
    if (scale * Math.log((max + scale) / scale) < mean) low = scale;
    else high = scale;
  }
  return (low + high) / 2;
}

/**
 * Returns a pair's opening deposits, which set the starting balance of each asset for
 * both parties.
 */
function openingMovements(
  seed: number,
  pair: number,
  block: number,
): Movement[] {
  return ASSET_UNITS.flatMap((_, asset) => {
    const { movements, settle } = openCycle(asset, block);
    for (const party of [pair * 2, pair * 2 + 1]) {
      settle(
        openPurse(party, 'GENERAL', NO_MARKET),
        levelOf(seed, party, asset),
      );
    }
    return movements;
  });
}

/**
 * Returns all movements of one cycle of a pair, in order.
 * @param span the cycle's first block, and how many blocks it may use
 */
function cycleMovements(
  seed: number,
  pair: number,
  cycle: number,
  span: Record<'block' | 'blocks', number>,
) {
  const asset = assetOfCycle(cycle);
  const ledger = openCycle(asset, span.block);
  const { move, settle } = ledger;
  const first = noise(noise(seed, STREAM.pair, pair), STREAM.pair, cycle);
  const market = (first >>> 1) % MARKETS;
  const general = (party: number) =>
    openPurse(party, 'GENERAL', NO_MARKET, levelOf(seed, party, cycle));
  const payer = general(pair * 2 + (first & 1));
  const taker = general(pair * 2 + 1 - (first & 1));
  const marginOf = ({ account }: Purse) =>
    openPurse(account.owner, 'MARGIN', market);
  const payerMargin = marginOf(payer);
  const takerMargin = marginOf(taker);
  const settlement = openPurse(NETWORK, 'SETTLEMENT', market);
  const fees = openPurse(NETWORK, 'FEES_MAKER', market);
  // The amount can be of any magnitude below a quarter of the smallest balance.
  const third = scramble(scramble(first));
  const fourth = scramble(third);
  const amount = amountOfUnits(
    asset,
    scramble(first) >>> (2 + (third % 20)),
    fourth,
  );

  /**
   * Both parties put up margin, the payer pays the maker's fee and a loss, and the rest
   * of the margin is released.
   */
  function trade() {
    const fee = amount / 500n;
    const loss = (amount * BigInt(scramble(fourth) % 1000)) / 1000n;
    move('MARGIN_LOW', payer, payerMargin, amount);
    move('MARGIN_LOW', taker, takerMargin, amount);
    move('MAKER_FEE_PAY', payer, fees, fee);
    move('MAKER_FEE_RECEIVE', fees, taker, fee);
    ledger.block = span.block + Math.floor(span.blocks / 3);
    move('MTM_LOSS', payerMargin, settlement, loss);
    move('MTM_WIN', settlement, takerMargin, loss);
    ledger.block = span.block + Math.floor((span.blocks * 2) / 3);
    move('MARGIN_HIGH', payerMargin, payer, payerMargin.balance);
    move('MARGIN_HIGH', takerMargin, taker, takerMargin.balance);
  }

  /**
   * Moves margin back and forth twice within one block, so that the first and third rows
   * are identical.
   */
  function churn() {
    for (let round = 0; round < 2; round += 1) {
      move('MARGIN_LOW', payer, payerMargin, amount);
      move('MARGIN_HIGH', payerMargin, payer, amount);
    }
  }

  /** Adds zero-amount settlements, which the service records like any others. */
  function settleNothing() {
    for (let time = 0; time < 2; time += 1)
      move('MTM_LOSS', payerMargin, settlement, 0n);
  }

  const kind = (first >>> 8) % 20;
  if (kind < 11) trade();
  else if (kind < 14) churn();
  else if (kind < 16) settleNothing();
  else move('TRANSFER_FUNDS_SEND', payer, taker, amount);

  ledger.block = span.block + Math.max(0, span.blocks - 1);
  const next = cycle + ASSET_UNITS.length;
  for (const purse of [payer, taker])
    settle(purse, levelOf(seed, purse.account.owner, next));
  return ledger.movements;
}

/**
 * Creates and collects the movements of a cycle. `block` is the block of the next
 * movement.
 */
function openCycle(asset: number, firstBlock: number) {
  const movements: Movement[] = [];
  const ledger = { block: firstBlock, movements, move, settle };

  function move(type: string, from: Purse, to: Purse, quantity: bigint) {
    from.balance -= quantity;
    to.balance += quantity;
    const fromBalance = from.balance;
    const toBalance = to.balance;
    const accounts = { from: from.account, to: to.account };
    movements.push({
      block: ledger.block,
      type,
      asset,
      ...accounts,
      quantity,
      fromBalance,
      toBalance,
    });
  }

  /** Adds a deposit or withdrawal that brings the balance to `level`. */
  function settle(purse: Purse, level: bigint) {
    const missing = level - purse.balance;
    // The outside account's balance is always 0 after a movement.
    const outside = openPurse(NETWORK, 'EXTERNAL', NO_MARKET, missing);
    if (missing > 0n) move('DEPOSIT', outside, purse, missing);
    else if (missing < 0n) move('WITHDRAW', purse, outside, -missing);
  }

  return ledger;
}

/** An account while a cycle moves money into and out of it. */
interface Purse {
  readonly account: Account;
  balance: bigint;
}

function openPurse(
  owner: number,
  type: Account['type'],
  market: number,
  balance = 0n,
): Purse {
  return { account: { owner, type, market }, balance };
}

/** Returns the asset of a cycle; the assets take turns. */
function assetOfCycle(cycle: number): number {
  return cycle % ASSET_UNITS.length;
}

/**
 * Returns the balance of a party's general account at the start of a cycle, in the
 * cycle's asset.
 */
function levelOf(seed: number, party: number, cycle: number): bigint {
  const word = noise(noise(seed, STREAM.level, party), STREAM.level, cycle);
  return amountOfUnits(assetOfCycle(cycle), LEVEL_UNITS + word, scramble(word));
}

/**
 * Returns an amount of `units` units of an asset, plus a fraction of one unit determined
 * by `word`.
 */
function amountOfUnits(asset: number, units: number, word: number): bigint {
  const unit = ASSET_UNITS[asset] ?? 1n;
  return BigInt(units) * unit + ((BigInt(word) * unit) >> 32n);
}
