/**
 * The interface through which an export reads and writes the database. `ExportStore`
 * carries out each call separately. `BatchStore` leases many parties at once and writes
 * their results together.
 */
import type { Coverage } from '../../catalog/coverage-rows.ts';
import type { ExportLease } from '../../catalog/leases.ts';
import type { Publication, Success } from '../../catalog/publications.ts';
import type { Reason } from '../../catalog/segment-rows.ts';
import type { KeptLease } from '../../concurrency/lease.ts';
import type { Micros } from '../../time/time.ts';
import type { ExportScope } from '../../ledger/export-scope.ts';
import type { SourceProfile } from '../planning/profile.ts';

/** Sums over the current segments that a run has published. */
export interface Published {
  readonly rows: bigint;
  /**
   * The number of rows that existed before the run, in the segments that the run's
   * segments have replaced.
   */
  readonly replacedRows: bigint;
  /** Size of the plain CSV. */
  readonly bytes: bigint;
  readonly objectKeys: readonly string[];
}

/** The number of a publication, and the database that assigned it. */
export interface PublicationNumber {
  readonly warehouseId: string;
  readonly seq: bigint;
}

/** Reads the coverage of ledgers. Nothing else is needed to read published objects. */
export interface CoverageReader {
  /**
   * Returns the party's known ranges in every asset that the scope overlaps, ordered by
   * time.
   */
  coverage(scope: ExportScope): Promise<readonly Coverage[]>;
}

export interface ExportRepository extends CoverageReader {
  /**
   * Leases a scope. Returns undefined while another worker has leased this scope or an
   * overlapping one.
   */
  acquire(scope: ExportScope): Promise<ExportLease | undefined>;

  /**
   * Renews a lease until the result is disposed of, which releases it.
   * @param what the name of the leased work, for messages
   */
  holdLease(lease: ExportLease, what: string): KeptLease;

  release(lease: ExportLease): Promise<void>;

  /**
   * Sums the current segments of this scope that the run has published, whichever worker
   * did it.
   * @param adopted keys of objects that another run intended to publish and this run
   *   published
   */
  published(
    scope: ExportScope,
    runId: string,
    adopted: readonly string[],
  ): Promise<Published>;

  /**
   * Marks a segment whose object no longer has its published content, so that its range
   * is requested again.
   */
  quarantineSegment(objectKey: string, reason: Reason): Promise<void>;

  /** Returns the next publication number of this warehouse. */
  nextSeq(): Promise<PublicationNumber>;

  /**
   * Records a publication before its first object is written.
   * @throws FencedError
   */
  intend(lease: ExportLease, publication: Publication): Promise<void>;

  /**
   * Reads the publications that a crashed worker of this export intended but neither
   * committed nor dropped.
   * @returns the publications by their ids; undefined for a publication that this
   *   version cannot read
   */
  openPublications(
    lease: ExportLease,
  ): Promise<ReadonlyMap<string, Publication | undefined>>;

  /**
   * Makes a publication visible exactly once: a second call finds that it is done.
   * @throws FencedError
   * @throws RetryableError `COVERAGE_CHANGED` if the coverage has changed since the
   *   publication was planned
   */
  commit(lease: ExportLease, publication: Publication): Promise<void>;

  /**
   * Abandons an intended publication. Its objects stay unreferenced until garbage
   * collection.
   */
  drop(lease: ExportLease, publicationId: string): Promise<void>;

  /**
   * Saves the window plan until the export succeeds. Does nothing if the lease is lost.
   */
  savePlan(lease: ExportLease, plan: unknown): Promise<void>;

  /** Returns the epoch of the source's chain; undefined if no checkpoint is known. */
  epoch(): Promise<number | undefined>;

  /**
   * Records that an export succeeded: clears its failures, and its plan if nothing is
   * left to request.
   * @throws FencedError
   * @throws RetryableError `COVERAGE_CHANGED`
   */
  finish(success: Success): Promise<void>;

  /**
   * Counts a failure. The scope is quarantined after `attemptsMax` consecutive
   * failures.
   * @returns the number of consecutive failures if the scope is quarantined, otherwise
   *   undefined
   * @throws FencedError
   */
  fail(
    lease: ExportLease,
    reason: Reason,
    attemptsMax: number,
  ): Promise<number | undefined>;

  /**
   * Takes one of the slots at the source, which all workers share, until the export
   * gives it up or its lease ends. A caller that gets false must call again within
   * seconds, or it loses its place in the queue.
   * @returns false while `exportLimit` other exports hold slots or have waited longer
   */
  enterSource(lease: ExportLease, exportLimit: number): Promise<boolean>;

  leaveSource(lease: ExportLease): Promise<void>;

  /** Returns the findings about the source's release from its responses. */
  profile(): Promise<SourceProfile>;

  /** Replaces the profile of the source. */
  learn(profile: SourceProfile): Promise<void>;

  /** Returns the time of the party's first loaded entry. */
  firstEntry(partyId: string): Promise<Micros | undefined>;

  /**
   * Returns the assets of all entries and exports known so far. They are exported one
   * by one if the source requires an asset and none is configured.
   */
  knownAssets(): Promise<readonly string[]>;
}
