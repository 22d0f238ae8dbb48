/** Whose ledger a nightly run asks for: planned, previewed, estimated. */
import { sql } from 'kysely';
import type { Database } from '../../postgres/database.ts';
import { mapDatabaseError } from '../../postgres/transaction.ts';
import { recordScope } from './completeness.ts';
import {
  ASKED,
  dueUnits,
  nightlyUnits,
  type NightlyScope,
  partyIdsOf,
  SAYS_OF_ALL,
} from './nightly-scope.ts';

export interface PlanRequest extends NightlyScope {
  readonly runId: string;
  /** Ledgers beyond this many wait for another nightly run. */
  readonly exportsMax: number | undefined;
}

/** What a nightly run is about. */
export interface Plan {
  /** Parties that were to be considered, asked or not. */
  readonly parties: number;
  readonly notDue: number;
  /** To be asked now. */
  readonly asked: number;
  /** Due, and left for another run because one may ask only so many. */
  readonly deferred: number;
  /** Those among them that were never asked. */
  readonly deferredNeverAsked: number;
  /** When the one that waits the longest was asked the last time; RFC 3339. */
  readonly deferredSince: string | null;
}

/** How far back the ledgers reach that were asked the longest ago. */
export interface Lateness {
  /** Parties not asked for longer than an idle one may wait. */
  readonly late: number;
  /** Of all ledgers, the earliest end of what is known; RFC 3339. */
  readonly oldestFrontier: string | undefined;
}

/** What is known of a run before it asks. */
export interface Estimate {
  readonly parties: number;
  readonly quarantined: number;
  /** No list was read yet: the parties are not known. */
  readonly isFirst: boolean;
  readonly listRequests: number;
  /** From export to export, in the last nightly run that exported anything. */
  readonly secondsPerExport: number | undefined;
}

/** The newest page and one that joins it, for each of the two lists, and one request for `network`. */
const LIST_REQUESTS = 5;

interface PlanRow {
  readonly parties: bigint;
  readonly not_due: bigint;
  readonly due: bigint;
  readonly never: bigint;
  readonly since: string | null;
}

