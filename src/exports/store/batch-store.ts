/**
 * A repository for many parties that are exported one after another, most of them
 * without new entries. One statement takes all of their leases, and the results of
 * exports without rows are written together. Rows are published immediately, as by any
 * other repository.
 */
import { errorCode, RetryableError } from '../../errors/errors.ts';
import {
  keepLease,
  type KeptLease,
  LEASE_TIMES,
} from '../../concurrency/lease.ts';
import { sharedLoad } from '../../concurrency/shared-load.ts';
import type { Coverage } from '../../catalog/coverage-rows.ts';
import type { Reason } from '../../catalog/segment-rows.ts';
import type { Database } from '../../postgres/database.ts';
import { builder } from '../../postgres/builder.ts';
import { execute } from '../../postgres/run-statement.ts';
import { inTransaction } from '../../postgres/transaction.ts';
import type { Micros } from '../../time/time.ts';
import type { ExportScope } from '../../ledger/export-scope.ts';
import {
  type ExportLease,
  fenceLeases,
  releaseLeases,
  renewLeases,
  takeLeases,
} from '../../catalog/leases.ts';
import {
  finishExports,
  type Publication,
  type Success,
} from '../../catalog/publications.ts';
import type {
  ExportRepository,
  PublicationNumber,
  Published,
} from './export-repository.ts';
import { ExportStore } from './export-store.ts';
import type { SourceProfile } from '../planning/profile.ts';

/** How long this process relies on the facts about the source before rereading them. */
const SOURCE_FACTS_MS = 10_000;

/** The facts about the source that are the same for every party. */
interface SourceFacts {
  readonly profile: SourceProfile;
  readonly epoch: number | undefined;
}

export class BatchStore implements ExportRepository, AsyncDisposable {
  readonly #db: Database;
  /** Carries out the calls that concern a single export rather than all of them. */
  readonly #single: ExportStore;
  #readSource: () => Promise<SourceFacts>;
  /** Leases of exports that have not begun, by party. */
  readonly #unstarted = new Map<string, ExportLease>();
  /** Exports that have ended but are not written yet. */
  #unwritten: Success[] = [];
  /**
   * Lease tokens of exports that have ended. They are identified by token, because an
   * export may be leased again.
   */
  readonly #finishedTokens = new Set<string>();
  /**
   * When the last renewal was sent (`performance.now()`). A renewal covers the exports
   * that have not begun and those that are not written yet. A running export renews its
   * own lease.
   */
  #renewedAtMs = performance.now();
  readonly #heldLeases: KeptLease;
  /**
   * The lease that counts towards the export limit. All requests of this store share
   * its slot, one after another.
   */
  #counted: ExportLease | undefined;
  /** The lease whose request is in progress. */
  #requesting: ExportLease | undefined;

