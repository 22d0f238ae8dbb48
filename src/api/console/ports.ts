/**
 * What the console needs from the rest of the mirror, beyond what the read API needs.
 * Times are RFC 3339.
 */
import type { ShownSetting } from '../../config/secrets.ts';
import type { Asset } from '../../ledger/assets.ts';
import type { Rows } from '../../postgres/api-rows.ts';
import type { JobDeps } from '../../runs/job.ts';
import type {
  FirstRunPreview,
  NightlyPreview,
} from '../../runs/nightly/nightly-preview.ts';
import type { TestResult } from '../../runs/notices.ts';
import type { LakeQueries } from './lake-queries.ts';

export interface ConsoleDeps {
  readonly rows: Rows;
  /** Reads the progress of runs. */
  readonly jobs: JobDeps;
  readonly console: ConsoleParts;
}

export interface ConsoleParts {
  readonly lake: LakeQueries;
  readonly settings: readonly ShownSetting[];
  /** The assets whose amounts the page shows in whole units. */
  readonly assets: readonly Asset[];
  /**
   * Estimates how many requests a nightly run would send to the source if it started now.
   */
  preview(): Promise<NightlyPreview>;
  /**
   * Estimates the first nightly run from two requests for each list, which it sends to the
   * source. Nothing is stored.
   */
  look(): Promise<FirstRunPreview>;
  /**
   * Sends a test notice to each configured receiver, and returns what became of it; an
   * empty array if no receiver is configured.
   */
  testNotices(): Promise<readonly TestResult[]>;
  upkeep(): Promise<Upkeep>;
  /**
   * Interval in milliseconds at which the live state is read while a page follows it. The
   * default is half a second; tests use a shorter one.
   */
  readonly everyMs?: number;
}

/** What an operator monitors besides the runs. */
export interface Upkeep {
  /** Jobs that are waiting in the queues; null if the queues cannot be read. */
  readonly jobsWaiting: number | null;
  /** How long the oldest waiting job has waited, in seconds. */
  readonly oldestSeconds: number;
  /** Free bytes on the disk of DATA_DIR, as a decimal string; null if unknown. */
  readonly diskFreeBytes: string | null;
  /** Size of that disk in bytes, as a decimal string; null if unknown. */
  readonly diskBytes: string | null;
}
