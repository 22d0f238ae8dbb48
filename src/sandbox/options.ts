/** What a sandbox network can be told, and what it is where it is told nothing. Naming the releases loads nothing. */
import { readInstant, type Micros } from '../time/time.ts';

/** The releases of the service whose exports the sandbox can serve: see `release.ts`. */
export const RELEASE_NAMES = ['0.71.4', '0.71.6', '0.73'] as const;
export type ReleaseName = (typeof RELEASE_NAMES)[number];

/** Of the list calls of one client, with the tokens that come back each second. */
export type RateLimit = Readonly<Record<'perSecond' | 'burst' | 'banMs', number>>;

export type SandboxOptions = Partial<Settings>;

/** A network is told so many of them as differ; everything else follows. */
export class Settings {
  /** Which release of the service serves the exports. */
  readonly release: ReleaseName = '0.71.4';
  /** Everything follows from it: same seed and same head, same network. */
  readonly seed: string = 'sandbox';
  /** The instant the network began, a whole second. */
  readonly genesis: Micros = readInstant('2023-05-01');
  /** How long after genesis `parties` have arrived. */
  readonly historyMs: number = 7 * 86_400_000;
  readonly blockIntervalMs: number = 1000;
  /** Parties at the end of the history, at most 64 for each of its blocks; they go on arriving at the same rate. */
  readonly parties: number = 1000;
  /** No more parties than these ever arrive. */
  readonly partiesMax: number = 10_000_000;
  /** Entries that a party can export at the end of the history, on the average; most have far fewer. */
  readonly entriesMean: number = 20;
  /** The most that a party makes who was there from the beginning. */
  readonly entriesMax: number = 20_000;
  /** What each of the first two parties exports at the end of the history; 0 leaves it to chance. */
  readonly whaleEntries: number = 0;
  /** At least a block's interval. */
  readonly checkpointIntervalMs: number = 300_000;
  /** How many rows each tied height has, at most 1000; as many heights out of 32 are tied as there are numbers. */
  readonly tieRows: readonly number[] = [2, 3, 4];
  /** Checkpoints older than this vanish by whole days. The service keeps 7 days. */
  readonly checkpointRetentionMs: number = Infinity;
  /** 'none' lifts it. */
  readonly rateLimit: RateLimit | 'none' = { perSecond: 20, burst: 100, banMs: 600_000 };
  readonly host: string = '127.0.0.1';
  /** 0: any free port. */
  readonly port: number = 0;
  /**
   * Says which instant the network has reached; it may move, blocks and all that is in them become visible as it does.
   * By default it stands still where the last block of the history has been made, however late it was, and the next
   * has not; `advance` moves it.
   */
  readonly clock = (): Micros =>
    this.genesis + BigInt(this.historyMs + this.blockIntervalMs) * 1000n - 1n;

  constructor(options: SandboxOptions) {
    Object.assign(this, options);
  }
}
