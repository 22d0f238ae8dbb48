/**
 * The console's dependencies on the rest of the mirror, in addition to those of the
 * read API. Times are RFC 3339.
 */
import type { ShownSetting } from '../../config/secrets.ts';
import type { Rows } from '../../postgres/rows.ts';
import type { JobDeps } from '../../runs/job.ts';
import type { NightlyPreview } from '../../runs/nightly/nightly-preview.ts';
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
  /**
   * Estimates the requests that a nightly run would send to the source if it began now.
   */
  preview(): Promise<NightlyPreview>;
  upkeep(): Promise<Upkeep>;
  /**
   * How often the live state is read while a page follows it, in milliseconds. The
   * default is half a second; tests read it more often.
   */
  readonly everyMs?: number;
}

/** The state of the installation that an operator watches, in addition to the runs. */
export interface Upkeep {
  /** Jobs that are waiting in the queues; null if the queues cannot be read. */
  readonly jobsWaiting: number | null;
  /** Age of the job that has waited the longest, in seconds. */
  readonly oldestSeconds: number;
  /**
   * Free bytes on the disk of DATA_DIR, as decimal text; null if they cannot be measured.
   */
  readonly diskFreeBytes: string | null;
  /** Size of that disk in bytes, as decimal text; null if it cannot be measured. */
  readonly diskBytes: string | null;
}
