/**
 * Who takes part, and in which order. Parties are numbered as they arrive; several may arrive in one
 * block, and then the list orders them by id, as the service does (vega_time, id).
 */
import type { Micros } from '../../core/time.ts';
import type { Chain } from './chain.ts';
import { KIND, type IdCipher } from './ids.ts';
import { noise, STREAM } from './random.ts';

/** Ties are laid out in runs of this many parties. */
const RUN_PARTIES = 8;
/** Rows are made this many at once, which is much faster than one by one. */
const STRETCH_PARTIES = 1000;

export interface PartyOptions {
  /** Parties that have arrived after `historyBlocks`; the network goes on growing as it began. */
  parties: number;
  /** It stops growing there. */
  partiesMax: number;
  historyBlocks: number;
}

export interface PartyRow {
  /** The block in which the party first appeared, and its time. */
  block: number;
  firstSeen: Micros;
  id: string;
  /** The transaction it appeared in. */
  txHash: string;
}

export class Parties {
  readonly #seed: number;
  readonly #ids: IdCipher;
  readonly #chain: Chain;
  readonly #options: PartyOptions;

  constructor(seed: number, ids: IdCipher, chain: Chain, options: PartyOptions) {
    this.#seed = seed;
    this.#ids = ids;
    this.#chain = chain;
    this.#options = options;
  }

  id(index: number): string {
    return this.#ids.id(KIND.party, index);
  }

  /** The row of a party who has arrived. */
  row(index: number): PartyRow {
    const block = this.arrivalBlock(index);
    const txHash = this.#ids.id(KIND.partyTx, index);
    return { block, id: this.id(index), txHash, firstSeen: this.#chain.timeOf(block) };
  }

  /** @returns the party's number, or undefined where `id` is nobody who arrived by `block` */
  indexOf(id: string, block: number): number | undefined {
    const index = this.#ids.indexOf(KIND.party, id);
    return index !== undefined && index < this.countBy(block) ? index : undefined;
  }

  /** The block in which a party appears; never falls with the party's number. */
  arrivalBlock(index: number): number {
    const { parties, historyBlocks } = this.#options;
    // Runs are laid so that one begins at number `parties`: no tie reaches across the end of the history.
    const shift = RUN_PARTIES - (parties % RUN_PARTIES);
    const run = Math.floor((index + shift) / RUN_PARTIES);
    const within = (index + shift) % RUN_PARTIES;
    const word = noise(this.#seed, STREAM.partyTies, run);
    // In each run, `tied` parties from `leader` on come in one block.
    const leader = word % RUN_PARTIES;
    const tied = 1 + ((word >>> 8) % 4);
    const follows = within > leader && within < leader + tied;
    const place = Math.max(0, index - (follows ? within - leader : 0));
    return 1 + Math.floor((place * historyBlocks) / parties);
  }

  /** How many parties have arrived by `block`. */
  countBy(block: number): number {
    if (block < 1) return 0;
    const { parties, partiesMax, historyBlocks } = this.#options;
    const guess = Math.min(partiesMax, Math.floor((block * parties) / historyBlocks));
    let low = Math.max(0, guess - 2 * RUN_PARTIES);
    let high = guess + 2 * RUN_PARTIES;
    while (low < high) {
      const middle = Math.floor((low + high) / 2);
      if (this.arrivalBlock(middle) <= block) low = middle + 1;
      else high = middle;
    }
    return Math.min(low, partiesMax);
  }

  /** Those who arrived in `block`, in list order. */
  arrivedIn(block: number): PartyRow[] {
    const [first, end] = [this.countBy(block - 1), this.countBy(block)];
    return first === end ? [] : this.#stretch(first, end);
  }

  /**
   * Rows of the list by position, oldest first. Whole blocks only are visible, so positions count from
   * the same beginning for ever.
   */
  *rows(fromPosition: number, toPosition: number): Generator<PartyRow> {
    if (fromPosition >= toPosition) return;
    let start = fromPosition;
    while (start > 0 && this.arrivalBlock(start - 1) === this.arrivalBlock(fromPosition)) start -= 1;
    while (start < toPosition) {
      const rows = this.#stretch(start, Math.min(start + STRETCH_PARTIES, toPosition));
      yield* rows.slice(Math.max(0, fromPosition - start), toPosition - start);
      start += rows.length;
    }
  }

  /** The parties from `first` to before `end`, and with the last of them all others of its block, in list order. */
  #stretch(first: number, end: number): PartyRow[] {
    const blocks: number[] = [];
    for (let index = first; index < this.#options.partiesMax; index += 1) {
      const block = this.arrivalBlock(index);
      if (index >= end && block !== blocks.at(-1)) break;
      blocks.push(block);
    }
    const ids = this.#ids.idsFrom(KIND.party, first, blocks.length);
    const txHashes = this.#ids.idsFrom(KIND.partyTx, first, blocks.length);
    const rows = blocks.map((block, nth) => ({
      block,
      id: ids[nth] ?? '',
      txHash: txHashes[nth] ?? '',
      firstSeen: this.#chain.timeOf(block),
    }));
    return rows.toSorted((a, b) => a.block - b.block || (a.id < b.id ? -1 : 1));
  }
}
