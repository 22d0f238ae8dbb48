/**
 * Who takes part, and in which order. Parties are numbered as they arrive; several may arrive in one
 * block, and then the list orders them by id, as the service does (vega_time, id).
 */
import type { Micros } from '../../core/time.ts';
import type { Foundation } from './chain.ts';
import { KIND, noise, STREAM } from './seeded.ts';

/** Ties are laid out in runs of this many parties. */
const RUN_PARTIES = 8;

export interface PartyRow {
  /** When the party first appeared. */
  readonly firstSeen: Micros;
  readonly id: string;
  /** The transaction it appeared in. */
  readonly txHash: string;
}

export interface Parties {
  /** The row of a party who has arrived. */
  row(index: number): PartyRow;
  /** @returns the party's number, or undefined where `id` is nobody who arrived by `block` */
  indexOf(id: string, block: number): number | undefined;
  /** The block in which a party appears; never falls with the party's number. */
  arrivalBlock(index: number): number;
  /** How many parties have arrived by `block`. */
  countBy(block: number): number;
  /** Those who arrived in `block`, in list order. */
  arrivedIn(block: number): PartyRow[];
  /**
   * Rows of the list by position, oldest first. Whole blocks only are visible, so positions count from
   * the same beginning for ever.
   */
  rows(fromPosition: number, toPosition: number): Generator<PartyRow>;
}

export function openParties({ seed, settings, ids, chain }: Foundation): Parties {
  const { parties, partiesMax } = settings;
  const historyBlocks = chain.blocksIn(settings.historyMs);

  function row(index: number) {
    const [id, txHash] = [ids.id(KIND.party, index), ids.id(KIND.partyTx, index)];
    return { id, txHash, firstSeen: chain.timeOf(arrivalBlock(index)) };
  }

  function arrivalBlock(index: number) {
    // Runs are laid so that one begins at number `parties`: no tie reaches across the end of the history.
    const shifted = index + RUN_PARTIES - (parties % RUN_PARTIES);
    const within = shifted % RUN_PARTIES;
    const word = noise(seed, STREAM.partyTies, Math.floor(shifted / RUN_PARTIES));
    // In each run, `tied` parties from `leader` on come in one block.
    const leader = word % RUN_PARTIES;
    const tied = 1 + ((word >>> 8) % 4);
    const follows = within > leader && within < leader + tied;
    const place = Math.max(0, index - (follows ? within - leader : 0));
    return 1 + Math.floor((place * historyBlocks) / parties);
  }

  function countBy(block: number) {
    if (block < 1) return 0;
    const guess = Math.min(partiesMax, Math.floor((block * parties) / historyBlocks));
    let arrived = Math.max(0, guess - 1);
    while (arrived < partiesMax && arrivalBlock(arrived) <= block) arrived += 1;
    return arrived;
  }

  function arrivedIn(block: number) {
    const first = countBy(block - 1);
    const rows = Array.from({ length: countBy(block) - first }, (_, nth) => row(first + nth));
    return rows.toSorted((a, b) => (a.id < b.id ? -1 : 1));
  }

  return {
    row,
    arrivalBlock,
    countBy,
    arrivedIn,
    indexOf(id, block) {
      const index = ids.indexOf(KIND.party, id);
      return index !== undefined && index < countBy(block) ? index : undefined;
    },
    *rows(fromPosition, toPosition) {
      let first = countBy(arrivalBlock(fromPosition) - 1);
      while (first < toPosition) {
        const rows = arrivedIn(arrivalBlock(first));
        yield* rows.slice(Math.max(0, fromPosition - first), toPosition - first);
        first += rows.length;
      }
    },
  };
}
