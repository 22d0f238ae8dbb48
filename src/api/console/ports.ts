/** What the console needs beside what the read API has anyway. Times are RFC 3339. */
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
  /** When the schedule fires next; null if nothing is scheduled. */
  nextNightlyRun(): string | null;
  /** What a nightly run that began now would ask the source. */
  preview(): Promise<NightlyPreview>;
  upkeep(): Promise<Upkeep>;
  /**
   * Time between two readings of the live state while a page follows it. Half a second if
   * unset; tests read more often.
   */
  readonly everyMs?: number;
}

/** What an operator looks after beside the runs. */
export interface Upkeep {
  /** Jobs that wait in the queues; null if the queues cannot be read. */
  readonly jobsWaiting: number | null;
  /** Age of the job that waits the longest, in seconds. */
  readonly oldestSeconds: number;
  /** When the lists are audited next; null if nothing is scheduled. */
  readonly nextAudit: string | null;
  /**
   * Free bytes of the disk of DATA_DIR, as decimal text; null if they cannot be measured.
   */
  readonly diskFreeBytes: string | null;
  /** Size of that disk, as decimal text; null if it cannot be measured. */
  readonly diskBytes: string | null;
}
