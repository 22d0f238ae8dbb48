/**
 * The ledger: when each pair of twins was active, and from there its movements. Activity is heavy-tailed
 * as in a market: a few pairs make most entries, most make next to none.
 */
import {
  CYCLE_BLOCKS_MAX,
  cycleMovements,
  openingMovements,
  ROWS_PER_CYCLE,
  type Movement,
} from './cycle.ts';
import type { Foundation } from './chain.ts';
import type { Parties } from './parties.ts';
import { fraction, noise, STREAM } from './seeded.ts';

/** Parties arrive all along, so that on the average they are there for half of the history. */
const LATE_ARRIVAL = 2;

/** Blocks, both inclusive. */
export interface BlockRange {
  readonly from: number;
  readonly to: number;
}

interface Pair {
  readonly number: number;
  readonly startBlock: number;
  /** Blocks between two cycles; Infinity where there are none. */
  readonly spacing: number;
  /** Where within `spacing` the first cycle lies: 0 to 1. */
  readonly phase: number;
}

export interface Ledger {
  /** Every movement of the pair that `party` belongs to, both sides, in the order they happened. */
  movementsOfPair(party: number, blocks: BlockRange): Generator<Movement>;
}

export function openLedger({ seed, settings, chain }: Foundation, parties: Parties): Ledger {
  const { entriesMean, entriesMax, partiesMax, whaleEntries, historyMs } = settings;
  const typicalEntries = findTypicalEntries(LATE_ARRIVAL * entriesMean, entriesMax);

  /** Twins begin together, when the later of them arrives; the last of an odd number has none. */
  function pairOf(party: number): Pair | undefined {
    const number = Math.floor(party / 2);
    if (number * 2 + 1 >= partiesMax) return undefined;
    const chance = fraction(noise(seed, STREAM.activity, number));
    const byChance = Math.min(entriesMax, typicalEntries * (1 / chance - 1));
    const entries = number === 0 && whaleEntries > 0 ? whaleEntries : byChance;
    return {
      number,
      startBlock: parties.arrivalBlock(number * 2 + 1),
      spacing: (chain.blocksIn(historyMs) * ROWS_PER_CYCLE) / entries,
      phase: fraction(noise(seed, STREAM.phase, number)),
    };
  }

  return {
    *movementsOfPair(party, blocks) {
      const pair = pairOf(party);
      if (pair === undefined) return;
      const isAsked = ({ block }: { readonly block: number }): boolean =>
        block >= blocks.from && block <= blocks.to;
      if (isAsked({ block: pair.startBlock })) yield* openingMovements(seed, pair.number, pair.startBlock);
      // A cycle ends before the next begins, unless blocks hold several.
      const length = Math.min(CYCLE_BLOCKS_MAX, Math.floor(pair.spacing));
      for (let cycle = firstCycle(pair, blocks.from); ; cycle += 1) {
        const span = { block: cycleBlock(pair, cycle), blocks: length };
        if (span.block > blocks.to) return;
        yield* cycleMovements(seed, pair.number, cycle, span).filter(isAsked);
      }
    },
  };
}

/** The first block of a cycle; Infinity where there are none. */
function cycleBlock({ startBlock, phase, spacing }: Pair, cycle: number): number {
  return startBlock + 1 + Math.floor((cycle + phase) * spacing);
}

/** The first cycle that may have movements in `block` or later. */
function firstCycle({ startBlock, phase, spacing }: Pair, block: number): number {
  return Math.max(0, Math.floor((block - CYCLE_BLOCKS_MAX - startBlock - 1) / spacing - phase) - 1);
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
