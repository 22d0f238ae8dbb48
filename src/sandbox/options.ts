/** What a sandbox network can be told, and what it is where it is told nothing. */
import { z } from 'zod';
import { UsageError } from '../core/errors.ts';
import { DAY_MICROS, readInstant, SECOND_MICROS, type Micros } from '../core/time.ts';
import { RELEASE_NAMES } from './release-names.ts';

/** More rows of one height than any page the tests ask for. */
export const TIE_ROWS_MAX = 1000;
const WEEK_MS = 7 * 86_400_000;
const PARTIES_MAX = 10_000_000;
/** So that the list can be put in order block by block. */
const ARRIVALS_PER_BLOCK_MAX = 64;

const count = z.int().min(0);

const schema = z
  .object({
    /** Which release of the service serves the exports: see `release.ts`. */
    release: z.enum(RELEASE_NAMES).default('0.71.4'),
    /** Everything follows from it: same seed and same head, same network. */
    seed: z.string().default('sandbox'),
    /** The instant the network began. */
    genesis: z
      .bigint()
      .min(0n)
      .max(100_000n * DAY_MICROS)
      .multipleOf(SECOND_MICROS)
      .default(readInstant('2023-05-01')),
    /** How long after genesis `parties` have arrived. */
    historyMs: z.int().min(1000).default(WEEK_MS),
    /**
     * Says which instant the network has reached; it may move, blocks and all that is in them become
     * visible as it does. Left out, it stands still at the end of the history, and `advance` moves it.
     */
    clock: z.custom<() => Micros>().optional(),
    blockIntervalMs: z.int().min(1).default(1000),
    /** Height of the first block; beyond 2^53 for tests of large heights. */
    firstHeight: z.bigint().default(1n),
    /** Parties at the end of the history; they go on arriving at the same rate. */
    parties: z.int().min(1).default(1000),
    /** No more parties than these ever arrive. */
    partiesMax: count.optional(),
    /** Entries that a party can export at the end of the history, on the average; most have far fewer. */
    entriesMean: count.default(20),
    /** The most that a party makes who was there from the beginning. */
    entriesMax: z.int().min(1).default(20_000),
    /** What each of the first two parties exports at the end of the history; 0 leaves it to chance. */
    whaleEntries: count.default(0),
    checkpointIntervalMs: z.int().min(1).default(300_000),
    /** How many rows each tied height has; as many heights out of 32 are tied as there are numbers. */
    tieRows: z.array(z.int().min(1).max(TIE_ROWS_MAX)).max(32).readonly().default([2, 3, 4]),
    /** Checkpoints older than this vanish by whole days; left out, none do. The service keeps 7 days. */
    checkpointRetentionMs: count.optional(),
    /** Of the list calls of one client, with the tokens that come back each second; 'none' lifts it. */
    rateLimit: z
      .union([z.literal('none'), z.object({ perSecond: z.number(), burst: count, banMs: count })])
      .default({ perSecond: 20, burst: 100, banMs: 600_000 }),
    host: z.string().default('127.0.0.1'),
    /** 0: any free port. */
    port: count.default(0),
  })
  .refine(({ parties, partiesMax = PARTIES_MAX }) => partiesMax >= parties, {
    path: ['partiesMax'],
    error: 'fewer than parties given',
  })
  .refine((given) => given.checkpointIntervalMs >= given.blockIntervalMs, {
    path: ['checkpointIntervalMs'],
    error: 'less than blockIntervalMs given',
  })
  .refine((given) => given.parties <= (given.historyMs / given.blockIntervalMs) * ARRIVALS_PER_BLOCK_MAX, {
    path: ['parties'],
    error: `more than ${ARRIVALS_PER_BLOCK_MAX} for each block of the history given`,
  });

export type SandboxOptions = z.input<typeof schema>;
export type Settings = z.output<typeof schema> & { clock: () => Micros; partiesMax: number };
export type RateLimit = Exclude<Settings['rateLimit'], 'none'>;

/** @throws UsageError naming every option that cannot be */
export function sandboxSettings(options: SandboxOptions): Settings {
  const { data, error } = schema.safeParse(options);
  if (error) throw new UsageError(error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`));
  const { genesis, historyMs, blockIntervalMs } = data;
  // The last block of the history has been made by then, however late it was, and the next has not.
  const endOfHistory = genesis + BigInt(historyMs + blockIntervalMs) * 1000n - 1n;
  const { clock = () => endOfHistory, partiesMax = Math.max(data.parties, PARTIES_MAX) } = data;
  return { ...data, clock, partiesMax };
}
