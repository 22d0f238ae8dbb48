/** The night's list: whose ledger is due, what became of it. The nightly verdict is computed from here. */
import { sql } from 'kysely';
import { evidenceJson } from '../../core/evidence.ts';
import type { Database } from '../../postgres/database.ts';
import { ASKED, dueUnits, type NightScope } from './night-scope.ts';
import { guarded } from '../../postgres/transaction.ts';

export type UnitState = 'due' | 'queued' | 'done' | 'failed' | 'deferred';

export interface NightlyCounts {
  readonly due: number;
  readonly queued: number;
  readonly done: number;
  readonly failed: number;
  readonly deferred: number;
}

export interface DueUnit {
  readonly partyId: string;
  /** Most likely nothing is new: many of them go into one job. */
  readonly isIdle: boolean;
}

export interface FailedUnit {
  readonly partyId: string;
  readonly outcome: Readonly<Record<string, unknown>> | undefined;
}

export interface PlanRequest extends NightScope {
  readonly runId: string;
  /** Units beyond this many wait for another night. */
  readonly exportsMax: number | undefined;
}

export interface Plan {
  /** Parties that were to be considered, asked or not. */
  readonly parties: number;
  readonly notDue: number;
}

/** How far back the ledgers reach that were asked the longest ago. */
export interface Lateness {
  /** Parties not asked for longer than an idle one may wait. */
  readonly late: number;
  /** Of all ledgers, the earliest end of what is known; RFC 3339. */
  readonly oldestFrontier: string | undefined;
}

/** Units of a night that wait for another one, because a night may ask only so many. */
export interface Deferral {
  /** When the one that waits the longest was asked the last time; RFC 3339. */
  readonly oldestAskedAt: string | undefined;
  /** Units among them that were never asked. */
  readonly neverAsked: number;
}

