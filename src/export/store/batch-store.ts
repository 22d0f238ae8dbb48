/**
 * The repository of many parties that are exported one after another, most of them in vain: leased together, read
 * together, and what brought no rows is written together. A party that brings rows goes its own way, as any other does.
 */
import { sql } from 'kysely';
import { errorCode, RetryableError } from '../../core/errors.ts';
import { LEASE_TIMES } from '../../core/lease.ts';
import type { Database } from '../../postgres/database.ts';
import { inTransaction, mapDatabaseError } from '../../postgres/transaction.ts';
import type { ExportScope } from '../ports.ts';
import { type Coverage, readCoverages } from './coverage-rows.ts';
import { ExportStore } from './export-store.ts';
import { type ExportLease, fenceLeases, releaseLeases, renewLeases, takeLeases } from './leases.ts';
import { commitEmpty, type Publication, type Success } from './publications.ts';
import type { SourceProfile } from './source-profile.ts';

/** What is known of a party when its lease was taken. */
interface Leased {
  readonly lease: ExportLease;
  readonly coverage: readonly Coverage[];
}

/** The party that is being worked, as long as all that came of it is empty. */
interface InHand extends Leased {
  /** What was committed, if only here. */
  publication?: Publication;
  success?: Pick<Success, 'contradictions' | 'isDone'>;
}

export class BatchStore extends ExportStore implements AsyncDisposable {
  readonly #db: Database;
  #profile: SourceProfile;
  readonly #epoch: number | undefined;
  /** Leased, and not begun. */
  readonly #waiting: Map<string, Leased>;
  #inHand: InHand | undefined;
  #done: Success[] = [];
  /** Of those that wait or are done; those in hand are renewed, and given back, by whoever works them. */
  #renewedAtMs: number;
  /** Counted at the source, for one request after another. */
  #atSource: ExportLease | undefined;
  /** Whose request is under way. */
  #asking: ExportLease | undefined;
  readonly #timer: NodeJS.Timeout;
  #writing: Promise<unknown> = Promise.resolve();

