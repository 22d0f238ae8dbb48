/** The night's list: whose ledger is due, what became of it. The nightly verdict is computed from here. */
import { sql } from 'kysely';
import type { Database } from './database.ts';
import { guarded } from './transaction.ts';

export type UnitState = 'due' | 'queued' | 'done' | 'failed' | 'deferred';

export interface NightlyCounts {
  readonly due: number;
  readonly queued: number;
  readonly done: number;
  readonly failed: number;
  readonly deferred: number;
}

export interface FailedUnit {
  readonly partyId: string;
  readonly outcome: Readonly<Record<string, unknown>> | undefined;
}

export interface PlanRequest {
  readonly runId: string;
  /** undefined: every party of the list that can be exported. */
  readonly partyIds: readonly string[] | undefined;
  /** Units beyond this many wait for another night. */
  readonly exportsMax: number | undefined;
}

/** What a run would ask, before it asks. */
export interface Estimate {
  readonly due: number;
  readonly setAside: number;
  /** No list was walked yet: the parties are not known. */
  readonly isFirst: boolean;
  readonly listRequests: number;
  /** As measured in the last run that exported anything. */
  readonly secondsPerExport: number | undefined;
}

/** A head probe and one page that joins it, for each of the two lists, and one for `network`. */
const LIST_REQUESTS = 5;

export class NightlyStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /**
   * Writes the list once; a resumed run finds it. Order: set-aside units, never asked, with an entry in
   * the last seven days, then those unasked the longest.
   */
  async plan(request: PlanRequest): Promise<void> {
    await guarded('plan the night', async () => {
      const exportsMax = request.exportsMax ?? null;
      const chosen = request.partyIds === undefined ? null : [...request.partyIds];
      await sql`
        insert into mirror.nightly_units (run_id, party_id, priority, state)
        select ${request.runId}, party_id, priority,
               case when ${exportsMax}::bigint is not null and priority > ${exportsMax}::bigint then 'deferred' else 'due' end
        from (
          select ids.party_id, row_number() over (order by
                   u.set_aside_at is null, u.last_asked_at is not null,
                   coalesce(u.last_entry_at < clock_timestamp() - interval '7 days', true), u.last_asked_at, ids.party_id)::int as priority
          from (select party_id from mirror.parties where ${chosen}::text[] is null
                union select unnest(${chosen}::text[])) ids
          left join mirror.export_units u on u.party_id = ids.party_id and u.asset_id is null
          where ids.party_id ~ '^[0-9a-f]{64}$') planned
        on conflict do nothing`.execute(this.#db);
    });
  }

  async estimate(partyIds: readonly string[] | undefined): Promise<Estimate> {
    return guarded('estimate the night', async () => {
      const chosen = partyIds === undefined ? null : [...partyIds];
      const found = await sql<{ due: bigint; set_aside: bigint; walked: boolean; seconds: string | null }>`
        select count(*) as due, count(u.set_aside_at) as set_aside,
          exists (select from mirror.runs where kind = 'walk' and state = 'done') as walked,
          (select extract(epoch from max(updated_at) - min(r.started_at)) / nullif(count(*), 0)
             from mirror.nightly_units n join mirror.runs r using (run_id)
             where n.run_id = (select run_id from mirror.runs where kind = 'nightly' and state = 'done' order by queued_at desc limit 1)
               and n.state = 'done') as seconds
        from (select party_id from mirror.parties where ${chosen}::text[] is null
              union select unnest(${chosen}::text[])) ids
        left join mirror.export_units u on u.party_id = ids.party_id and u.asset_id is null
        where ids.party_id ~ '^[0-9a-f]{64}$'`.execute(this.#db);
      const row = found.rows[0];
      const seconds = row?.seconds ?? undefined;
      return {
        due: Number(row?.due ?? 0n),
        setAside: Number(row?.set_aside ?? 0n),
        isFirst: row?.walked !== true,
        listRequests: LIST_REQUESTS,
        secondsPerExport: seconds === undefined ? undefined : Number(seconds),
      };
    });
  }

  /** Hands out the next units to queue, marking them; those marked earlier and lost are handed out again by `requeue`. */
  async take(runId: string, unitsMax: number): Promise<readonly string[]> {
    return guarded("take from the night's list", async () => {
      const taken = await sql<{ party_id: string }>`
        update mirror.nightly_units set state = 'queued', updated_at = clock_timestamp()
        where run_id = ${runId} and party_id in (
          select party_id from mirror.nightly_units where run_id = ${runId} and state = 'due'
          order by priority limit ${unitsMax} for update skip locked)
        returning party_id`.execute(this.#db);
      return taken.rows.map((row) => row.party_id);
    });
  }

  /** After a crash or a flushed queue nobody knows which jobs still exist: queueing one twice is harmless. */
  async requeue(runId: string): Promise<void> {
    await guarded("requeue the night's list", () =>
      sql`update mirror.nightly_units set state = 'due' where run_id = ${runId} and state = 'queued'`.execute(
        this.#db,
      ),
    );
  }

  async settle(
    runId: string,
    partyId: string,
    state: 'done' | 'failed',
    outcome: Readonly<Record<string, unknown>>,
  ): Promise<void> {
    await guarded("settle a unit of the night's list", () =>
      sql`update mirror.nightly_units set state = ${state}, outcome = ${JSON.stringify(outcome)}::jsonb, updated_at = clock_timestamp()
          where run_id = ${runId} and party_id = ${partyId}`.execute(this.#db),
    );
  }

  async counts(runId: string): Promise<NightlyCounts> {
    return guarded("count the night's list", async () => {
      const found = await sql<{ state: UnitState; units: bigint }>`
        select state, count(*) as units from mirror.nightly_units where run_id = ${runId} group by state`.execute(
        this.#db,
      );
      const counts = { due: 0, queued: 0, done: 0, failed: 0, deferred: 0 };
      for (const row of found.rows) counts[row.state] = Number(row.units);
      return counts;
    });
  }

  /** What the exports of a run brought, added up, and the first of those that failed. */
  async summary(
    runId: string,
    failedMax: number,
  ): Promise<{
    rows: bigint;
    bytes: bigint;
    segments: bigint;
    suspicious: number;
    failed: readonly FailedUnit[];
  }> {
    return guarded("sum up the night's list", async () => {
      const sums = await sql<{ rows: string; bytes: string; segments: string; suspicious: bigint }>`
        select coalesce(sum((outcome->>'rows')::numeric), 0) as rows, coalesce(sum((outcome->>'bytes')::numeric), 0) as bytes,
               coalesce(sum((outcome->>'segments')::numeric), 0) as segments,
               count(*) filter (where outcome->>'verdict' = 'suspicious') as suspicious
        from mirror.nightly_units where run_id = ${runId}`.execute(this.#db);
      const failed = await this.#db
        .selectFrom('nightly_units')
        .select(['party_id', 'outcome'])
        .where('run_id', '=', runId)
        .where('state', '=', 'failed')
        .orderBy('priority')
        .limit(failedMax)
        .execute();
      const row = sums.rows[0];
      return {
        rows: BigInt(row?.rows ?? 0),
        bytes: BigInt(row?.bytes ?? 0),
        segments: BigInt(row?.segments ?? 0),
        suspicious: Number(row?.suspicious ?? 0n),
        failed: failed.map((unit) => ({ partyId: unit.party_id, outcome: unit.outcome ?? undefined })),
      };
    });
  }
}