  private constructor(db: Database, holder: number | undefined) {
    this.#db = db;
    this.#single = new ExportStore(db, holder);
    this.#readSource = this.#shareSourceFacts();
    this.#heldLeases = keepLease({
      what: 'the exports of many parties',
      takenAtMs: this.#renewedAtMs,
      renew: () => this.#renew(),
      release: () => releaseLeases(db, this.#leases()),
    });
  }

  /**
   * Opens a store, and leases the parties that no worker has leased. If the source
   * requires an asset, it leases none, because each asset is then leased separately.
   */
  static async open(
    db: Database,
    partyIds: readonly string[],
    holder?: number,
  ): Promise<BatchStore> {
    await using stack = new AsyncDisposableStack();
    const store = stack.use(new BatchStore(db, holder));
    const { assetRequired } = await store.profile();
    if (assetRequired !== true) {
      const action = `lease the exports of ${partyIds.length} parties`;
      const leases = await inTransaction(db, { action }, (tx) =>
        takeLeases(tx, partyIds, undefined, holder),
      );
      for (const lease of leases)
        store.#unstarted.set(lease.scope.partyId, lease);
    }
    stack.move();
    return store;
  }

  /**
   * Writes the exports that have ended. Exports that cannot be written now are kept for
   * the next call. Two calls must not overlap.
   * @returns parties whose export does not count, because another worker has taken them
   *   over or their coverage has changed
   */
  async write(): Promise<readonly string[]> {
    const requesting = this.#requesting;
    // No request is in progress, so other exports may use the slot at the source in the
    // meantime.
    if (requesting === undefined) await this.#leave();
    const ended = this.#unwritten;
    this.#unwritten = [];
    try {
      return await this.#finishAll(ended, requesting);
    } catch (error) {
      this.#unwritten = [...ended, ...this.#unwritten];
      throw error;
    }
  }

  /** Releases the leases of parties whose export has not begun. */
  async releaseUnstarted(): Promise<void> {
    const leases = [...this.#unstarted.values()];
    this.#unstarted.clear();
    await releaseLeases(this.#db, leases);
  }

  /**
   * Releases all leases. Exports that were not written are lost; the next owner of
   * their party requests them again.
   */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#heldLeases[Symbol.asyncDispose]();
  }

  async acquire(scope: ExportScope): Promise<ExportLease | undefined> {
    const lease = this.#unstarted.get(scope.partyId);
    this.#unstarted.delete(scope.partyId);
    if (lease === undefined) return this.#single.acquire(scope);
    const { leaseMs, marginMs } = LEASE_TIMES;
    const isValid = performance.now() - this.#renewedAtMs < leaseMs - marginMs;
    if (isValid && scope.assetId === undefined)
      return { ...lease, takenAtMs: this.#renewedAtMs };
    await this.#single.release(lease);
    return this.#single.acquire(scope);
  }

  /**
   * Renews a lease until the result is disposed of. The lease is released through this
   * store, because a finished export stays leased until it is written.
   */
  holdLease(lease: ExportLease, what: string): KeptLease {
    return this.#single.holdLease(lease, what, () => this.release(lease));
  }

  async release(lease: ExportLease): Promise<void> {
    if (this.#finishedTokens.has(lease.token)) return;
    if (this.#counted?.exportId === lease.exportId) this.#counted = undefined;
    await this.#single.release(lease);
  }

  async finish(success: Success): Promise<void> {
    this.#finishedTokens.add(success.lease.token);
    this.#unwritten.push(success);
  }

  /**
   * Takes a slot at the source. One lease holds it for all requests until their results
   * are written.
   */
  async enterSource(lease: ExportLease, exportLimit: number): Promise<boolean> {
    if (this.#counted === undefined) {
      const hasEntered = await this.#single.enterSource(lease, exportLimit);
      if (!hasEntered) return false;
      this.#counted = lease;
    }
    this.#requesting = lease;
    return true;
  }

  async leaveSource(): Promise<void> {
    this.#requesting = undefined;
  }

  /**
   * Records the intent, and gives up the slot at the source so that other workers can
   * use it while the rows are published.
   */
  async intend(lease: ExportLease, publication: Publication): Promise<void> {
    await this.#leave();
    await this.#single.intend(lease, publication);
  }

  async epoch(): Promise<number | undefined> {
    return (await this.#readSource()).epoch;
  }

  async profile(): Promise<SourceProfile> {
    return (await this.#readSource()).profile;
  }

  async learn(profile: SourceProfile): Promise<void> {
    await this.#single.learn(profile);
    this.#readSource = this.#shareSourceFacts();
  }

  coverage(scope: ExportScope): Promise<readonly Coverage[]> {
    return this.#single.coverage(scope);
  }

  published(
    scope: ExportScope,
    runId: string,
    adopted: readonly string[],
  ): Promise<Published> {
    return this.#single.published(scope, runId, adopted);
  }

  quarantineSegment(objectKey: string, reason: Reason): Promise<void> {
    return this.#single.quarantineSegment(objectKey, reason);
  }

  nextSeq(): Promise<PublicationNumber> {
    return this.#single.nextSeq();
  }

  openPublications(
    lease: ExportLease,
  ): Promise<ReadonlyMap<string, Publication | undefined>> {
    return this.#single.openPublications(lease);
  }

  commit(lease: ExportLease, publication: Publication): Promise<void> {
    return this.#single.commit(lease, publication);
  }

  drop(lease: ExportLease, publicationId: string): Promise<void> {
    return this.#single.drop(lease, publicationId);
  }

  savePlan(lease: ExportLease, plan: unknown): Promise<void> {
    return this.#single.savePlan(lease, plan);
  }

  fail(
    lease: ExportLease,
    reason: Reason,
    attemptsMax: number,
  ): Promise<number | undefined> {
    return this.#single.fail(lease, reason, attemptsMax);
  }

  firstEntry(partyId: string): Promise<Micros | undefined> {
    return this.#single.firstEntry(partyId);
  }

  knownAssets(): Promise<readonly string[]> {
    return this.#single.knownAssets();
  }

  #shareSourceFacts(): () => Promise<SourceFacts> {
    const load = async (): Promise<SourceFacts> => {
      const [profile, epoch] = await Promise.all([
        this.#single.profile(),
        this.#single.epoch(),
      ]);
      return { profile, epoch };
    };
    // Other processes may learn more about the source at any time.
    return sharedLoad(load, SOURCE_FACTS_MS);
  }

  async #leave(): Promise<void> {
    const counted = this.#counted;
    this.#counted = undefined;
    if (counted !== undefined) await this.#single.leaveSource(counted);
  }

  #leases(): readonly ExportLease[] {
    const unwritten = this.#unwritten.map(({ lease }) => lease);
    return [...this.#unstarted.values(), ...unwritten];
  }

  async #renew(): Promise<void> {
    const sentAtMs = performance.now();
    // Take the list before the statement is sent, so that a lease acquired in the
    // meantime is not mistaken for a lost one.
    const leases = this.#leases();
    const renewed = await renewLeases(this.#db, leases);
    for (const { exportId, scope } of leases)
      if (!renewed.has(exportId)) this.#unstarted.delete(scope.partyId);
    this.#renewedAtMs = sentAtMs;
  }

  /**
   * Writes all exports together. If that fails, writes them one by one, so that a
   * failing export does not hold back the others.
   * @returns parties whose export was not written
   */
  async #finishAll(
    ended: readonly Success[],
    requesting: ExportLease | undefined,
  ): Promise<readonly string[]> {
    if (ended.length === 0) return [];
    try {
      return await this.#finishTogether(ended, requesting);
    } catch (error) {
      const mayPass =
        error instanceof RetryableError &&
        errorCode(error) !== 'COVERAGE_CHANGED';
      if (mayPass) throw error;
    }
    const [first] = ended;
    if (ended.length === 1 && first !== undefined) {
      await this.#single.release(first.lease);
      return [first.lease.scope.partyId];
    }
    const lost: string[] = [];
    for (const success of ended)
      lost.push(...(await this.#finishAll([success], requesting)));
    return lost;
  }

  /**
   * Writes the exports and releases their leases in one transaction.
   * @param requesting the lease whose request is in progress; it takes over the slot at
   *   the source from a released lease
   * @returns parties whose export was not written, because their lease is no longer
   *   ours
   * @throws RetryableError `COVERAGE_CHANGED` if one party's coverage has changed since
   *   it was planned; nothing is written then
   */
  async #finishTogether(
    ended: readonly Success[],
    requesting: ExportLease | undefined,
  ): Promise<readonly string[]> {
    const leases = ended.map(({ lease }) => lease);
    const action = `record ${ended.length} exports without entries`;
    const valid = await inTransaction(this.#db, { action }, async (tx) => {
      const fenced = await fenceLeases(tx, leases);
      const ours = ended.filter(({ lease }) => fenced.has(lease.exportId));
      await finishExports(tx, ours);
      await releaseLeases(tx, leases);
      if (requesting !== undefined) {
        const enter = builder
          .updateTable('mirror.exports')
          .set({ is_at_source: true })
          .where('export_id', '=', requesting.exportId)
          .where('lease_token', '=', requesting.token);
        await execute(tx, 'pass on the place at the source', enter);
      }
      return fenced;
    });
    const isCountedReleased = leases.some(
      ({ exportId }) => exportId === this.#counted?.exportId,
    );
    if (isCountedReleased) this.#counted = requesting;
    const lost = leases.filter(({ exportId }) => !valid.has(exportId));
    return lost.map(({ scope }) => scope.partyId);
  }
}
