/** A whole network from one seed: its chain, parties, checkpoints and ledger, and how far it has come. */
import type { Micros } from '../../core/time.ts';
import type { Settings } from '../options.ts';
import { RELEASES, type Release } from '../release.ts';
import { Chain, type Foundation } from './chain.ts';
import { type Checkpoints, openCheckpoints } from './checkpoints.ts';
import { ASSET_UNITS } from './cycle.ts';
import { IdCipher, KIND } from './ids.ts';
import { type Ledger, openLedger } from './ledger.ts';
import { Parties } from './parties.ts';
import { seedWord } from './random.ts';

/** The newest block, and the instant the network has reached. */
export interface Head {
  readonly block: number;
  readonly time: Micros;
}

export class Network implements Foundation {
  readonly seed: number;
  readonly settings: Settings;
  readonly release: Release;
  readonly ids: IdCipher;
  readonly chain: Chain;
  readonly parties: Parties;
  readonly checkpoints: Checkpoints;
  readonly ledger: Ledger;
  #aheadMicros = 0n;
  #reached: Micros;

  constructor(settings: Settings) {
    this.seed = seedWord(settings.seed);
    this.settings = settings;
    this.release = RELEASES[settings.release];
    this.ids = new IdCipher(settings.seed);
    this.chain = new Chain(this.seed, settings);
    this.parties = new Parties(this);
    this.checkpoints = openCheckpoints(this);
    this.ledger = openLedger(this, this.parties);
    this.#reached = settings.genesis;
  }

  /** How far the network has come. It never goes back, even where its clock does. */
  head(): Head {
    const now = this.settings.clock() + this.#aheadMicros;
    if (now > this.#reached) this.#reached = now;
    return { block: this.chain.newestAt(this.#reached), time: this.#reached };
  }

  /** Moves the network ahead of its clock. */
  advance(durationMs: number): void {
    this.#aheadMicros += BigInt(Math.round(durationMs * 1000));
  }

  /** The number of an asset, or undefined where there is none of that id. */
  assetOf(id: string): number | undefined {
    const asset = this.ids.indexOf(KIND.asset, id);
    return asset !== undefined && asset < ASSET_UNITS.length ? asset : undefined;
  }
}
