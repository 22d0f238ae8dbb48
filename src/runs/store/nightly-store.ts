/** Whose ledger a nightly run asks for, and what became of it. The verdict is computed from here. */
import { sql } from 'kysely';
import { PermanentError } from '../../core/errors.ts';
import { evidenceJson } from '../../core/evidence.ts';
import { NETWORK_PARTY } from '../../core/ids.ts';
import type { Database } from '../../postgres/database.ts';
import { recordScope } from './completeness.ts';
import { ASKED, dueUnits, type NightScope } from './night-scope.ts';
import { guarded } from '../../postgres/transaction.ts';

/** How far a nightly run has come. */
export interface NightlyCounts {
  readonly due: number;
  readonly queued: number;
  readonly done: number;
  readonly failed: number;
}

export interface DueUnit {
  readonly partyId: string;
  /** Most likely it brings nothing, as with all that are idle, and most that were never asked: many go into one job. */
  readonly isIdle: boolean;
}

export interface SettledUnit {
  readonly partyId: string;
  readonly state: 'done' | 'failed';
  readonly outcome: Readonly<Record<string, unknown>>;
}

export interface FailedUnit {
  readonly partyId: string;
  readonly outcome: Readonly<Record<string, unknown>> | undefined;
}

export interface PlanRequest extends NightScope {
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

export interface Summary {
  readonly rows: bigint;
  readonly bytes: bigint;
  readonly segments: bigint;
  readonly suspicious: number;
  /** Exports that ended without an error, and without having proven their ledger complete. */
  readonly incomplete: number;
  readonly failed: readonly FailedUnit[];
  /** The first of those that ended without an error, and not `complete`. */
  readonly doubted: readonly FailedUnit[];
  /** The first of those that were not asked. */
  readonly unasked: readonly string[];
}

/** The newest page and one that joins it, for each of the two lists, and one request for `network`. */
const LIST_REQUESTS = 5;
const UNASKED_LISTED_MAX = 20;

interface PlanRow {
  readonly parties: bigint;
  readonly not_due: bigint;
  readonly due: bigint;
  readonly never: bigint;
  readonly since: string | null;
}

export class NightlyStore {
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
    return guarded('plan the nightly run', async () => {
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
    return guarded('read the plan of the nightly run', async () => {
      const found = await sql<{ plan: Plan | null }>`
        select params->'plan' as plan from mirror.runs where run_id = ${runId}`.execute(this.#db);
      return found.rows[0]?.plan ?? undefined;
    });
  }

  /** What `plan` would write now. */
  async preview(request: NightScope, exportsMax?: number): Promise<Plan> {
    return guarded('preview the nightly run', async () => {
      const max = exportsMax ?? null;
      const found = await sql<PlanRow>`
        with ${dueUnits(request)}
        select (select count(*) from units) as parties,
               (select count(*) from units) - (select count(*) from due) as not_due,
               (select count(*) from due) as due,
               count(*) filter (where last_asked_at is null) as never, min(last_asked_at) as since
          from due where priority > ${max}::bigint`.execute(this.#db);
      return toPlan(found.rows[0], exportsMax);
    });
  }

  /**
   * Whether a scheduled time is taken care of: by a run that ended later and did not fail, by one that is going, or
   * because the mirror is younger. A run that failed brought nothing: it is tried again.
   */
  async hasNightSince(scheduledAt: string): Promise<boolean> {
    return guarded('look for the run of a scheduled time', async () => {
      const found = await sql<{ has: boolean }>`
        select exists (select from mirror.runs where kind = 'nightly'
                       and (state in ('queued', 'running')
                            or (finished_at >= ${scheduledAt}::timestamptz and verdict is distinct from 'failed')))
            or exists (select from mirror.identity where created_at > ${scheduledAt}::timestamptz) as has`.execute(
        this.#db,
      );
      return found.rows[0]?.has === true;
    });
  }

  /** Nightly runs that failed since a scheduled time, and when the last of them ended. */
  async failedSince(
    scheduledAt: string,
  ): Promise<{ readonly runs: number; readonly lastAt: string | undefined }> {
    return guarded('count failed nightly runs', async () => {
      const found = await sql<{ runs: bigint; last_at: string | null }>`
        select count(*) as runs, max(finished_at) as last_at from mirror.runs
         where kind = 'nightly' and verdict = 'failed' and finished_at >= ${scheduledAt}::timestamptz`.execute(
        this.#db,
      );
      const row = found.rows[0];
      return { runs: Number(row?.runs ?? 0n), lastAt: row?.last_at ?? undefined };
    });
  }

  /** Whether a list was read as a whole since then, or the mirror is younger. */
  async hasAuditSince(list: string, scheduledAt: string): Promise<boolean> {
    return guarded('look for an audit', async () => {
      const found = await sql<{ has: boolean }>`
        select exists (select from mirror.runs where kind = 'sync' and subject = ${list} and params->>'full' = 'true'
                       and (state in ('queued', 'running') or finished_at >= ${scheduledAt}::timestamptz))
            or exists (select from mirror.identity where created_at > ${scheduledAt}::timestamptz) as has`.execute(
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

  async estimate(partyIds: readonly string[] | undefined): Promise<Estimate> {
    return guarded('estimate the nightly run', async () => {
      const chosen = partyIds === undefined ? null : [...partyIds];
      const found = await sql<{
        parties: bigint;
        quarantined: bigint;
        synced: boolean;
        seconds: number | null;
      }>`
        select count(*) as parties, count(u.quarantined_at) as quarantined,
          exists (select from mirror.runs where kind = 'sync' and state = 'done') as synced,
          (select (evidence->'exports'->>'secondsPerExport')::float8 from mirror.runs
             where kind = 'nightly' and state = 'done' and evidence->'exports' ? 'secondsPerExport'
             order by queued_at desc limit 1) as seconds
        from (select party_id from mirror.parties where ${chosen}::text[] is null
              union select unnest(${chosen}::text[])) ids
        left join (${ASKED}) u on u.party_id = ids.party_id
        where ids.party_id <> ${NETWORK_PARTY}`.execute(this.#db);
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
    return guarded('count the segments to audit', async () => {
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

  /** Hands out the next ledgers to queue, marking them; those marked earlier and lost are handed out again by `requeue`. */
  async take(runId: string, unitsMax: number): Promise<readonly DueUnit[]> {
    return guarded('take ledgers to export', async () => {
      const taken = await sql<{ party_id: string; is_idle: boolean }>`
        with picked as materialized (
          select party_id from mirror.nightly_units where run_id = ${runId} and state = 'due'
          order by priority limit ${unitsMax} for update skip locked),
        taken as (
          update mirror.nightly_units n set state = 'queued', updated_at = clock_timestamp()
          from picked where n.run_id = ${runId} and n.party_id = picked.party_id
          returning n.party_id, n.is_idle, n.priority)
        select party_id, is_idle from taken order by priority`.execute(this.#db);
      return taken.rows.map((row) => ({ partyId: row.party_id, isIdle: row.is_idle }));
    });
  }

  /** Those of the given ledgers that are not settled yet, in the order given. */
  async unsettled(runId: string, partyIds: readonly string[]): Promise<readonly string[]> {
    return guarded('read which ledgers are due', async () => {
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
    await guarded('queue ledgers again', () =>
      sql`update mirror.nightly_units set state = 'due' where run_id = ${runId} and state = 'queued'`.execute(
        this.#db,
      ),
    );
  }

  /**
   * Records what became of ledgers, and which of their parties were idle once more; one statement for all of them.
   * What of an outcome cannot be written down is left out: a night must not wait for ever for what it says.
   */
  async settle(runId: string, units: readonly SettledUnit[]): Promise<void> {
    try {
      await this.#settle(runId, units);
    } catch (error) {
      if (!(error instanceof PermanentError)) throw error;
      const [unit, ...others] = units;
      if (unit === undefined) return;
      // The one that is refused is found by itself.
      if (others.length === 0) await this.#settle(runId, [bare(unit)]);
      else for (const one of units) await this.settle(runId, [one]);
    }
  }

  async #settle(runId: string, units: readonly SettledUnit[]): Promise<void> {
    // Each by itself: one that cannot be read spoils no other.
    const given = units.map(
      ({ partyId, state, outcome }) =>
        `{"party_id": ${JSON.stringify(partyId)}, "state": "${state}", "outcome": ${evidenceJson(outcome)}}`,
    );
    await guarded('record what became of ledgers', () =>
      sql`
        with given as materialized (
          select * from jsonb_to_recordset(${`[${given.join(',')}]`}::jsonb) as t(party_id text, state text, outcome jsonb)),
        settled as (
          update mirror.nightly_units n
          set state = given.state, outcome = given.outcome, updated_at = clock_timestamp()
          from given
          where n.run_id = ${runId} and n.party_id = given.party_id and n.state in ('due', 'queued')
          returning n.party_id, n.state, n.outcome->>'rows' = '0' as is_idle)
        update mirror.exports u set idle_nights = case when settled.is_idle then u.idle_nights + 1 else 0 end
        from settled where settled.state = 'done' and u.party_id = settled.party_id`.execute(this.#db),
    );
  }

  /**
   * @param asked how many were planned: those that are neither open nor failed are done
   * @param due where it is known how many are not handed out: they are not counted
   */
  async counts(runId: string, asked: number, due?: number): Promise<NightlyCounts> {
    return guarded('count the ledgers of the nightly run', async () => {
      const found = await sql<{ due: bigint; queued: bigint; failed: bigint }>`
        select coalesce(${due ?? null}::bigint,
                 (select count(*) from mirror.nightly_units where run_id = ${runId} and state = 'due')) as due,
               (select count(*) from mirror.nightly_units where run_id = ${runId} and state = 'queued') as queued,
               (select count(*) from mirror.nightly_units where run_id = ${runId} and state = 'failed') as failed`.execute(
        this.#db,
      );
      const row = found.rows[0];
      const open = { due: Number(row?.due ?? 0n), queued: Number(row?.queued ?? 0n) };
      const failed = Number(row?.failed ?? 0n);
      return { ...open, failed, done: Math.max(0, asked - open.due - open.queued - failed) };
    });
  }

  /** Whether somebody exports a ledger now. */
  async isExporting(): Promise<boolean> {
    return guarded('look for exports in hand', async () => {
      const found = await sql<{ has: boolean }>`
        select exists (select from mirror.exports
          where lease_until > clock_timestamp() and mirror.is_leased(lease_until, lease_holder)) as has`.execute(
        this.#db,
      );
      return found.rows[0]?.has === true;
    });
  }

  /** What the exports of a run brought, added up, and the first of those that failed or were not asked. */
  async summary(runId: string, failedMax: number): Promise<Summary> {
    return guarded('sum up the nightly run', async () => {
      const sums = await sql<{
        rows: string;
        bytes: string;
        segments: string;
        suspicious: bigint;
        incomplete: bigint;
      }>`
        select coalesce(sum((outcome->>'rows')::numeric), 0) as rows, coalesce(sum((outcome->>'bytes')::numeric), 0) as bytes,
               coalesce(sum((outcome->>'segments')::numeric), 0) as segments,
               count(*) filter (where outcome->>'verdict' = 'suspicious') as suspicious,
               count(*) filter (where state = 'done' and outcome->>'verdict' in ('incomplete', 'failed')) as incomplete
        from mirror.nightly_units where run_id = ${runId}`.execute(this.#db);
      const failed = await this.#named(runId, ['failed'], failedMax);
      const doubted =
        (sums.rows[0]?.suspicious ?? 0n) + (sums.rows[0]?.incomplete ?? 0n) === 0n
          ? []
          : await this.#doubted(runId, failedMax);
      const unasked = await this.#named(runId, ['due', 'queued'], UNASKED_LISTED_MAX);
      const row = sums.rows[0];
      return {
        rows: BigInt(row?.rows ?? 0),
        bytes: BigInt(row?.bytes ?? 0),
        segments: BigInt(row?.segments ?? 0),
        suspicious: Number(row?.suspicious ?? 0n),
        incomplete: Number(row?.incomplete ?? 0n),
        failed,
        doubted,
        unasked: unasked.map(({ partyId }) => partyId),
      };
    });
  }

  async #doubted(runId: string, unitsMax: number): Promise<readonly FailedUnit[]> {
    const found = await sql<{ party_id: string; outcome: Record<string, unknown> }>`
      select party_id, jsonb_strip_nulls(jsonb_build_object('verdict', outcome->'verdict', 'reason', outcome->'reason',
               'findings', outcome->'findings', 'kept', outcome->'kept', 'audited', outcome->'audited')) as outcome
      from mirror.nightly_units
      where run_id = ${runId} and state = 'done' and outcome->>'verdict' <> 'complete'
      order by priority limit ${unitsMax}`.execute(this.#db);
    return found.rows.map((row) => ({ partyId: row.party_id, outcome: row.outcome }));
  }

  async #named(
    runId: string,
    states: readonly ('due' | 'queued' | 'failed')[],
    unitsMax: number,
  ): Promise<readonly FailedUnit[]> {
    const rows = await this.#db
      .selectFrom('nightly_units')
      .select(['party_id', 'outcome'])
      .where('run_id', '=', runId)
      .where('state', 'in', states)
      .orderBy('priority')
      .limit(unitsMax)
      .execute();
    return rows.map((unit) => ({ partyId: unit.party_id, outcome: unit.outcome ?? undefined }));
  }
}

/** That it was settled is all that can be said. */
function bare({ partyId, state }: SettledUnit): SettledUnit {
  return { partyId, state, outcome: { verdict: 'incomplete', code: 'EVIDENCE_UNREADABLE' } };
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
