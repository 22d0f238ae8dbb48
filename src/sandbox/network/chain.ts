/**
 * The chain: which block was made when. A block is known by its ordinal, counted from 1 at genesis; only
 * the height that is shown (`firstHeight` + ordinal − 1) can be larger than a JavaScript number holds.
 */
import type { Micros } from '../../core/time.ts';
import type { Settings } from '../options.ts';
import type { IdCipher } from './ids.ts';
import { noise, STREAM } from './random.ts';

/** What parties, checkpoints and ledger are computed from. */
export interface Foundation {
  readonly seed: number;
  readonly settings: Settings;
  readonly ids: IdCipher;
  readonly chain: Chain;
}

export class Chain {
  readonly #seed: number;
  readonly #settings: Settings;
  /** The mean; each block is up to this much late. */
  readonly #intervalMicros: number;

  constructor(seed: number, settings: Settings) {
    this.#seed = seed;
    this.#settings = settings;
    this.#intervalMicros = settings.blockIntervalMs * 1000;
  }

  heightOf(block: number): bigint {
    return this.#settings.firstHeight + BigInt(block - 1);
  }

  /** @returns the block of that height; it may be one that was never made */
  blockOf(height: bigint): number {
    return Number(height - this.#settings.firstHeight) + 1;
  }

  timeOf(block: number): Micros {
    return this.#settings.genesis + BigInt(this.#sinceGenesis(block));
  }

  /** The newest block that was made by `instant`; 0 where there was none. */
  newestAt(instant: Micros): number {
    const sinceGenesis = Number(instant - this.#settings.genesis);
    const candidate = Math.floor(sinceGenesis / this.#intervalMicros);
    if (candidate < 1) return 0;
    return this.#sinceGenesis(candidate) <= sinceGenesis ? candidate : candidate - 1;
  }

  /** The first block that was made at `instant` or later. */
  firstFrom(instant: Micros): number {
    return this.newestAt(instant - 1n) + 1;
  }

  /** Blocks per duration, for rates. */
  blocksIn(durationMs: number): number {
    return Math.max(1, Math.floor((durationMs * 1000) / this.#intervalMicros));
  }

  /** Exact: a network of 200 years still lies below 2^53 µs. The delay keeps the blocks' order. */
  #sinceGenesis(block: number): number {
    const word = noise(this.#seed, STREAM.blockTime, block);
    // One block in eight is on time, so that times with and without a fraction occur.
    return block * this.#intervalMicros + (word % 8 === 0 ? 0 : word % this.#intervalMicros);
  }
}
