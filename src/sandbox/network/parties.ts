/**
 * Who takes part, and in which order. Parties are numbered as they arrive; several may arrive in one
 * block, and then the list orders them by id, as the service does (vega_time, id).
 */
import type { Micros } from '../../core/time.ts';
import type { Foundation } from './chain.ts';
import { KIND } from './ids.ts';
import { noise, STREAM } from './random.ts';

/** Ties are laid out in runs of this many parties. */
const RUN_PARTIES = 8;

export interface PartyRow {
  /** The block in which the party first appeared, and its time. */
  readonly block: number;
  readonly firstSeen: Micros;
  readonly id: string;
  /** The transaction it appeared in. */
  readonly txHash: string;
}

export class Parties {
  readonly #network: Foundation;
  readonly #historyBlocks: number;

  constructor(network: Foundation) {
    this.#network = network;
    this.#historyBlocks = network.chain.blocksIn(network.settings.historyMs);
  }

  /** The row of a party who has arrived. */
  row(index: number): PartyRow {
    const { ids, chain } = this.#network;
    const block = this.arrivalBlock(index);
    const [id, txHash] = [ids.id(KIND.party, index), ids.id(KIND.partyTx, index)];
    return { block, id, txHash, firstSeen: chain.timeOf(block) };
  }

  /** @returns the party's number, or undefined where `id` is nobody who arrived by `block` */
  indexOf(id: string, block: number): number | undefined {
    const index = this.#network.ids.indexOf(KIND.party, id);
    return index !== undefined && index < this.countBy(block) ? index : undefined;
  }

  /** The block in which a party appears; never falls with the party's number. */
  arrivalBlock(index: number): number {
    const { parties } = this.#network.settings;
    // Runs are laid so that one begins at number `parties`: no tie reaches across the end of the history.
    const shifted = index + RUN_PARTIES - (parties % RUN_PARTIES);
    const within = shifted % RUN_PARTIES;
    const word = noise(this.#network.seed, STREAM.partyTies, Math.floor(shifted / RUN_PARTIES));
    // In each run, `tied` parties from `leader` on come in one block.
    const leader = word % RUN_PARTIES;
    const tied = 1 + ((word >>> 8) % 4);
    const follows = within > leader && within < leader + tied;
    const place = Math.max(0, index - (follows ? within - leader : 0));
    return 1 + Math.floor((place * this.#historyBlocks) / parties);
  }

  /** How many parties have arrived by `block`. */
  countBy(block: number): number {
    if (block < 1) return 0;
    const { parties, partiesMax } = this.#network.settings;
    const guess = Math.min(partiesMax, Math.floor((block * parties) / this.#historyBlocks));
    let arrived = Math.max(0, guess - 1);
    while (arrived < partiesMax && this.arrivalBlock(arrived) <= block) arrived += 1;
    return arrived;
  }

  /** Those who arrived in `block`, in list order. */
  arrivedIn(block: number): PartyRow[] {
    const first = this.countBy(block - 1);
    const rows = Array.from({ length: this.countBy(block) - first }, (_, nth) => this.row(first + nth));
    return rows.toSorted((a, b) => (a.id < b.id ? -1 : 1));
  }

  /**
   * Rows of the list by position, oldest first. Whole blocks only are visible, so positions count from
   * the same beginning for ever.
   */
  *rows(fromPosition: number, toPosition: number): Generator<PartyRow> {
    let first = this.countBy(this.arrivalBlock(fromPosition) - 1);
    while (first < toPosition) {
      const rows = this.arrivedIn(this.arrivalBlock(first));
      yield* rows.slice(Math.max(0, fromPosition - first), toPosition - first);
      first += rows.length;
    }
  }
}