/** What is known of a run before it asks. */
export interface Estimate {
  readonly parties: number;
  readonly quarantined: number;
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
   * Writes the list once; a resumed run finds it. Order: quarantined units, parties never asked, those with
   * an entry in the last seven nights, those named as a counterparty lately, idle ones whose turn it is
   * (after 1, 2, 4, … nights, spread by their id). Skipping an idle party loses nothing: its next question
   * starts at its own frontier.
   */
  async plan(request: PlanRequest): Promise<Plan> {
    return guarded('plan the night', async () => {
      const exportsMax = request.exportsMax ?? null;
      const planned = await sql<{ parties: bigint; not_due: bigint }>`
        with ${dueUnits(request)},
        written as (
          insert into mirror.nightly_units (run_id, party_id, priority, is_idle, state)
          select ${request.runId}, party_id, priority, rank = 5,
                 case when ${exportsMax}::bigint is not null and priority > ${exportsMax}::bigint then 'deferred' else 'due' end
          from due where not exists (select from mirror.nightly_units where run_id = ${request.runId}))
        select (select count(*) from units) as parties,
               (select count(*) from units) - (select count(*) from due) as not_due`.execute(this.#db);
      const row = planned.rows[0];
      return { parties: Number(row?.parties ?? 0n), notDue: Number(row?.not_due ?? 0n) };
    });
  }

  /** What `plan` would write now. */
  async preview(request: NightScope): Promise<Plan> {
    return guarded('preview the night', async () => {
      const found = await sql<{ parties: bigint; not_due: bigint }>`
        with ${dueUnits(request)}
        select (select count(*) from units) as parties,
               (select count(*) from units) - (select count(*) from due) as not_due`.execute(this.#db);
      const row = found.rows[0];
      return { parties: Number(row?.parties ?? 0n), notDue: Number(row?.not_due ?? 0n) };
    });
  }

  /** Whether a slot is taken care of: by its own run, one that was going then or came later, or because the mirror is younger. */
  async hasNightSince(slotTime: string): Promise<boolean> {
    return guarded('look for the run of a slot', async () => {
      const found = await sql<{ has: boolean }>`
        select exists (select from mirror.runs where kind = 'nightly'
                       and coalesce(finished_at, clock_timestamp()) >= ${slotTime}::timestamptz)
            or exists (select from mirror.identity where created_at > ${slotTime}::timestamptz) as has`.execute(
        this.#db,
      );
      return found.rows[0]?.has === true;
    });
  }

  /** @param nightsMax how long a party may go unasked */
  async lateness(nightsMax: number): Promise<Lateness> {
    return guarded('look for late ledgers', async () => {
      const found = await sql<{ late: bigint; frontier: string | null }>`
        select (select count(*) from (${ASKED}) u
                 where last_asked_at < clock_timestamp() - (${nightsMax} + 1) * interval '1 day') as late,
               (select min(known_to) from (
                 select max(to_time) as known_to from mirror.coverage where not open group by party_id, asset_id) frontiers) as frontier`.execute(
        this.#db,
      );
      const row = found.rows[0];
      return { late: Number(row?.late ?? 0n), oldestFrontier: row?.frontier ?? undefined };
    });
  }

  async deferral(runId: string): Promise<Deferral> {
    return guarded('look for deferred ledgers', async () => {
      const found = await sql<{ oldest: string | null; never: bigint }>`
        select min(u.last_asked_at) as oldest, count(*) filter (where u.last_asked_at is null) as never
          from mirror.nightly_units n
          left join (${ASKED}) u on u.party_id = n.party_id
         where n.run_id = ${runId} and n.state = 'deferred'`.execute(this.#db);
      const row = found.rows[0];
      return { oldestAskedAt: row?.oldest ?? undefined, neverAsked: Number(row?.never ?? 0n) };
    });
  }

  async estimate(partyIds: readonly string[] | undefined): Promise<Estimate> {
    return guarded('estimate the night', async () => {
      const chosen = partyIds === undefined ? null : [...partyIds];
      const found = await sql<{
        parties: bigint;
        quarantined: bigint;
        walked: boolean;
        seconds: string | null;
      }>`
        select count(*) as parties, count(u.quarantined_at) as quarantined,
          exists (select from mirror.runs where kind = 'walk' and state = 'done') as walked,
          (select extract(epoch from max(updated_at) - min(r.started_at)) / nullif(count(*), 0)
             from mirror.nightly_units n join mirror.runs r using (run_id)
             where n.run_id = (select run_id from mirror.runs where kind = 'nightly' and state = 'done' order by queued_at desc limit 1)
               and n.state = 'done') as seconds
        from (select party_id from mirror.parties where ${chosen}::text[] is null
              union select unnest(${chosen}::text[])) ids
        left join (${ASKED}) u on u.party_id = ids.party_id
        where ids.party_id ~ '^[0-9a-f]{64}$'`.execute(this.#db);
      const row = found.rows[0];
      const seconds = row?.seconds ?? undefined;
      return {
        parties: Number(row?.parties ?? 0n),
        quarantined: Number(row?.quarantined ?? 0n),
        isFirst: row?.walked !== true,
        listRequests: LIST_REQUESTS,
        secondsPerExport: seconds === undefined ? undefined : Number(seconds),
      };
    });
  }

  /** Hands out the next units to queue, marking them; those marked earlier and lost are handed out again by `requeue`. */
  async take(runId: string, unitsMax: number): Promise<readonly DueUnit[]> {
    return guarded("take from the night's list", async () => {
      const taken = await sql<{ party_id: string; is_idle: boolean }>`
        with taken as (
          update mirror.nightly_units set state = 'queued', updated_at = clock_timestamp()
          where run_id = ${runId} and party_id in (
            select party_id from mirror.nightly_units where run_id = ${runId} and state = 'due'
            order by priority limit ${unitsMax} for update skip locked)
          returning party_id, is_idle, priority)
        select party_id, is_idle from taken order by priority`.execute(this.#db);
      return taken.rows.map((row) => ({ partyId: row.party_id, isIdle: row.is_idle }));
    });
  }

  /** Those of the given units that are not settled yet, in the order given. */
  async unsettled(runId: string, partyIds: readonly string[]): Promise<readonly string[]> {
    return guarded("read the night's list", async () => {
      const rows = await this.#db
        .selectFrom('nightly_units')
        .select('party_id')
        .where('run_id', '=', runId)
        .where('party_id', 'in', partyIds)
        .where('state', 'in', ['due', 'queued'])
        .execute();
      const open = new Set(rows.map((row) => row.party_id));
      return partyIds.filter((partyId) => open.has(partyId));
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

  /** Records what became of a unit, and whether its party was idle once more. */
  async settle(
    runId: string,
    partyId: string,
    state: 'done' | 'failed',
    outcome: Readonly<Record<string, unknown>>,
  ): Promise<void> {
    const isIdle = state === 'done' && outcome['rows'] === '0';
    await guarded("settle a unit of the night's list", () =>
      sql`
        with settled as (
          update mirror.nightly_units
          set state = ${state}, outcome = ${evidenceJson(outcome)}::jsonb, updated_at = clock_timestamp()
          where run_id = ${runId} and party_id = ${partyId} and state in ('due', 'queued') returning party_id)
        update mirror.exports u set idle_nights = case when ${isIdle} then u.idle_nights + 1 else 0 end
        from settled where ${state} = 'done' and u.party_id = settled.party_id`.execute(this.#db),
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
