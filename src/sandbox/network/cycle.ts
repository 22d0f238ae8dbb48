/**
 * What twins do with each other's money. Activity comes in cycles: a trade, a transfer, margin moved to
 * and fro. A cycle begins at balances that follow from the seed and ends by paying in or out what leads
 * to the next cycle's, so any cycle can be computed without those before it, and every balance is exact.
 *
 * The network's accounts are passed through: what enters one leaves it in the same block, so its balance
 * is known however many parties use it. Outside the network there are no balances: that account shows 0.
 */
import { noise, scramble, STREAM } from './seeded.ts';

/** The owner of the network's own accounts, where a party's number stands otherwise. */
export const NETWORK = -1;
/** An account that belongs to no market. */
export const NO_MARKET = -1;

/** Account types by the service's numbers. */
export const ACCOUNT_TYPE = { settlement: 2, margin: 3, general: 4, feesMaker: 7, external: 10 } as const;

export interface Account {
  /** A party's number, or `NETWORK`. */
  owner: number;
  type: number;
  /** A market's number, or `NO_MARKET`. */
  market: number;
}

/** One entry of the ledger. */
export interface Movement {
  block: number;
  type: string;
  asset: number;
  from: Account;
  to: Account;
  quantity: bigint;
  /** The balances after it. */
  fromBalance: bigint;
  toBalance: bigint;
}

/** The scale of each asset's amounts: from what fits a 64-bit integer to more than 30 digits. */
export const ASSET_UNITS = [1_000n, 10n ** 13n, 10n ** 25n] as const;
export const MARKETS = 5;
/** What a party exports of one cycle, on the average: rates are reckoned with it. */
export const ROWS_PER_CYCLE = 2.9;
/** The most blocks that one cycle spreads over. */
export const CYCLE_BLOCKS_MAX = 6;

/** Balances start a cycle at 2^32 units or more, and a cycle moves less than that. */
const LEVEL_UNITS = 2 ** 32;

interface Purse {
  readonly account: Account;
  balance: bigint;
}

/** Where in time a cycle lies: its first block and how many blocks it may use. */
export interface CycleSpan {
  readonly block: number;
  readonly blocks: number;
}

/** The assets take turns. */
function assetOfCycle(cycle: number): number {
  return cycle % ASSET_UNITS.length;
}

/** The money that enters when a pair begins: the first level of each asset, for both. */
export function openingMovements(seed: number, pair: number, block: number): Movement[] {
  return ASSET_UNITS.flatMap((_, asset) => {
    const ledger = new CycleLedger(asset, block);
    for (const party of [pair * 2, pair * 2 + 1]) ledger.settle(general(party), levelOf(seed, party, asset));
    return ledger.movements;
  });
}

/** All movements of one cycle of a pair, in order. */
export function cycleMovements(seed: number, pair: number, cycle: number, span: CycleSpan): Movement[] {
  const asset = assetOfCycle(cycle);
  const first = noise(noise(seed, STREAM.pair, pair), STREAM.pair, cycle);
  const payer = general(pair * 2 + (first & 1));
  const taker = general(pair * 2 + 1 - (first & 1));
  const market = (first >>> 1) % MARKETS;
  for (const purse of [payer, taker]) purse.balance = levelOf(seed, purse.account.owner, cycle);
  const ledger = new CycleLedger(asset, span.block);
  const [amount, afterAmount] = amountOf(asset, first);

  const kind = (first >>> 8) % 20;
  if (kind < 11) trade(ledger, span, market, payer, taker, amount, scramble(afterAmount) % 1000);
  else if (kind < 14) churn(ledger, market, payer, amount);
  else if (kind < 16) settleNothing(ledger, market, payer);
  else ledger.move('TRANSFER_FUNDS_SEND', payer, taker, amount);

  ledger.block = span.block + Math.max(0, span.blocks - 1);
  const next = cycle + ASSET_UNITS.length;
  for (const purse of [payer, taker]) ledger.settle(purse, levelOf(seed, purse.account.owner, next));
  return ledger.movements;
}

