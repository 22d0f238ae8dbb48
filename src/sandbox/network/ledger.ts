/**
 * The ledger: when each pair of twins was active, and from there its movements. Activity is heavy-tailed
 * as in a market: a few pairs make most entries, most make next to none.
 */
import {
  assetOfCycle,
  CYCLE_BLOCKS_MAX,
  cycleMovements,
  openingMovements,
  ROWS_PER_CYCLE,
  type Movement,
} from './cycle.ts';
import type { Foundation } from './chain.ts';
import type { Parties } from './parties.ts';
import { fraction, noise, STREAM } from './random.ts';

/** An export is cut into this many pieces, sent in an order that changes from call to call. */
const ORDER_PIECES = 16;
/** Parties arrive all along, so that on the average they are there for half of the history. */
const LATE_ARRIVAL = 2;

/** Blocks, both inclusive. */
export interface BlockRange {
  from: number;
  to: number;
}

interface Pair {
  number: number;
  startBlock: number;
  /** Blocks between two cycles; Infinity where there are none. */
  spacing: number;
  /** Where within `spacing` the first cycle lies: 0 to 1. */
  phase: number;
}

export class Ledger {
  readonly #seed: number;
  readonly #network: Foundation;
  readonly #parties: Parties;
  readonly #typicalEntries: number;

  constructor(network: Foundation, parties: Parties) {
    const { entriesMean, entriesMax } = network.settings;
    this.#seed = network.seed;
    this.#network = network;
    this.#parties = parties;
    this.#typicalEntries = findTypicalEntries(LATE_ARRIVAL * entriesMean, entriesMax);
  }

  /** Every movement of the pair that `party` belongs to, both sides, in the order they happened. */
  *movementsOfPair(party: number, blocks: BlockRange): Generator<Movement> {
    const pair = this.#pairOf(party);
    if (pair === undefined) return;
    if (inRange(pair.startBlock, blocks)) yield* openingMovements(this.#seed, pair.number, pair.startBlock);
    const cycles = cyclesWithin(pair, blocks);
    for (let cycle = cycles.from; cycle < cycles.to; cycle += 1) {
      yield* this.#cycle(pair, cycle, blocks);
    }
  }

  /**
   * The movements out of a party's accounts: what an export of release 0.71.4 holds.
   * @param call rows come in an order that differs from one call to the next, as the service's do
   */
  *outgoing(party: number, blocks: BlockRange, asset: number | undefined, call: number): Generator<Movement> {
    const pair = this.#pairOf(party);
    if (pair === undefined) return;
    const backwards = noise(this.#seed, STREAM.rowOrder, call) % 2 === 1;
    for (const cycle of shuffled(cyclesWithin(pair, blocks), noise(this.#seed, STREAM.rowOrder, call + 1))) {
      if (asset !== undefined && assetOfCycle(cycle) !== asset) continue;
      const movements = this.#cycle(pair, cycle, blocks);
      if (backwards) movements.reverse();
      for (const movement of movements) if (movement.from.owner === party) yield movement;
    }
  }

  #cycle(pair: Pair, cycle: number, blocks: BlockRange): Movement[] {
    const span = {
      block: cycleBlock(pair, cycle),
      blocks: Math.min(CYCLE_BLOCKS_MAX, Math.floor(pair.spacing)),
    };
    const movements = cycleMovements(this.#seed, pair.number, cycle, span);
    const whole = span.block >= blocks.from && span.block + span.blocks <= blocks.to;
    return whole ? movements : movements.filter((movement) => inRange(movement.block, blocks));
  }

  /** Twins begin together, when the later of them arrives; the last of an odd number has none. */
  #pairOf(party: number): Pair | undefined {
    const number = Math.floor(party / 2);
    const { partiesMax, entriesMax, whaleEntries, historyMs } = this.#network.settings;
    if (number * 2 + 1 >= partiesMax) return undefined;
    const chance = fraction(noise(this.#seed, STREAM.activity, number));
    const byChance = Math.min(entriesMax, this.#typicalEntries * (1 / chance - 1));
    const entries = number === 0 && whaleEntries > 0 ? whaleEntries : byChance;
    return {
      number,
      startBlock: this.#parties.arrivalBlock(number * 2 + 1),
      spacing: (this.#network.chain.blocksIn(historyMs) * ROWS_PER_CYCLE) / entries,
      phase: fraction(noise(this.#seed, STREAM.phase, number)),
    };
  }
}

/** The first block of a cycle. A cycle ends before the next begins, unless blocks hold several. */
function cycleBlock(pair: Pair, cycle: number): number {
  return pair.startBlock + 1 + Math.floor((cycle + pair.phase) * pair.spacing);
}

/** The cycles that may have movements in `blocks`; `to` is exclusive. */
function cyclesWithin(pair: Pair, blocks: BlockRange): { from: number; to: number } {
  const guess = (block: number): number =>
    Math.floor((block - pair.startBlock - 1) / pair.spacing - pair.phase);
  const from = Math.max(0, guess(blocks.from - CYCLE_BLOCKS_MAX) - 1);
  // Beyond the next block, because one block can hold many cycles; then back to the last that fits.
  let to = Math.max(from, guess(blocks.to + 1) + 2);
  while (to > from && cycleBlock(pair, to - 1) > blocks.to) to -= 1;
  return { from, to };
}

/** The numbers of a range, piece by piece in an order that `word` decides. */
function* shuffled(range: { from: number; to: number }, word: number): Generator<number> {
  const size = Math.max(1, Math.ceil((range.to - range.from) / ORDER_PIECES));
  // An odd step visits each of a power of two pieces once.
  const step = (word % ORDER_PIECES) | 1;
  for (let nth = 0; nth < ORDER_PIECES; nth += 1) {
    const piece = ((word >>> 8) + nth * step) % ORDER_PIECES;
    const start = range.from + piece * size;
    for (let cycle = start; cycle < Math.min(start + size, range.to); cycle += 1) yield cycle;
  }
}

function inRange(block: number, blocks: BlockRange): boolean {
  return block >= blocks.from && block <= blocks.to;
}

/**
 * The scale `s` of the tail: a share u of all pairs makes s·(1/u − 1) entries or more, capped, and this
 * is the s whose mean is `mean`. Half of all pairs make less than s.
 */
function findTypicalEntries(mean: number, max: number): number {
  let [low, high] = [0, mean];
  for (let round = 0; round < 60; round += 1) {
    const scale = (low + high) / 2;
    if (scale * Math.log((max + scale) / scale) < mean) low = scale;
    else high = scale;
  }
  return (low + high) / 2;
}
