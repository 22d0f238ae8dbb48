/**
 * The options of a sandbox network, with their defaults. This file imports nothing heavy,
 * so that commands can list the releases cheaply.
 */
import { readInstant, type Micros } from '../time/time.ts';

/** The releases of the service whose exports the sandbox can serve; see `release.ts`. */
export const RELEASE_NAMES = ['0.71.4', '0.71.6', '0.73'] as const;
export type ReleaseName = (typeof RELEASE_NAMES)[number];

/**
 * The rate limit on one client's list calls: tokens regained per second, the maximum
 * number of tokens, and the length of the ban.
 */
export type RateLimit = Readonly<
  Record<'perSecond' | 'burst' | 'banMs', number>
>;

export type SandboxOptions = Partial<Settings>;

/** The settings of one network. Options that are not given have the defaults below. */
export class Settings {
  /** The release of the service that serves the exports. */
  readonly release: ReleaseName = '0.71.4';
  /**
   * The string that the network is generated from. The same seed and head always give the
   * same network.
   */
  readonly seed: string = 'sandbox';
  /** When the network began; a whole second. */
  readonly genesis: Micros = readInstant('2023-05-01');
  /** How long after genesis it takes for `parties` parties to arrive. */
  readonly historyMs: number = 7 * 86_400_000;
  readonly blockIntervalMs: number = 1000;
  /**
   * The number of parties at the end of the history, at most 64 for each of its blocks.
   * Later, new parties keep arriving at the rate of the history.
   */
  readonly parties: number = 1000;
  /** Maximum number of parties that ever arrive. */
  readonly partiesMax: number = 10_000_000;
  /**
   * The mean number of entries that a party can export at the end of the history; most
   * parties have far fewer.
   */
  readonly entriesMean: number = 20;
  /** Maximum number of entries of a party that was present from the beginning. */
  readonly entriesMax: number = 20_000;
  /**
   * How many entries each of the first two parties has at the end of the history; 0
   * leaves it to chance.
   */
  readonly whaleEntries: number = 0;
  /**
   * Time between two checkpoints, in milliseconds. Must be at least the block interval.
   */
  readonly checkpointIntervalMs: number = 300_000;
  /**
   * How many rows each tied height has, at most 1000. Of every 32 heights, one is tied
   * for each number in this list.
   */
  readonly tieRows: readonly number[] = [2, 3, 4];
  /**
   * Checkpoints older than this disappear, a whole day at a time. The service keeps 7
   * days.
   */
  readonly checkpointRetentionMs: number = Infinity;
  /** The rate limit on list calls; 'none' disables it. */
  readonly rateLimit: RateLimit | 'none' = {
    perSecond: 20,
    burst: 100,
    banMs: 600_000,
  };
  readonly host: string = '127.0.0.1';
  /** The port to listen on; 0 means any free port. */
  readonly port: number = 0;
  /**
   * Returns the network's current time. As it advances, blocks and their contents become
   * visible. By default it stays just before the first block after the history, and
   * `advance` moves it.
   */
  readonly clock = (): Micros =>
    this.genesis + BigInt(this.historyMs + this.blockIntervalMs) * 1000n - 1n;

  constructor(options: SandboxOptions) {
    Object.assign(this, options);
  }
}
