/** Which entries each release's query finds for a question, and in which order it sends them. */
import type { Micros } from '../../core/time.ts';
import type { Chain } from '../network/chain.ts';
import type { Movement } from '../network/cycle.ts';
import type { BlockRange, Ledger } from '../network/ledger.ts';
import { noise, STREAM } from '../network/random.ts';

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

export type Selection = (ledger: Ledger, chain: Chain, asked: Selected) => Iterable<Movement>;

/**
 * Up to 65 ms behind its block an entry's own time lies: entries are numbered through the block, one a
 * microsecond, and other parties' come before.
 */
const ENTRY_OFFSET_MICROS_MAX = 65_536;

/** 0.71.1 to 0.71.5: what leaves the party, filtered rightly, in an order that changes from call to call. */
export function outgoingUnordered(ledger: Ledger, chain: Chain, asked: Selected): Iterable<Movement> {
  const blocks = blocksWithin(chain, asked.headBlock, asked.from, asked.to);
  return ledger.outgoing(asked.party, blocks, asked.asset, asked.call);
}

/**
 * 0.71.6 and 0.72: `to = P or from = P and asset = A and time ...`, without brackets. What comes in comes
 * whatever was asked; and the end is compared with the start, so that with both nothing goes out.
 * Ordered by block time alone.
 */
export function* wrongFilters(ledger: Ledger, chain: Chain, asked: Selected): Generator<Movement> {
  const { party, asset, from, to, headBlock } = asked;
  const firstBlock = from === undefined ? 1 : chain.firstFrom(from);
  const isAsked = (movement: Movement): boolean =>
    to === undefined && movement.block >= firstBlock && (asset === undefined || movement.asset === asset);
  const all = ledger.movementsOfPair(party, { from: 1, to: headBlock });
  const isBackwards = noise(party, STREAM.rowOrder, asked.call) % 2 === 1;
  for (const block of byBlock(all)) {
    const found = block.filter(
      (movement) => movement.to.owner === party || (movement.from.owner === party && isAsked(movement)),
    );
    yield* isBackwards ? found.toReversed() : found;
  }
}

/** 0.73: right, but bounds and order are by the entry's own time, which is not exported. */
export function* rightFilters(ledger: Ledger, chain: Chain, asked: Selected): Generator<Movement> {
  const { party, asset, from, to, headBlock } = asked;
  const earliest = from === undefined ? undefined : from - BigInt(ENTRY_OFFSET_MICROS_MAX);
  const blocks = blocksWithin(chain, headBlock, earliest, to);
  for (const block of byBlock(ledger.movementsOfPair(party, blocks))) {
    for (const [index, movement] of block.entries()) {
      if (movement.from.owner !== party && movement.to.owner !== party) continue;
      if (asset !== undefined && movement.asset !== asset) continue;
      const time = entryTime(chain, movement.block, index);
      if ((from === undefined || time >= from) && (to === undefined || time < to)) yield movement;
    }
  }
}

function entryTime(chain: Chain, block: number, index: number): Micros {
  const offset = noise(0, STREAM.entryOffset, block) % ENTRY_OFFSET_MICROS_MAX;
  return chain.timeOf(block) + BigInt(offset + index);
}

/** The movements of each block together; the ledger yields them block after block. */
function* byBlock(movements: Iterable<Movement>): Generator<Movement[]> {
  let block: Movement[] = [];
  for (const movement of movements) {
    if (block.length > 0 && block[0]?.block !== movement.block) {
      yield block;
      block = [];
    }
    block.push(movement);
  }
  if (block.length > 0) yield block;
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
