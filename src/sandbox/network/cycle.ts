/**
 * What twins do with each other's money. Activity comes in cycles: a trade, a transfer, margin moved to
 * and fro. A cycle begins at balances that follow from the seed and ends by paying in or out what leads
 * to the next cycle's, so any cycle can be computed without those before it, and every balance is exact.
 *
 * The network's accounts are passed through: what enters one leaves it in the same block, so its balance
 * is known however many parties use it. Outside the network there are no balances: that account shows 0.
 */
import { noise, scramble, STREAM } from './random.ts';

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
  account: Account;
  balance: bigint;
}

/** Where in time a cycle lies: its first block and how many blocks it may use. */
export interface CycleSpan {
  block: number;
  blocks: number;
}

/** The assets take turns. */
export function assetOfCycle(cycle: number): number {
  return cycle % ASSET_UNITS.length;
}

/** The money that enters when a pair begins: the first level of each asset, for both. */
export function openingMovements(seed: number, pair: number, block: number): Movement[] {
  return ASSET_UNITS.flatMap((_, asset) =>
    [pair * 2, pair * 2 + 1].map((party) => {
      const ledger = new CycleLedger(asset, block);
      const general = purse(party, ACCOUNT_TYPE.general, NO_MARKET);
      ledger.settle(general, levelOf(seed, party, asset));
      return ledger.movements;
    }),
  ).flat();
}

/** All movements of one cycle of a pair, in order. */
export function cycleMovements(seed: number, pair: number, cycle: number, span: CycleSpan): Movement[] {
  const asset = assetOfCycle(cycle);
  const first = noise(noise(seed, STREAM.pair, pair), STREAM.pair, cycle);
  const rolls = new Rolls(first);
  const payer = pair * 2 + (first & 1);
  const taker = pair * 2 + 1 - (first & 1);
  const market = (first >>> 1) % MARKETS;
  const payerGeneral = purse(payer, ACCOUNT_TYPE.general, NO_MARKET, levelOf(seed, payer, cycle));
  const takerGeneral = purse(taker, ACCOUNT_TYPE.general, NO_MARKET, levelOf(seed, taker, cycle));
  const ledger = new CycleLedger(asset, span.block);

  const kind = (first >>> 8) % 20;
  if (kind < 11) trade(ledger, rolls, span, market, payerGeneral, takerGeneral);
  else if (kind < 14) churn(ledger, rolls, market, payerGeneral);
  else if (kind < 16) emptySettlement(ledger, payer, market);
  else ledger.move('TRANSFER_FUNDS_SEND', payerGeneral, takerGeneral, rolls.amount(asset));

  ledger.block = span.block + Math.max(0, span.blocks - 1);
  const next = cycle + ASSET_UNITS.length;
  ledger.settle(payerGeneral, levelOf(seed, payer, next));
  ledger.settle(takerGeneral, levelOf(seed, taker, next));
  return ledger.movements;
}

/** A trade: both put up margin, the payer pays the maker's fee and a loss, the rest is released. */
function trade(
  ledger: CycleLedger,
  rolls: Rolls,
  span: CycleSpan,
  market: number,
  payer: Purse,
  taker: Purse,
): void {
  const payerMargin = purse(payer.account.owner, ACCOUNT_TYPE.margin, market);
  const takerMargin = purse(taker.account.owner, ACCOUNT_TYPE.margin, market);
  const fees = purse(NETWORK, ACCOUNT_TYPE.feesMaker, market);
  const settlement = purse(NETWORK, ACCOUNT_TYPE.settlement, market);
  const margin = rolls.amount(ledger.asset);
  const fee = margin / 500n;
  const loss = (margin * BigInt(rolls.next() % 1000)) / 1000n;

  ledger.move('MARGIN_LOW', payer, payerMargin, margin);
  ledger.move('MARGIN_LOW', taker, takerMargin, margin);
  ledger.move('MAKER_FEE_PAY', payer, fees, fee);
  ledger.move('MAKER_FEE_RECEIVE', fees, taker, fee);
  ledger.block = span.block + Math.floor(span.blocks / 3);
  ledger.move('MTM_LOSS', payerMargin, settlement, loss);
  ledger.move('MTM_WIN', settlement, takerMargin, loss);
  ledger.block = span.block + Math.floor((span.blocks * 2) / 3);
  ledger.move('MARGIN_HIGH', payerMargin, payer, payerMargin.balance);
  ledger.move('MARGIN_HIGH', takerMargin, taker, takerMargin.balance);
}

/** Margin there and back, twice, within one block: rows one and three are the same to the last letter. */
function churn(ledger: CycleLedger, rolls: Rolls, market: number, general: Purse): void {
  const margin = purse(general.account.owner, ACCOUNT_TYPE.margin, market);
  const amount = rolls.amount(ledger.asset);
  for (let round = 0; round < 2; round += 1) {
    ledger.move('MARGIN_LOW', general, margin, amount);
    ledger.move('MARGIN_HIGH', margin, general, amount);
  }
}

/** A settlement of nothing, which the service records each time. */
function emptySettlement(ledger: CycleLedger, party: number, market: number): void {
  const margin = purse(party, ACCOUNT_TYPE.margin, market);
  const settlement = purse(NETWORK, ACCOUNT_TYPE.settlement, market);
  ledger.move('MTM_LOSS', margin, settlement, 0n);
  ledger.move('MTM_LOSS', margin, settlement, 0n);
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
    this.#record(type, from, to, quantity);
  }

  /** Pays in or out what is missing to `level`, or too much. */
  settle(general: Purse, level: bigint): void {
    const difference = level - general.balance;
    if (difference === 0n) return;
    general.balance = level;
    const outside = purse(NETWORK, ACCOUNT_TYPE.external, NO_MARKET);
    if (difference > 0n) this.#record('DEPOSIT', outside, general, difference);
    else this.#record('WITHDRAW', general, outside, -difference);
  }

  #record(type: string, from: Purse, to: Purse, quantity: bigint): void {
    this.movements.push({
      block: this.block,
      type,
      asset: this.asset,
      from: from.account,
      to: to.account,
      quantity,
      fromBalance: from.balance,
      toBalance: to.balance,
    });
  }
}

function purse(owner: number, type: number, market: number, balance = 0n): Purse {
  return { account: { owner, type, market }, balance };
}

/** The balance of a party's general account as a cycle begins; the asset is that of the cycle. */
function levelOf(seed: number, party: number, cycle: number): bigint {
  const unit = ASSET_UNITS[assetOfCycle(cycle)] ?? 1n;
  const word = noise(noise(seed, STREAM.level, party), STREAM.level, cycle);
  return BigInt(LEVEL_UNITS + word) * unit + below(unit, scramble(word));
}

/** A sequence of rolls about one cycle. */
class Rolls {
  #word: number;

  constructor(word: number) {
    this.#word = word;
  }

  next(): number {
    this.#word = scramble(this.#word);
    return this.#word;
  }

  /** An amount of any magnitude, less than a quarter of what a balance has at least. */
  amount(asset: number): bigint {
    const unit = ASSET_UNITS[asset] ?? 1n;
    const units = this.next() >>> (2 + (this.next() % 20));
    return BigInt(units) * unit + below(unit, this.next());
  }
}

/** A value below `unit` with digits everywhere. */
function below(unit: bigint, word: number): bigint {
  return (BigInt(word) * unit) >> 32n;
}
