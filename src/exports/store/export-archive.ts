/** What was published, for those who read it back and those who clear up. */
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

export class ExportArchiveStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Until when any ledger is closed; undefined where none is. */
  async closedTo(): Promise<Micros | undefined> {
    const last = statement({ to: 'instant?' })`
      select max(to_time) as "to" from mirror.coverage where not open`;
    const { to } = await readRow(this.#db, 'read until when ledgers are closed', last);
    return to === null ? undefined : readInstant(to);
  }

  /** Ledgers that have two or more small segments with the same row form that end in one month before that instant. */
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
   * Marks superseded segments as removed that have been so for longer than this, some at a time.
   * @returns their object keys, which nothing names any more; empty when all are done
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
    const rows = await readRows(this.#db, 'retire superseded segments', retired);
    return rows.map(({ objectKey }) => objectKey);
  }

  /** Forgets segments whose objects were removed longer ago than this, and whose rows are in no table any more. */
  async forgetRemoved(removedForMs: number): Promise<void> {
    const removed = statement()`
      delete from mirror.segments s
      where status = 'superseded' and loaded_at is null
        and removed_at < clock_timestamp() - ${removedForMs} * interval '1 ms'
        and not exists (select from mirror.segment_months m where m.segment_id = s.segment_id)
        and not exists (select from mirror.coverage c where c.segment_id = s.segment_id)`;
    await execute(this.#db, 'forget removed segments', removed);
  }

  /** Whether this database has numbered an object's publication, and still knows the run that published it. */
  async isPublicationRecorded({ warehouseId, seq, runId }: Manifest): Promise<boolean> {
    // A run may be forgotten by age, while what it published is current; its party's later segments say so.
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

  /** Which of these object keys a segment or an open publication names. */
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
    const rows = await readRows(db, 'look up which objects are referenced', named);
    return new Set(rows.map(({ objectKey }) => objectKey));
  }

  /**
   * Runs `remove` where nothing names the object; until it is done, no publication comes to intend it.
   * @returns whether it ran
   */
  async removeIfUnreferenced(
    objectKey: string,
    remove: () => Promise<void>,
  ): Promise<boolean> {
    let failure: { readonly error: unknown } | undefined;
    const action = `see that nothing names ${objectKey}`;
    const isRemoved = await inTransaction(
      this.#db,
      { action, retries: 0 },
      async (tx) => {
        await lockEach(tx, 'object', [objectKey]);
        if ((await this.referenced([objectKey], tx)).size > 0) return false;
        try {
          await remove();
        } catch (error) {
          failure = { error };
        }
        return true;
      },
    );
    // The store's error, not the database's.
    if (failure !== undefined) throw failure.error;
    return isRemoved;
  }
}