export class NightlyPlans {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /**
   * Writes once whom the run asks, in a partition of its own, with what it leaves out; a resumed run finds both.
   * The order is `dueUnits`'. Leaving out an idle party loses nothing: its next question starts where the last ended.
   */
  async plan(request: PlanRequest): Promise<Plan> {
    const known = await this.#planned(request.runId);
    if (known !== undefined) return known;
    return mapDatabaseError('plan the nightly run', async () => {
      const plan = await this.#db.transaction().execute(async (tx) => {
        await sql`select pg_advisory_xact_lock(mirror.lock_key('nightly plan'))`.execute(tx);
        const partition = sql.id('mirror', partitionOf(request.runId));
        await sql`create table if not exists ${partition} (like mirror.nightly_units including all)`.execute(
          tx,
        );
        await sql`do ${sql.lit(attachStatement(request.runId))}`.execute(tx);
        const max = request.exportsMax ?? null;
        const found = await sql<PlanRow>`
          with ${dueUnits(request)},
          written as (
            insert into mirror.nightly_units (run_id, party_id, priority, is_idle)
            select ${request.runId}, party_id, priority, rank in (2, 5) from due
            where ${max}::bigint is null or priority <= ${max}::bigint
            on conflict do nothing)
          select (select count(*) from units) as parties,
                 (select count(*) from units) - (select count(*) from due) as not_due,
                 (select count(*) from due) as due,
                 count(*) filter (where last_asked_at is null) as never, min(last_asked_at) as since
            from due where priority > ${max}::bigint`.execute(tx);
        const planned = toPlan(found.rows[0], request.exportsMax);
        await sql`update mirror.runs set params = params || ${JSON.stringify({ plan: planned })}::jsonb
          where run_id = ${request.runId}`.execute(tx);
        await recordScope(tx, request.partyIds);
        return planned;
      });
      // A table that has just been filled has no statistics: plans made without them read all of it for each row.
      await sql`analyze ${sql.id('mirror', partitionOf(request.runId))}`.execute(this.#db);
      return plan;
    });
  }

  async #planned(runId: string): Promise<Plan | undefined> {
    return mapDatabaseError('read the plan of the nightly run', async () => {
      const found = await sql<{ plan: Plan | null }>`
        select params->'plan' as plan from mirror.runs where run_id = ${runId}`.execute(this.#db);
      return found.rows[0]?.plan ?? undefined;
    });
  }

  /** What `plan` would write now. */
  async preview(request: NightlyScope, exportsMax?: number): Promise<Plan> {
    return mapDatabaseError('preview the nightly run', async () => {
      if (exportsMax === undefined) {
        // Who comes first does not matter where all are asked.
        const counted = await sql<PlanRow>`
          with ${nightlyUnits(request)}
          select count(*) as parties, count(*) filter (where not is_due) as not_due,
                 count(*) filter (where is_due) as due, 0::bigint as never, null as since
            from units`.execute(this.#db);
        return toPlan(counted.rows[0], undefined);
      }
      const found = await sql<PlanRow>`
        with ${dueUnits(request)}
        select (select count(*) from units) as parties,
               (select count(*) from units) - (select count(*) from due) as not_due,
               (select count(*) from due) as due,
               count(*) filter (where last_asked_at is null) as never, min(last_asked_at) as since
          from due where priority > ${exportsMax}::bigint`.execute(this.#db);
      return toPlan(found.rows[0], exportsMax);
    });
  }

  /** @param daysMax how long a party may go unasked */
  async lateness(daysMax: number): Promise<Lateness> {
    return mapDatabaseError('look for late ledgers', async () => {
      const found = await sql<{ late: bigint; frontier: string | null }>`
        select (select count(*) from (${ASKED}) u
                 where last_asked_at < clock_timestamp() - (${daysMax} + 1) * interval '1 day') as late,
               (select min(known_to) from (
                 select max(to_time) as known_to from mirror.coverage where not open group by party_id, asset_id) frontiers) as frontier`.execute(
        this.#db,
      );
      const row = found.rows[0];
      return { late: Number(row?.late ?? 0n), oldestFrontier: row?.frontier ?? undefined };
    });
  }

  async estimate(partyIds: readonly string[] | undefined): Promise<Estimate> {
    return mapDatabaseError('estimate the nightly run', async () => {
      const found = await sql<{
        parties: bigint;
        quarantined: bigint;
        synced: boolean;
        seconds: number | null;
      }>`
        with ${partyIdsOf(partyIds)}
        select (select count(*) from ids) as parties,
          (select count(distinct party_id) from mirror.exports join ids using (party_id)
             where quarantined_at is not null and ${SAYS_OF_ALL}) as quarantined,
          exists (select from mirror.runs where kind = 'sync' and state = 'done') as synced,
          (select (evidence->'exports'->>'secondsPerExport')::float8 from mirror.runs
             where kind = 'nightly' and state = 'done' and evidence->'exports' ? 'secondsPerExport'
             order by queued_at desc limit 1) as seconds`.execute(this.#db);
      const row = found.rows[0];
      return {
        parties: Number(row?.parties ?? 0n),
        quarantined: Number(row?.quarantined ?? 0n),
        isFirst: row?.synced !== true,
        listRequests: LIST_REQUESTS,
        secondsPerExport: row?.seconds ?? undefined,
      };
    });
  }

  /** The closed segments of which the source still has a part for certain. */
  async auditable(retentionMs: number): Promise<{ readonly segments: number; readonly bytes: bigint }> {
    return mapDatabaseError('count the segments to audit', async () => {
      const found = await sql<{ segments: bigint; bytes: string }>`
        select count(*) as segments, coalesce(sum(bytes), 0) as bytes from mirror.segments
        where status = 'current' and not open
          and to_time > clock_timestamp() - ${retentionMs}::float8 * interval '1 millisecond'`.execute(
        this.#db,
      );
      const row = found.rows[0];
      return { segments: Number(row?.segments ?? 0n), bytes: BigInt(row?.bytes ?? 0) };
    });
  }
}

/** Its rows are dropped with it, and counted apart from those of other runs. */
export function partitionOf(runId: string): string {
  return `nightly_units_${runId.replaceAll('-', '')}`;
}

function attachStatement(runId: string): string {
  const name = partitionOf(runId);
  return `begin
    if not exists (select from pg_inherits where inhrelid = 'mirror.${name}'::regclass) then
      alter table mirror.nightly_units attach partition mirror.${name} for values in ('${runId}');
    end if;
  end`;
}

function toPlan(row: PlanRow | undefined, exportsMax: number | undefined): Plan {
  const due = Number(row?.due ?? 0n);
  const asked = Math.min(due, exportsMax ?? due);
  return {
    parties: Number(row?.parties ?? 0n),
    notDue: Number(row?.not_due ?? 0n),
    asked,
    deferred: due - asked,
    deferredNeverAsked: Number(row?.never ?? 0n),
    deferredSince: row?.since ?? null,
  };
}
