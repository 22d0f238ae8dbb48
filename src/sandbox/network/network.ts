/** A whole network from one seed: its chain, parties, checkpoints and ledger, and how far it has come. */
import type { Micros } from '../../core/time.ts';
import type { Settings } from '../options.ts';
import { RELEASES, type Release } from '../release.ts';
import { openChain, type Foundation } from './chain.ts';
import { type Checkpoints, openCheckpoints } from './checkpoints.ts';
import { ASSET_UNITS } from './cycle.ts';
import { type Ledger, openLedger } from './ledger.ts';
import { openParties, type Parties } from './parties.ts';
import { KIND, openIds, seedWord } from './seeded.ts';

/** The newest block, and the instant the network has reached. */
export interface Head {
  readonly block: number;
  readonly time: Micros;
}

export interface Network extends Foundation {
  readonly release: Release;
  readonly parties: Parties;
  readonly checkpoints: Checkpoints;
  readonly ledger: Ledger;
  /** How far the network has come. It never goes back, even where its clock does. */
  head(): Head;
  /** Moves the network ahead of its clock. */
  advance(durationMs: number): void;
  /** The number of an asset, or undefined where there is none of that id. */
  assetOf(id: string): number | undefined;
}

export function openNetwork(settings: Settings): Network {
  const seed = seedWord(settings.seed);
  const ids = openIds(settings.seed);
  const chain = openChain(seed, settings);
  const foundation = { seed, settings, ids, chain };
  const parties = openParties(foundation);
  let [aheadMicros, reached] = [0n, settings.genesis];
  return {
    ...foundation,
    release: RELEASES[settings.release],
    parties,
    checkpoints: openCheckpoints(foundation),
    ledger: openLedger(foundation, parties),
    head() {
      const now = settings.clock() + aheadMicros;
      if (now > reached) reached = now;
      return { block: chain.newestAt(reached), time: reached };
    },
    advance(durationMs) {
      aheadMicros += BigInt(Math.round(durationMs * 1000));
    },
    assetOf(id) {
      const asset = ids.indexOf(KIND.asset, id);
      return asset !== undefined && asset < ASSET_UNITS.length ? asset : undefined;
    },
  };
}
