/** What the source-compatible API needs from the rest of the mirror. */
import type { Log } from '../../logging/log.ts';
import type { JobDeps } from '../../runs/job.ts';

export interface SourceApiDeps {
  /** Opens ledgers for reading. */
  readonly jobs: JobDeps;
  readonly log: Log;
}
