/** What the routes under `/mirror` need from the rest of the mirror. */
import type { Log } from '../../logging/log.ts';
import type { JobDeps } from '../../runs/job.ts';
import type { RunReader } from '../../runs/store/run-reader.ts';
import type { FactsReader } from '../../status/mirror-facts.ts';

/** Reads the mirror's state and its runs, as the API and the console show them. */
export interface StatusStore extends FactsReader, RunReader {}

export interface MirrorDeps {
  /** Starts runs, and reads ledgers for downloads. */
  readonly jobs: JobDeps;
  /**
   * Whether a worker is alive to run jobs.
   * @param sourceUrl if given, only workers for this source count
   */
  readonly isAttended: (sourceUrl: string | undefined) => Promise<boolean>;
  readonly status: StatusStore;
  readonly log: Log;
}
