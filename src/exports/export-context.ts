/** The types of an export: its request, its dependencies and context, and its outcome. */
import type { ExportLease } from '../catalog/leases.ts';
import { RetryableError } from '../errors/errors.ts';
import type { VerdictWithEvidence } from '../errors/verdict.ts';
import type { ExportScope } from '../ledger/export-scope.ts';
import type { LedgerRange } from '../ledger/ledger-range.ts';
import type { ObjectStore } from '../storage/object-store.ts';
import type { Micros } from '../time/time.ts';
import type { SpoolOptions } from './download/range-spool.ts';
import type { RowPool } from './download/row-pool.ts';
import type { SourceClock } from './planning/source-clock.ts';
import type { LedgerSource } from './ports.ts';
import type { ExportRepository, Published } from './store/export-repository.ts';

/** A range of a ledger to export. It is widened to whole seconds. */
export interface ExportRequest extends LedgerRange {
  readonly runId: string;
  /** The source's time when the run began. */
  readonly clock: SourceClock;
  /** Whether to distrust the coverage in the range and request the whole range again. */
  readonly again?: boolean | undefined;
  /** The share of the closed segments to request again and compare, from 0 to 1. */
  readonly auditShare?: number | undefined;
  /**
   * Closed segments that were last compared longer ago than this are requested regardless
   * of the share.
   */
  readonly auditWithinMicros?: Micros | undefined;
}

/** The progress of an export in this run. */
export interface ExportProgress extends ExportScope {
  /** Bytes of plain CSV received so far. */
  readonly bytes: number;
  readonly rows: number;
  readonly segments: number;
}

/** The steps of a publication at which tests can kill the process. */
export type PublishStep =
  | 'claimed'
  | 'asked'
  | 'spooled'
  | 'intended'
  | 'object'
  | 'manifest'
  | 'committed';

export interface PublishDeps {
  readonly repository: ExportRepository;
  readonly objects: ObjectStore;
  readonly compression: SpoolOptions['compression'];
  /** Called at each step; a test can kill the process there. */
  readonly failpoint?:
    | ((step: PublishStep) => Promise<void> | void)
    | undefined;
}

/** The dependencies of a publication's steps while the lease is held. */
export interface PublishContext extends SpoolOptions {
  readonly repository: ExportRepository;
  readonly objects: ObjectStore;
  readonly lease: ExportLease;
  /**
   * Checks that the lease is still held. @throws FencedError | RetryableError
   * `LEASE_LOST`
   */
  readonly checkLease: () => void;
  readonly failpoint: (step: PublishStep) => Promise<void>;
  /** Aborts when the work is stopped or the lease is lost. */
  readonly signal: AbortSignal;
}

export interface ExportDeps extends PublishDeps {
  readonly source: LedgerSource;
  /**
   * Maximum number of bytes of plain CSV in one object. A ledger whose response exceeds
   * this is requested in windows.
   */
  readonly segmentBytesMax: number;
  /** How long the source is certain to keep entries; 90 days by default. */
  readonly retentionMicros?: Micros;
  /** Maximum number of concurrent exports at the source, across all workers. */
  readonly exportLimit: number;
  /**
   * Threads that parse the rows of large responses. If absent, the calling thread
   * parses all rows.
   */
  readonly rowPool?: RowPool | undefined;
  readonly onProgress?: (progress: ExportProgress) => void;
  /**
   * Returns how long to pause before the next request, in milliseconds, after this many
   * consecutive requests that published nothing.
   */
  readonly pauseMs?: (fruitless: number) => number;
  /** How long to wait for a lease held by another worker; one hour by default. */
  readonly waitMs?: number;
}

/** The dependencies of each step of a leased export. */
export interface ExportContext
  extends Omit<ExportDeps, keyof PublishContext>, PublishContext {
  readonly request: ExportRequest;
}

export interface ExportOutcome extends VerdictWithEvidence, Published {
  /** The number of requests sent to the source. */
  readonly requests: number;
}

/** How long to wait for a lease by default. */
export const WAIT_MS = 3_600_000;

export function waitedTooLong(what: string, waitMs: number): RetryableError {
  return new RetryableError(
    `Cannot get ${what} within ${waitMs / 60_000} min: other workers are ` +
      'using it; try later',
    { code: 'WAITED_TOO_LONG', meta: { what, waitMs } },
  );
}
