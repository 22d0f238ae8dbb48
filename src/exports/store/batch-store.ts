/**
 * The repository of many parties that are exported one after another, most of them in vain: leased together, and what
 * brought no rows is written together. Rows are published at once, as by any other.
 */
import { sql } from 'kysely';
import { errorCode, RetryableError } from '../../errors/errors.ts';
import { keepLease, LEASE_TIMES } from '../../concurrency/lease.ts';
import { sharedLoad } from '../../concurrency/shared-load.ts';
import type { Database } from '../../postgres/database.ts';
import { inTransaction } from '../../postgres/transaction.ts';
import type { ExportScope } from '../ports.ts';
import { ExportStore } from './export-store.ts';
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
import type { SourceProfile } from './source-profile.ts';

/** For so long nobody asks again what is known of the source. */
const KNOWN_MS = 10_000;

export class BatchStore extends ExportStore implements AsyncDisposable {
  #readKnown = this.#shareKnown();
  /** Leased, and not begun. */
  readonly #waiting = new Map<string, ExportLease>();
  /** Finished, and not written. */
  #done: Success[] = [];
  /** By the token of its lease: an export may be leased again. */
  readonly #finished = new Set<string>();
  /** Of those that wait or are done; whoever works one renews it. */
  #renewedAtMs = performance.now();
  readonly #kept = keepLease({
    what: 'the exports of many parties',
    takenAtMs: this.#renewedAtMs,
    renew: () => this.#renew(),
    release: () => releaseLeases(this.db, this.#held()),
  });
  /** Counted at the source, for one request after another. */
  #atSource: ExportLease | undefined;
  /** Whose request is under way. */
  #asking: ExportLease | undefined;

  /** Leases those of the parties that nobody works on; where each asset is leased apart, none. */
  static async open(
    db: Database,
    partyIds: readonly string[],
    holder?: number,
  ): Promise<BatchStore> {
    await using stack = new AsyncDisposableStack();
    const store = stack.use(new BatchStore(db, holder));
    if ((await store.profile()).assetRequired !== true) {
      const action = `lease the exports of ${partyIds.length} parties`;
      const leases = await inTransaction(db, { action }, (tx) =>
        takeLeases(tx, partyIds, undefined, holder),
      );
      for (const lease of leases) store.#waiting.set(lease.scope.partyId, lease);
    }
    stack.move();
    return store;
  }

  /**
   * Writes what has ended; what cannot be written now is kept for the next call. To be called once at a time.
   * @returns parties whose export does not count: another has taken them over, or their coverage has changed
   */
  async write(): Promise<readonly string[]> {
    const asking = this.#asking;
    // One that pauses between its requests lets others ask.
    if (asking === undefined) await this.#leave();
    const done = this.#done;
    this.#done = [];
    try {
      return await this.#finishAll(done, asking);
    } catch (error) {
      this.#done = [...done, ...this.#done];
      throw error;
    }
  }

  /** Gives back the leases of parties that were not begun. */
  async giveBack(): Promise<void> {
    const leases = [...this.#waiting.values()];
    this.#waiting.clear();
    await releaseLeases(this.db, leases);
  }

  /** What was not written is lost with it, and asked for again by whoever has its party next. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#kept[Symbol.asyncDispose]();
  }

  override async acquire(scope: ExportScope): Promise<ExportLease | undefined> {
    const lease = this.#waiting.get(scope.partyId);
    this.#waiting.delete(scope.partyId);
    const { leaseMs, marginMs } = LEASE_TIMES;
    const isHeld = performance.now() - this.#renewedAtMs < leaseMs - marginMs;
    if (lease !== undefined && isHeld && scope.assetId === undefined)
      return { ...lease, takenAtMs: this.#renewedAtMs };
    if (lease !== undefined) await super.release(lease);
    return super.acquire(scope);
  }

  override async finish(success: Success): Promise<void> {
    this.#finished.add(success.lease.token);
    this.#done.push(success);
  }

  override async release(lease: ExportLease): Promise<void> {
    // Given back when it is written.
    if (this.#finished.has(lease.token)) return;
    if (this.#atSource?.exportId === lease.exportId) this.#atSource = undefined;
    await super.release(lease);
  }

  override async epoch(): Promise<number | undefined> {
    return (await this.#readKnown()).epoch;
  }

  override async profile(): Promise<SourceProfile> {
    return (await this.#readKnown()).profile;
  }

  override async learn(profile: SourceProfile): Promise<void> {
    await super.learn(profile);
    this.#readKnown = this.#shareKnown();
  }

  /** What is known of the source: others may learn more of it. */
  #shareKnown() {
    return sharedLoad(async () => {
      const [profile, epoch] = await Promise.all([super.profile(), super.epoch()]);
      return { profile, epoch };
    }, KNOWN_MS);
  }

  /** Rows came: while they are published, others may ask. */
  override async intend(lease: ExportLease, publication: Publication): Promise<void> {
    await this.#leave();
    await super.intend(lease, publication);
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

  #held(): readonly ExportLease[] {
    return [...this.#waiting.values(), ...this.#done.map(({ lease }) => lease)];
  }

  async #renew(): Promise<void> {
    const sentAtMs = performance.now();
    // Those that are taken meanwhile are not asked about.
    const held = this.#held();
    const renewed = await renewLeases(this.db, held);
    for (const { exportId, scope } of held)
      if (!renewed.has(exportId)) this.#waiting.delete(scope.partyId);
    this.#renewedAtMs = sentAtMs;
  }

  /** One that cannot be written keeps none of the others from it. @returns parties of which it was not written */
  async #finishAll(
    done: readonly Success[],
    asking: ExportLease | undefined,
  ): Promise<readonly string[]> {
    try {
      return done.length === 0 ? [] : await this.#finishTogether(done, asking);
    } catch (error) {
      if (error instanceof RetryableError && errorCode(error) !== 'COVERAGE_CHANGED')
        throw error;
    }
    const lost: string[] = [];
    for (const one of done) {
      if (done.length > 1) lost.push(...(await this.#finishAll([one], asking)));
      else {
        await super.release(one.lease);
        lost.push(one.lease.scope.partyId);
      }
    }
    return lost;
  }

  /**
   * All of it in one transaction, and the leases are given back.
   * @param asking its request is under way, counted at the source in the place of one that is given back
   * @returns parties of which it was not written: their leases are no longer ours
   * @throws RetryableError `COVERAGE_CHANGED` where that of one is no longer what was planned on: nothing is written
   */
  async #finishTogether(done: readonly Success[], asking: ExportLease | undefined) {
    const leases = done.map(({ lease }) => lease);
    const action = `record ${done.length} exports without entries`;
    const held = await inTransaction(this.db, { action }, async (tx) => {
      const fenced = await fenceLeases(tx, leases);
      const ours = done.filter(({ lease }) => fenced.has(lease.exportId));
      await finishExports(tx, ours);
      await releaseLeases(tx, leases);
      if (asking !== undefined)
        await sql`update mirror.exports set is_at_source = true
          where export_id = ${asking.exportId} and lease_token = ${asking.token}`.execute(
          tx,
        );
      return fenced;
    });
    if (leases.some(({ exportId }) => exportId === this.#atSource?.exportId))
      this.#atSource = asking;
    return leases.flatMap(({ exportId, scope }) =>
      held.has(exportId) ? [] : [scope.partyId],
    );
  }
}