/** A trade: both put up margin, the payer pays the maker's fee and a loss, the rest is released. */
function trade(
  ledger: CycleLedger,
  { block, blocks }: CycleSpan,
  market: number,
  payer: Purse,
  taker: Purse,
  margin: bigint,
  lossPermille: number,
): void {
  const [payerMargin, takerMargin] = [marginOf(payer, market), marginOf(taker, market)];
  const fees = openPurse(NETWORK, ACCOUNT_TYPE.feesMaker, market);
  const settlement = openPurse(NETWORK, ACCOUNT_TYPE.settlement, market);
  const fee = margin / 500n;
  const loss = (margin * BigInt(lossPermille)) / 1000n;

  ledger.move('MARGIN_LOW', payer, payerMargin, margin);
  ledger.move('MARGIN_LOW', taker, takerMargin, margin);
  ledger.move('MAKER_FEE_PAY', payer, fees, fee);
  ledger.move('MAKER_FEE_RECEIVE', fees, taker, fee);
  ledger.block = block + Math.floor(blocks / 3);
  ledger.move('MTM_LOSS', payerMargin, settlement, loss);
  ledger.move('MTM_WIN', settlement, takerMargin, loss);
  ledger.block = block + Math.floor((blocks * 2) / 3);
  ledger.move('MARGIN_HIGH', payerMargin, payer, payerMargin.balance);
  ledger.move('MARGIN_HIGH', takerMargin, taker, takerMargin.balance);
}

/** Margin there and back, twice, within one block: rows one and three are the same to the last letter. */
function churn(ledger: CycleLedger, market: number, payer: Purse, amount: bigint): void {
  const margin = marginOf(payer, market);
  for (let round = 0; round < 2; round += 1) {
    ledger.move('MARGIN_LOW', payer, margin, amount);
    ledger.move('MARGIN_HIGH', margin, payer, amount);
  }
}

/** A settlement of nothing, which the service records each time. */
function settleNothing(ledger: CycleLedger, market: number, payer: Purse): void {
  const settlement = openPurse(NETWORK, ACCOUNT_TYPE.settlement, market);
  const margin = marginOf(payer, market);
  for (let time = 0; time < 2; time += 1) ledger.move('MTM_LOSS', margin, settlement, 0n);
}

/** The movements of a cycle as they are made, and the block they are made in. */
class CycleLedger {
  readonly movements: Movement[] = [];
  readonly asset: number;
  block: number;

  constructor(asset: number, block: number) {
    this.asset = asset;
    this.block = block;
  }

  move(type: string, from: Purse, to: Purse, quantity: bigint): void {
    from.balance -= quantity;
    to.balance += quantity;
    const { block, asset } = this;
    const balances = { fromBalance: from.balance, toBalance: to.balance };
    this.movements.push({ block, type, asset, from: from.account, to: to.account, quantity, ...balances });
  }

  /** Pays in or out what is missing to `level`, or too much. */
  settle(purse: Purse, level: bigint): void {
    const missing = level - purse.balance;
    // Its balance after the movement is 0, as it is always.
    const outside = openPurse(NETWORK, ACCOUNT_TYPE.external, NO_MARKET, missing);
    if (missing > 0n) this.move('DEPOSIT', outside, purse, missing);
    else if (missing < 0n) this.move('WITHDRAW', purse, outside, -missing);
  }
}

function openPurse(owner: number, type: number, market: number, balance = 0n): Purse {
  return { account: { owner, type, market }, balance };
}

function general(party: number): Purse {
  return openPurse(party, ACCOUNT_TYPE.general, NO_MARKET);
}

function marginOf({ account }: Purse, market: number): Purse {
  return openPurse(account.owner, ACCOUNT_TYPE.margin, market);
}

/** The balance of a party's general account as a cycle begins; the asset is that of the cycle. */
function levelOf(seed: number, party: number, cycle: number): bigint {
  const word = noise(noise(seed, STREAM.level, party), STREAM.level, cycle);
  return amountOfUnits(assetOfCycle(cycle), LEVEL_UNITS + word, scramble(word));
}

/** An amount of any magnitude, less than a quarter of what a balance has at least, and the last roll it took. */
function amountOf(asset: number, first: number): [amount: bigint, roll: number] {
  const [second, third] = [scramble(first), scramble(scramble(first))];
  const fourth = scramble(third);
  return [amountOfUnits(asset, second >>> (2 + (third % 20)), fourth), fourth];
}

/** So many units of an asset and, by `word`, a part of one with digits everywhere. */
function amountOfUnits(asset: number, units: number, word: number): bigint {
  const unit = ASSET_UNITS[asset] ?? 1n;
  return BigInt(units) * unit + ((BigInt(word) * unit) >> 32n);
}
