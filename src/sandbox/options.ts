/** What a sandbox network can be told, and what it is where it is told nothing. */
import { UsageError } from '../core/errors.ts';
import { DAY_MICROS, parseInstant, type Micros } from '../core/time.ts';
import { TIE_ROWS_MAX } from './network/checkpoints.ts';
import type { RateLimit } from './http/rate-limit.ts';
import { RELEASE_NAMES, type ReleaseName } from './release-names.ts';

export interface SandboxOptions {
  /** Which release of the service serves the exports: see `release.ts` and `selection.ts`. */
  release?: ReleaseName;
  /**
   * What an end without a start does to a release that it kills. 'connection': that answer alone breaks off;
   * 'crash': the whole sandbox stops answering, as the node does.
   */
  onFatalQuestion?: 'connection' | 'crash';
  /** Everything follows from it: same seed and same head, same network. */
  seed?: string;
  /** The instant the network began; a whole second. */
  genesis?: Micros;
  /** How long after genesis `parties` have arrived. */
  historyMs?: number;
  /**
   * Says which instant the network has reached; it may move, blocks and all that is in them become
   * visible as it does. Left out, it stands still at the end of the history, and `advance` moves it.
   */
  clock?: () => Micros;
  blockIntervalMs?: number;
  /** Height of the first block; beyond 2^53 for tests of large heights. */
  firstHeight?: bigint;
  /** Parties at the end of the history; they go on arriving at the same rate. */
  parties?: number;
  /** No more parties than these ever arrive. */
  partiesMax?: number;
  /** Entries that a party can export at the end of the history, on the average; most have far fewer. */
  entriesMean?: number;
  /** The most that a party makes who was there from the beginning. */
  entriesMax?: number;
  /** What each of the first two parties exports at the end of the history; 0 leaves it to chance. */
  whaleEntries?: number;
  checkpointIntervalMs?: number;
  /** How many rows each tied height has; as many heights out of 32 are tied as there are numbers. */
  tieRows?: readonly number[];
  /** Checkpoints older than this vanish by whole days; left out, none do. The service keeps 7 days. */
  checkpointRetentionMs?: number;
  /** Time zone of the node and its database, in minutes east of UTC. */
  zoneMinutes?: number;
  /** How long every answer takes to begin. */
  latencyMs?: number;
  /** Of the list calls of one client; 'none' lifts it. */
  rateLimit?: RateLimit | 'none';
  /** What an export sends: raw CSV as the service does, or the messages its interface document describes. */
  form?: 'csv' | 'messages';
  /** Release 0.71 refuses exports without an asset, though its documents call it optional. */
  assetRequired?: boolean;
  host?: string;
  /** 0: any free port. */
  port?: number;
}

export type Settings = Required<Omit<SandboxOptions, 'clock' | 'checkpointRetentionMs'>> & {
  clock: () => Micros;
  checkpointRetentionMs: number | undefined;
};

const DEFAULT_GENESIS = parseInstant('2023-05-01') ?? 0n;
const WEEK_MS = 7 * 86_400_000;
/** So that the list can be put in order block by block. */
const ARRIVALS_PER_BLOCK_MAX = 64;

/**
 * The settings of a sandbox.
 * @throws UsageError naming every option that cannot be
 */
export function sandboxSettings(options: SandboxOptions): Settings {
  const genesis = options.genesis ?? DEFAULT_GENESIS;
  const historyMs = options.historyMs ?? WEEK_MS;
  const blockIntervalMs = options.blockIntervalMs ?? 1000;
  // The last block of the history has been made by then, however late it was, and the next has not.
  const endOfHistory = (): Micros => genesis + BigInt(historyMs + blockIntervalMs) * 1000n - 1n;
  const parties = options.parties ?? 1000;
  const settings: Settings = {
    release: '0.71.4',
    onFatalQuestion: 'connection',
    seed: 'sandbox',
    firstHeight: 1n,
    partiesMax: Math.max(parties, 10_000_000),
    entriesMean: 20,
    entriesMax: 20_000,
    whaleEntries: 0,
    checkpointIntervalMs: 300_000,
    tieRows: [2, 3, 4],
    zoneMinutes: 0,
    latencyMs: 0,
    rateLimit: { perSecond: 20, burst: 100, banMs: 600_000 },
    form: 'csv',
    assetRequired: false,
    host: '127.0.0.1',
    port: 0,
    ...options,
    genesis,
    historyMs,
    blockIntervalMs,
    parties,
    clock: options.clock ?? endOfHistory,
    checkpointRetentionMs: options.checkpointRetentionMs,
  };
  const problems = [...problemsOf(settings)];
  if (problems.length > 0) throw new UsageError(problems);
  return settings;
}

function* problemsOf(settings: Settings): Generator<string> {
  const least = {
    parties: 1,
    partiesMax: settings.parties,
    historyMs: 1000,
    blockIntervalMs: 1,
    checkpointIntervalMs: settings.blockIntervalMs,
    entriesMean: 0,
    entriesMax: 1,
    whaleEntries: 0,
    latencyMs: 0,
  };
  for (const name of Object.keys(least).filter((key): key is keyof typeof least => key in least)) {
    if (Number.isSafeInteger(settings[name]) && settings[name] >= least[name]) continue;
    yield `${name}: ${settings[name]} given, a whole number of at least ${least[name]} accepted`;
  }
  if (
    settings.genesis % 1_000_000n !== 0n ||
    settings.genesis < 0n ||
    settings.genesis > 100_000n * DAY_MICROS
  ) {
    yield `genesis: ${settings.genesis} µs given, a whole second between 1970 and 2243 accepted`;
  }
  if (settings.parties > (settings.historyMs / settings.blockIntervalMs) * ARRIVALS_PER_BLOCK_MAX) {
    yield `parties: ${settings.parties} given, at most ${ARRIVALS_PER_BLOCK_MAX} for each block of the history accepted`;
  }
  if (!RELEASE_NAMES.includes(settings.release)) {
    yield `release: ${settings.release} given, one of ${RELEASE_NAMES.join(', ')} accepted`;
  }
  const ties = settings.tieRows;
  if (ties.length > 32 || ties.some((rows) => !Number.isInteger(rows) || rows < 1 || rows > TIE_ROWS_MAX)) {
    yield `tieRows: ${ties.join(', ')} given, up to 32 numbers from 1 to ${TIE_ROWS_MAX} accepted`;
  }
}
