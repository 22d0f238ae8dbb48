/**
 * The repository of many parties that are exported one after another, most of them in vain: leased together, read
 * together, and what brought no rows is written together. A party that brings rows is published on its own, as ever.
 */
import { errorCode, RetryableError, UnreachableError } from '../../core/errors.ts';
import type { Database } from '../../postgres/database.ts';
import { mapDatabaseError } from '../../postgres/transaction.ts';
import { LEASE_TIMES } from '../../core/lease.ts';
import type { ExportScope } from '../ports.ts';
import { commitEmpty, type EmptyExport, type Leased, leaseParties } from './batch-statements.ts';
import type { Coverage } from './coverage-rows.ts';
import { ExportStore, type OpenPublication } from './export-store.ts';
import { type ExportLease, releaseLeases, renewLeases } from './leases.ts';
import type { Publication } from './publications.ts';
import type { SourceProfile } from './source-profile.ts';

/** A party of the batch that is being worked. */
interface InHand {
  readonly leased: Leased;
  /** What was committed, if only here. */
  publication?: Publication | undefined;
  /** What was read with the lease is what is known. */
  isFresh: boolean;
  success?: Pick<EmptyExport, 'contradictions' | 'isDone'>;
}

export class BatchStore extends ExportStore implements AsyncDisposable {
  readonly #db: Database;
  #profile: SourceProfile;
  readonly #epoch: number | undefined;
  /** Leased, and not begun. */
  readonly #waiting: Map<string, Leased>;
  readonly #inHand = new Map<bigint, InHand>();
  #done: EmptyExport[] = [];
  #renewedAtMs = performance.now();
  /** Counted at the source, for one request after another. */
  #atSource: ExportLease | undefined;
  /** Whose request is under way. */
  #asking: ExportLease | undefined;
  readonly #timer: NodeJS.Timeout;
  #writing: Promise<unknown> = Promise.resolve();

