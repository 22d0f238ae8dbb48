/** What was published, for those who read it back and those who clear up. */
import { sql } from 'kysely';
import { formatInstant, type Micros, readInstant } from '../../core/time.ts';
import type { ExportScope } from '../ports.ts';
import type { Database } from '../../postgres/database.ts';
import { lockObjects } from './export-locks.ts';
import { mapDatabaseError } from '../../postgres/transaction.ts';

const RETIRED_AT_ONCE = 500;

export interface Segment {
  readonly segmentId: bigint;
  readonly assetId: string | undefined;
  readonly from: Micros;
  readonly to: Micros;
  readonly open: boolean;
  readonly objectKey: string;
  readonly rows: bigint;
  readonly bytes: bigint;
  readonly columns: readonly string[];
}

export class ExportArchiveStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** This lineage of the warehouse, and how far its publications have been numbered. */
  identity(): Promise<{ warehouseId: string; publicationSeq: bigint }> {
    return mapDatabaseError('read the identity of the warehouse', () =>
      this.#db
        .selectFrom('identity')
        .select(['warehouse_id as warehouseId', 'publication_seq as publicationSeq'])
        .executeTakeFirstOrThrow(),
    );
  }

  /** Current segments that overlap the range, by time. */
  currentSegments(
    scope: ExportScope,
    range: { from: Micros; to?: Micros | undefined },
  ): Promise<readonly Segment[]> {
    return mapDatabaseError(`read the segments of party ${scope.partyId}`, async () => {
      const { assetId } = scope;
      let query = this.#db
        .selectFrom('segments')
        .select([
          'segment_id as segmentId',
          'asset_id as assetId',
          'from_time as from',
          'to_time as to',
          'open',
        ])
        .select(['object_key as objectKey', 'rows', 'bytes', 'columns'])
        .where('party_id', '=', scope.partyId)
        .where('status', '=', 'current')
        .where('to_time', '>', formatInstant(range.from))
        .orderBy('from_time')
        .orderBy('asset_id');
      if (range.to !== undefined) query = query.where('from_time', '<', formatInstant(range.to));
      if (assetId !== undefined) {
        query = query.where((eb) => eb.or([eb('asset_id', 'is', null), eb('asset_id', '=', assetId)]));
      }
      return (await query.execute()).map((row) => ({
        ...row,
        assetId: row.assetId ?? undefined,
        from: readInstant(row.from),
        to: readInstant(row.to),
      }));
    });
  }

  /**
   * Marks superseded segments as removed that have been so for longer than this, some at a time.
   * @returns their object keys, which nothing names any more; empty when all are done
   */
  retire(supersededForMs: number): Promise<readonly string[]> {
    return mapDatabaseError('retire superseded segments', async () => {
      const retired = await sql<{ object_key: string }>`
        update mirror.segments set removed_at = clock_timestamp()
        where segment_id in (
          select segment_id from mirror.segments
          where status = 'superseded' and removed_at is null
            and superseded_at < clock_timestamp() - ${supersededForMs} * interval '1 ms'
          order by segment_id limit ${RETIRED_AT_ONCE} for update skip locked)
        returning object_key`.execute(this.#db);
      return retired.rows.map((row) => row.object_key);
    });
  }

  /** Forgets segments whose objects were removed longer ago than this, and whose rows are in no table any more. */
  forget(removedForMs: number): Promise<void> {
    return mapDatabaseError('forget removed segments', async () => {
      await sql`
        delete from mirror.segments s
        where status = 'superseded' and loaded_at is null
          and removed_at < clock_timestamp() - ${removedForMs} * interval '1 ms'
          and not exists (select from mirror.segment_months m where m.segment_id = s.segment_id)
          and not exists (select from mirror.coverage c where c.segment_id = s.segment_id)`.execute(this.#db);
    });
  }

  /** Whether the database still knows the run that published something. */
  knowsRun(runId: string): Promise<boolean> {
    return mapDatabaseError('look for a run', async () => {
      // A run may be forgotten by age, while what it published is current; its party's later segments say so.
      const found = await sql<{ is_known: boolean }>`
        select exists (select from mirror.runs where run_id = ${runId}::uuid)
            or exists (select from mirror.segments where run_id = ${runId}::uuid)
            or exists (select from mirror.coverage where run_id = ${runId}::uuid)
            or exists (select from mirror.publications where plan ->> 'runId' = ${runId}) as is_known`.execute(
        this.#db,
      );
      return found.rows[0]?.is_known === true;
    });
  }

  /** Which of these object keys a segment or an open publication names. */
  referenced(objectKeys: readonly string[]): Promise<ReadonlySet<string>> {
    return mapDatabaseError('look up which objects are referenced', () => namedOf(this.#db, objectKeys));
  }

  /**
   * Runs `remove` where nothing names the object; until it is done, no publication comes to intend it.
   * @returns whether it ran
   */
  async removing(objectKey: string, remove: () => Promise<void>): Promise<boolean> {
    let failure: { readonly error: unknown } | undefined;
    const isRemoved = await mapDatabaseError(`see that nothing names ${objectKey}`, () =>
      this.#db.transaction().execute(async (tx) => {
        await lockObjects(tx, [objectKey]);
        if ((await namedOf(tx, [objectKey])).size > 0) return false;
        await remove().catch((error: unknown) => (failure = { error }));
        return true;
      }),
    );
    // The store's error, not the database's.
    if (failure !== undefined) throw failure.error;
    return isRemoved;
  }
}

async function namedOf(db: Database, objectKeys: readonly string[]): Promise<ReadonlySet<string>> {
  const named = await sql<{ object_key: string }>`
        select object_key from mirror.segments
        where object_key = any(${[...objectKeys]}::text[]) and removed_at is null
        union
        select planned -> 'manifest' ->> 'objectKey'
        from mirror.publications, jsonb_array_elements(plan -> 'segments') planned
        where state = 'intent' and planned -> 'manifest' ->> 'objectKey' = any(${[...objectKeys]}::text[])`.execute(
    db,
  );
  return new Set(named.rows.map((row) => row.object_key));
}
