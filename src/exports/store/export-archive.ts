/**
 * Finds the published segments to merge, and marks those to remove, for merging and
 * garbage collection.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { formatInstant, type Micros, readInstant } from '../../time/time.ts';
import type { Manifest } from '../../ledger/manifest.ts';
import type { MergeLimits } from '../merging/plan-merges.ts';
import type { ExportScope } from '../../ledger/export-scope.ts';
import type { Database } from '../../postgres/database.ts';
import { lockEach } from '../../catalog/leases.ts';
import { execute, readRow, readRows } from '../../postgres/run-statement.ts';
import { statement } from '../../postgres/statement.ts';
import { inTransaction } from '../../postgres/transaction.ts';

const RETIRED_AT_ONCE = 500;
/**
 * How often a transaction that is waiting for the store checks that its connection is
 * still alive.
 */
const CHECK_LOCK_EVERY_MS = 2_000;

/**
 * The right to delete an object, for as long as the database holds the lock on its key.
 */
export interface RemovalRight {
  /** Aborts when the work is aborted or the connection that holds the lock is lost. */
  readonly signal: AbortSignal;
  /**
   * Checks that the database still holds the lock. Call this before each delete.
   * @throws the database's error if the lock is lost
   */
  check(): Promise<void>;
}

export class ExportArchiveStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Returns the latest end of all closed ranges; undefined if no range is closed. */
  async closedTo(): Promise<Micros | undefined> {
    const last = statement({ to: 'instant?' })`
      select max(to_time) as "to" from mirror.coverage where not open`;
    const { to } = await readRow(
      this.#db,
      'read until when ledgers are closed',
      last,
    );
    return to === null ? undefined : readInstant(to);
  }

  /**
   * Lists ledgers with two or more small segments that have the same row form and end
   * in the same month, before the limit's instant.
   */
  async mergeable(
    { before, bytesMax }: MergeLimits,
    ledgersMax: number,
  ): Promise<readonly ExportScope[]> {
    const ledgers = statement({ partyId: 'text', assetId: 'text?' })`
      select party_id as "partyId", asset_id as "assetId" from mirror.segments
      where status = 'current' and not open and quarantine_reason is null
        and to_time <= ${formatInstant(before)}::timestamptz
        and 2 * bytes <= ${String(bytesMax)}::bigint
      group by party_id, asset_id
      having count(*) > count(distinct (
        date_trunc('month', to_time - interval '1 microsecond', 'UTC'), row_form))
      order by min(to_time), party_id limit ${ledgersMax}`;
    const rows = await readRows(this.#db, 'list what is to be merged', ledgers);
    return rows.map(({ partyId, assetId }) => ({
      partyId,
      assetId: assetId ?? undefined,
    }));
  }

  /**
   * Marks segments that have been superseded for longer than `supersededForMs` as
   * removed, at most 500 at a time.
   * @returns their object keys, which are no longer referenced; empty when all are done
   */
  async markRetired(supersededForMs: number): Promise<readonly string[]> {
    const retired = statement({ objectKey: 'text' })`
      update mirror.segments set removed_at = clock_timestamp()
      where segment_id in (
        select segment_id from mirror.segments
        where status = 'superseded' and removed_at is null
          and superseded_at < clock_timestamp() - ${supersededForMs} * interval '1 ms'
        order by segment_id limit ${RETIRED_AT_ONCE} for update skip locked)
      returning object_key as "objectKey"`;
    const rows = await readRows(
      this.#db,
      'retire superseded segments',
      retired,
    );
    return rows.map(({ objectKey }) => objectKey);
  }

  /**
   * Deletes the rows of segments whose objects were removed more than `removedForMs`
   * ago and whose entries are no longer in any table.
   */
  async forgetRemoved(removedForMs: number): Promise<void> {
    const removed = statement()`
      delete from mirror.segments s
      where status = 'superseded' and loaded_at is null
        and removed_at < clock_timestamp() - ${removedForMs} * interval '1 ms'
        and not exists (select from mirror.segment_months m where m.segment_id = s.segment_id)
        and not exists (select from mirror.coverage c where c.segment_id = s.segment_id)`;
    await execute(this.#db, 'forget removed segments', removed);
  }

  /**
   * Whether this database has assigned the number of an object's publication and still
   * knows the run that published it. If not, the object may be the only copy of its
   * rows.
   */
  async isPublicationRecorded({
    warehouseId,
    seq,
    runId,
  }: Manifest): Promise<boolean> {
    // An old run's row may be deleted while its segments are still current, so other
    // rows that reference the run are searched too.
    const known = statement({ isKnown: 'boolean' })`
      select warehouse_id = ${warehouseId}::uuid and publication_seq >= ${seq} and (
          exists (select from mirror.runs where run_id = ${runId}::uuid)
          or exists (select from mirror.segments where run_id = ${runId}::uuid)
          or exists (select from mirror.coverage where run_id = ${runId}::uuid)
          or exists (select from mirror.publications where plan ->> 'runId' = ${runId})) as "isKnown"
      from mirror.identity`;
    const action = 'look for the publication of an object';
    const { isKnown } = await readRow(this.#db, action, known);
    return isKnown;
  }

  /**
   * Returns those of the object keys that a segment or an open publication references.
   */
  async referenced(
    objectKeys: readonly string[],
    db: Database = this.#db,
  ): Promise<ReadonlySet<string>> {
    const keys = [...objectKeys];
    const named = statement({ objectKey: 'text' })`
      select object_key as "objectKey" from mirror.segments
      where object_key = any(${keys}::text[]) and removed_at is null
      union
      select planned -> 'manifest' ->> 'objectKey'
      from mirror.publications, jsonb_array_elements(plan -> 'segments') planned
      where state = 'intent' and planned -> 'manifest' ->> 'objectKey' = any(${keys}::text[])`;
    const rows = await readRows(
      db,
      'look up which objects are referenced',
      named,
    );
    return new Set(rows.map(({ objectKey }) => objectKey));
  }

  /**
   * Runs `remove` if the object is unreferenced. A lock on its key is held until
   * `remove` is done, so that no publication can intend the object in the meantime. If
   * the lock is lost, the right's signal aborts and its check throws, because a
   * publication may rely on the object by then.
   * @returns whether `remove` ran
   */
  async removeIfUnreferenced(
    objectKey: string,
    signal: AbortSignal,
    remove: (right: RemovalRight) => Promise<void>,
  ): Promise<boolean> {
    const action = `remove ${objectKey}`;
    let failure: { readonly error: unknown } | undefined;
    const isRemoved = await inTransaction(
      this.#db,
      { action, retries: 0 },
      async (tx) => {
        // A delete may take longer than the idle-in-transaction timeout allows.
        const patience = statement()`set local idle_in_transaction_session_timeout = '5min'`;
        await execute(tx, action, patience);
        await lockEach(tx, 'object', [objectKey]);
        const referenced = await this.referenced([objectKey], tx);
        if (referenced.size > 0) return false;
        await using right = new HeldLock(tx, action, signal);
        try {
          await remove(right);
        } catch (error) {
          // This error comes from the store and must not be mistaken for a database
          // error.
          failure = { error };
        }
        return true;
      },
    );
    if (failure !== undefined) throw failure.error;
    return isRemoved;
  }
}

/**
 * Watches the connection of a transaction that holds a lock while the object store
 * works. Without statements, Postgres would consider the transaction idle and end it.
 */
class HeldLock implements RemovalRight, AsyncDisposable {
  readonly signal: AbortSignal;
  readonly #tx: Database;
  readonly #action: string;
  readonly #lost = new AbortController();
  readonly #stopped = new AbortController();
  readonly #watching: Promise<void>;
  /**
   * The latest check. Each check waits for the previous one, because a connection
   * cannot run two statements at once.
   */
  #lastCheck: Promise<void> = Promise.resolve();

  constructor(tx: Database, action: string, signal: AbortSignal) {
    this.#tx = tx;
    this.#action = action;
    this.signal = AbortSignal.any([signal, this.#lost.signal]);
    this.#watching = this.#watch();
  }

  check(): Promise<void> {
    this.#lastCheck = this.#lastCheck.then(() => this.#query());
    // Each caller gets the failure from the promise that was returned to it.
    this.#lastCheck.catch(() => undefined);
    return this.#lastCheck;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stopped.abort();
    await this.#watching;
    await this.#lastCheck.catch(() => undefined);
  }

  async #query(): Promise<void> {
    this.signal.throwIfAborted();
    try {
      const ping = statement({ isAlive: 'boolean' })`select true as "isAlive"`;
      await readRow(this.#tx, this.#action, ping);
    } catch (error) {
      this.#lost.abort(error);
      throw error;
    }
  }

  async #watch(): Promise<void> {
    const { signal } = this.#stopped;
    while (!signal.aborted && !this.signal.aborted) {
      await sleep(CHECK_LOCK_EVERY_MS, undefined, { signal }).catch(
        () => undefined,
      );
      if (!signal.aborted) await this.check().catch(() => undefined);
    }
  }
}