  private constructor(
    db: Database,
    profile: SourceProfile,
    epoch: number | undefined,
    leased: ReadonlyMap<string, Leased>,
    holder: number | undefined,
  ) {
    super(db, holder);
    this.#db = db;
    this.#profile = profile;
    this.#epoch = epoch;
    this.#waiting = new Map(leased);
    for (const { lease } of leased.values()) this.#renewedAtMs = lease.takenAtMs;
    // What cannot be renewed is found out where it is used.
    this.#timer = setInterval(
      () => void this.#renew().catch(() => undefined),
      LEASE_TIMES.renewEveryMs,
    ).unref();
  }

  /** Leases those of the parties that nobody works on; where each asset is leased apart, none. */
  static async open(db: Database, partyIds: readonly string[], holder?: number): Promise<BatchStore> {
    const store = new ExportStore(db, holder);
    const [profile, epoch] = [await store.profile(), await store.epoch()];
    const isApart = profile.assetRequired === true;
    const leased = isApart ? new Map() : await leaseParties(db, partyIds, holder);
    return new BatchStore(db, profile, epoch, leased, holder);
  }

  /**
   * Writes what has ended without rows; what cannot be written now is kept for the next call.
   * @returns parties whose export does not count: another has taken them over, or their coverage has changed
   */
  write(): Promise<readonly string[]> {
    const written = this.#writing.then(() => this.#write());
    this.#writing = written.catch(() => undefined);
    return written;
  }

  /** Gives back the leases of parties that were not begun. */
  async giveBack(): Promise<void> {
    const leases = [...this.#waiting.values()].map(({ lease }) => lease);
    this.#waiting.clear();
    if (leases.length > 0) await mapDatabaseError('release ledgers', () => releaseLeases(this.#db, leases));
  }

  /** What was not written is lost with it, and asked for again by whoever has its party next. */
  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    await this.#writing;
    const leases = this.#held();
    this.#waiting.clear();
    // Where they cannot be given back, they run out by themselves.
    if (leases.length > 0) await releaseLeases(this.#db, leases).catch(() => undefined);
  }

  override async acquire(scope: ExportScope): Promise<ExportLease | undefined> {
    const leased = this.#waiting.get(scope.partyId);
    this.#waiting.delete(scope.partyId);
    const { leaseMs, marginMs } = LEASE_TIMES;
    const isHeld = performance.now() - this.#renewedAtMs < leaseMs - marginMs;
    if (leased === undefined || !isHeld) return super.acquire(scope);
    if (scope.assetId !== undefined) {
      await releaseLeases(this.#db, [leased.lease]);
      return super.acquire(scope);
    }
    const lease = { ...leased.lease, takenAtMs: this.#renewedAtMs };
    this.#inHand.set(lease.exportId, { leased, isFresh: true });
    return lease;
  }

  override async release(lease: ExportLease): Promise<void> {
    const inHand = this.#inHand.get(lease.exportId);
    this.#inHand.delete(lease.exportId);
    if (inHand?.success !== undefined) {
      this.#done.push({ lease, publication: inHand.publication, ...inHand.success });
      return;
    }
    if (this.#atSource?.exportId === lease.exportId) this.#atSource = undefined;
    await super.release(lease);
  }

  override async coverage(scope: ExportScope): Promise<readonly Coverage[]> {
    const inHand = this.#handOf(scope);
    if (inHand === undefined) return super.coverage(scope);
    if (inHand.publication !== undefined) {
      // It goes on after all: what it continues from has to be true.
      await super.commit(inHand.leased.lease, inHand.publication);
      inHand.publication = undefined;
      inHand.isFresh = false;
    }
    return inHand.isFresh ? inHand.leased.coverage : super.coverage(scope);
  }

  override async quarantineSegment(...given: Parameters<ExportStore['quarantineSegment']>): Promise<void> {
    for (const inHand of this.#inHand.values()) inHand.isFresh = false;
    await super.quarantineSegment(...given);
  }

  override async openPublications(lease: ExportLease): Promise<readonly OpenPublication[]> {
    const inHand = this.#inHand.get(lease.exportId);
    return inHand?.leased.lease.hasIntents === false ? [] : super.openPublications(lease);
  }

  override async epoch(): Promise<number | undefined> {
    return this.#epoch;
  }

  override async profile(): Promise<SourceProfile> {
    return this.#profile;
  }

  override async learn(profile: SourceProfile): Promise<void> {
    await super.learn(profile);
    this.#profile = profile;
  }

  /** Rows came: while they are published, others may ask. */
  override async intend(lease: ExportLease, publication: Publication): Promise<void> {
    await this.#leave();
    await super.intend(lease, publication);
  }

  override async commit(lease: ExportLease, publication: Publication): Promise<void> {
    const inHand = this.#inHand.get(lease.exportId);
    if (inHand?.isFresh === true && inHand.publication === undefined && isEmpty(publication, inHand.leased)) {
      inHand.publication = publication;
      return;
    }
    if (inHand !== undefined) inHand.isFresh = false;
    await super.commit(lease, publication);
  }

  override async succeed(lease: ExportLease, contradictions: number, isDone: boolean): Promise<void> {
    const inHand = this.#inHand.get(lease.exportId);
    if (inHand === undefined) return super.succeed(lease, contradictions, isDone);
    inHand.success = { contradictions, isDone };
  }

  /** Counted from request to request until what they brought is written: then it is another's turn. */
  override async enterSource(lease: ExportLease, exportLimit: number): Promise<boolean> {
    if (this.#atSource === undefined) {
      if (!(await super.enterSource(lease, exportLimit))) return false;
      this.#atSource = lease;
    }
    this.#asking = lease;
    return true;
  }

  override async leaveSource(): Promise<void> {
    this.#asking = undefined;
  }

  async #leave(): Promise<void> {
    const counted = this.#atSource;
    this.#atSource = undefined;
    if (counted !== undefined) await super.leaveSource(counted);
  }

  #handOf({ partyId, assetId }: ExportScope): InHand | undefined {
    if (assetId !== undefined) return undefined;
    return this.#inHand.values().find(({ leased }) => leased.lease.scope.partyId === partyId);
  }

  /** Those in hand are renewed, and given back, by whoever works them. */
  #held(): readonly ExportLease[] {
    return [...this.#waiting.values(), ...this.#done].map(({ lease }) => lease);
  }

  async #renew(): Promise<void> {
    const leases = this.#held();
    if (leases.length === 0) return;
    const sentAtMs = performance.now();
    const renewed = await renewLeases(this.#db, leases);
    for (const [partyId, { lease }] of this.#waiting)
      if (!renewed.has(lease.exportId)) this.#waiting.delete(partyId);
    this.#renewedAtMs = sentAtMs;
  }

  async #write(): Promise<readonly string[]> {
    const done = this.#done;
    this.#done = [];
    const asking = this.#asking;
    const isGivenBack = done.some(({ lease }) => lease.exportId === this.#atSource?.exportId);
    // One that pauses between its requests lets others ask.
    if (asking === undefined && !isGivenBack) await this.#leave();
    if (done.length === 0) return [];
    try {
      const written = await this.#committed(done, asking);
      // It is given back with its lease; the request that is under way is counted in its place.
      if (isGivenBack) this.#atSource = asking;
      return done.filter((one) => !written.has(one)).map(({ lease }) => lease.scope.partyId);
    } catch (error) {
      this.#done = [...done, ...this.#done];
      throw error;
    }
  }

  /** One that cannot be written keeps none of the others from it. */
  async #committed(
    done: readonly EmptyExport[],
    asking: ExportLease | undefined,
  ): Promise<ReadonlySet<EmptyExport>> {
    try {
      return new Set(await commitEmpty(this.#db, done, asking));
    } catch (error) {
      const mayPass = error instanceof RetryableError && errorCode(error) !== 'COVERAGE_CHANGED';
      if (error instanceof UnreachableError || mayPass) throw error;
    }
    const written = new Set<EmptyExport>();
    for (const one of done) {
      try {
        for (const ours of await commitEmpty(this.#db, [one], asking)) written.add(ours);
      } catch (error) {
        if (error instanceof UnreachableError) throw error;
        await super.release(one.lease);
      }
    }
    return written;
  }
}

/** No rows come with it, and none go. */
function isEmpty({ segments, closes, supersedes, coverage }: Publication, leased: Leased): boolean {
  if (segments.length > 0 || closes.length > 0 || coverage.some(({ objectKey }) => objectKey !== undefined))
    return false;
  const withRows = leased.coverage.filter(({ objectKey }) => objectKey !== undefined);
  return supersedes.every((id) => withRows.every(({ coverageId }) => coverageId !== id));
}