  private constructor(
    db: Database,
    holder: number | undefined,
    { profile, epoch }: { readonly profile: SourceProfile; readonly epoch: number | undefined },
    leased: readonly Leased[],
  ) {
    super(db, holder);
    this.#db = db;
    this.#profile = profile;
    this.#epoch = epoch;
    this.#waiting = new Map(leased.map((one) => [one.lease.scope.partyId, one]));
    this.#renewedAtMs = leased[0]?.lease.takenAtMs ?? 0;
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
    const leasable = profile.assetRequired === true ? [] : partyIds;
    const action = `lease the exports of ${leasable.length} parties`;
    const leased = await inTransaction(db, { action }, async (tx) => {
      const leases = await takeLeases(tx, leasable, undefined, holder);
      const ids = leases.map(({ scope }) => scope.partyId);
      const known = await readCoverages(tx, ids);
      return leases.map((lease) => ({ lease, coverage: known.get(lease.scope.partyId) ?? [] }));
    });
    return new BatchStore(db, holder, { profile, epoch }, leased);
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
    await mapDatabaseError('release ledgers', () => releaseLeases(this.#db, leases));
  }

  /** What was not written is lost with it, and asked for again by whoever has its party next. */
  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    await this.#writing;
    const leases = this.#held();
    this.#waiting.clear();
    // Where they cannot be given back, they run out by themselves.
    await releaseLeases(this.#db, leases).catch(() => undefined);
  }

  override async acquire(scope: ExportScope): Promise<ExportLease | undefined> {
    // One whose lease was lost was never given back: what it had is not written in another's name.
    this.#inHand = undefined;
    const leased = this.#waiting.get(scope.partyId);
    this.#waiting.delete(scope.partyId);
    const { leaseMs, marginMs } = LEASE_TIMES;
    const isHeld = performance.now() - this.#renewedAtMs < leaseMs - marginMs;
    if (leased !== undefined && isHeld && scope.assetId === undefined) {
      this.#inHand = { ...leased, lease: { ...leased.lease, takenAtMs: this.#renewedAtMs } };
      return this.#inHand.lease;
    }
    if (leased !== undefined) await super.release(leased.lease);
    return super.acquire(scope);
  }

  override async release(lease: ExportLease): Promise<void> {
    const inHand = this.#inHandOf(lease);
    this.#inHand = undefined;
    if (inHand?.success !== undefined) {
      this.#done.push({ lease, publication: inHand.publication, ...inHand.success });
      return;
    }
    if (this.#atSource?.exportId === lease.exportId) this.#atSource = undefined;
    await super.release(lease);
  }

  override async coverage(scope: ExportScope): Promise<readonly Coverage[]> {
    const inHand = this.#inHand;
    if (inHand?.lease.scope.partyId !== scope.partyId || scope.assetId !== undefined)
      return super.coverage(scope);
    if (inHand.publication === undefined) return inHand.coverage;
    // It goes on after all: what it continues from has to be true.
    await this.#goAlone();
    return super.coverage(scope);
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
    const inHand = this.#inHandOf(lease);
    if (inHand !== undefined && inHand.publication === undefined && isEmpty(publication, inHand)) {
      inHand.publication = publication;
      return;
    }
    if (inHand !== undefined) await this.#goAlone();
    await super.commit(lease, publication);
  }

  override async succeed(lease: ExportLease, contradictions: number, isDone: boolean): Promise<void> {
    const inHand = this.#inHandOf(lease);
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

  #inHandOf({ exportId }: ExportLease): InHand | undefined {
    return this.#inHand?.lease.exportId === exportId ? this.#inHand : undefined;
  }

  /** From here on the party in hand is exported as any other is. */
  async #goAlone(): Promise<void> {
    const inHand = this.#inHand;
    this.#inHand = undefined;
    if (inHand?.publication !== undefined) await super.commit(inHand.lease, inHand.publication);
  }

  #held(): readonly ExportLease[] {
    return [...this.#waiting.values(), ...this.#done].map(({ lease }) => lease);
  }

  async #renew(): Promise<void> {
    const sentAtMs = performance.now();
    const renewed = await renewLeases(this.#db, this.#held());
    for (const [partyId, { lease }] of this.#waiting)
      if (!renewed.has(lease.exportId)) this.#waiting.delete(partyId);
    this.#renewedAtMs = sentAtMs;
  }

  async #write(): Promise<readonly string[]> {
    const asking = this.#asking;
    // One that pauses between its requests lets others ask.
    if (asking === undefined) await this.#leave();
    const done = this.#done;
    this.#done = [];
    try {
      return await this.#commitAll(done, asking);
    } catch (error) {
      this.#done = [...done, ...this.#done];
      throw error;
    }
  }

  /** One that cannot be written keeps none of the others from it. @returns parties of which it was not written */
  async #commitAll(done: readonly Success[], asking: ExportLease | undefined): Promise<readonly string[]> {
    const [first, ...others] = done;
    if (first === undefined) return [];
    try {
      return await this.#commitTogether(done, asking);
    } catch (error) {
      const mayPass = error instanceof RetryableError && errorCode(error) !== 'COVERAGE_CHANGED';
      if (mayPass) throw error;
    }
    if (others.length === 0) {
      await super.release(first.lease);
      return [first.lease.scope.partyId];
    }
    const lost: string[] = [];
    for (const one of done) lost.push(...(await this.#commitAll([one], asking)));
    return lost;
  }

  /**
   * All of it in one transaction, and the leases are given back.
   * @param asking its request is under way, counted at the source in the place of one that is given back
   * @returns parties of which it was not written: their leases are no longer ours
   * @throws RetryableError `COVERAGE_CHANGED` where that of one is no longer what was planned on: nothing is written
   */
  async #commitTogether(
    done: readonly Success[],
    asking: ExportLease | undefined,
  ): Promise<readonly string[]> {
    const leases = done.map(({ lease }) => lease);
    const action = `record ${done.length} exports without entries`;
    const held = await inTransaction(this.#db, { action }, async (tx) => {
      const fenced = await fenceLeases(tx, leases);
      await commitEmpty(
        tx,
        done.filter(({ lease }) => fenced.has(lease.exportId)),
      );
      if (asking !== undefined)
        await sql`update mirror.exports set is_at_source = true
          where export_id = ${asking.exportId} and lease_token = ${asking.token}`.execute(tx);
      return fenced;
    });
    if (leases.some(({ exportId }) => exportId === this.#atSource?.exportId)) this.#atSource = asking;
    return leases.flatMap(({ exportId, scope }) => (held.has(exportId) ? [] : [scope.partyId]));
  }
}

/** No rows come with it, and none go. */
function isEmpty({ segments, closes, supersedes, coverage }: Publication, known: Leased): boolean {
  if (segments.length > 0 || closes.length > 0 || coverage.some(({ objectKey }) => objectKey !== undefined))
    return false;
  const withRows = known.coverage.filter(({ objectKey }) => objectKey !== undefined);
  return supersedes.every((id) => withRows.every(({ coverageId }) => coverageId !== id));
}
