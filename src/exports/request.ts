/** What an export is asked for, what it works with, and what it answers. */
import { RetryableError } from '../errors/errors.ts';
import type { Micros } from '../time/time.ts';
import type { VerdictWithEvidence } from '../errors/verdict.ts';
import type { LedgerRange } from '../ledger/ledger-range.ts';
import type { SourceClock } from './planning/source-clock.ts';
import type { ExportScope } from '../ledger/export-scope.ts';
import type { LedgerSource } from './ports.ts';
import type { PublishContext, PublishDeps } from './publishing/publisher.ts';
import type { RowPool } from './download/row-pool.ts';
import type { Published } from './store/export-repository.ts';

/** Its range is widened to whole seconds. */
export interface ExportRequest extends LedgerRange {
  readonly runId: string;
  /** Of the source, when the run began. */
  readonly clock: SourceClock;
  /** What is covered in the range is not believed, and asked for anew. */
  readonly again?: boolean | undefined;
  /** Of the closed segments, from 0 to 1: so many are asked for once more, and compared. */
  readonly auditShare?: number | undefined;
}

export interface ExportProgress extends ExportScope {
  /** Of plain CSV, received by the question in hand. */
  readonly bytes: number;
  readonly rows: number;
  readonly segments: number;
}

export interface ExportDeps extends PublishDeps {
  readonly source: LedgerSource;
  readonly segmentBytesMax: number;
  /** How long the source keeps entries for certain; 90 days by default. */
  readonly retentionMicros?: Micros;
  /** Exports at once, over all workers. */
  readonly exportLimit: number;
  /** Absent: the rows of every answer are read on the calling thread. */
  readonly rowPool?: RowPool | undefined;
  readonly onProgress?: (progress: ExportProgress) => void;
  /** Before a request after so many that came to nothing. */
  readonly pauseMs?: (fruitless: number) => number;
  /** How long to wait for a lease that others hold. */
  readonly waitMs?: number;
}

/** What each step of the work on a leased export works with. */
export interface ExportContext
  extends Omit<ExportDeps, keyof PublishContext>, PublishContext {
  readonly request: ExportRequest;
}

export interface ExportOutcome extends VerdictWithEvidence, Published {
  readonly requests: number;
}

/** How long to wait for a lease that others hold, where nobody says otherwise. */
export const WAIT_MS = 3_600_000;

export function waitedTooLong(what: string, waitMs: number): RetryableError {
  return new RetryableError(
    `Cannot get ${what} within ${waitMs / 60_000} min: other workers hold it; try later`,
    { code: 'WAITED_TOO_LONG', meta: { what, waitMs } },
  );
}
