/** Whose ledger a nightly run asks for: planned, previewed, estimated. */
import { sql } from 'kysely';
import type { Database } from '../../../postgres/database.ts';
import { mapDatabaseError, readRow, readRows } from '../../../postgres/transaction.ts';
import { recordScope } from '../completeness.ts';
import {
  ASKED,
  consideredParties,
  dueParties,
  type NightlyScope,
  selectPartyIds,
  SAYS_OF_ALL,
} from './nightly-scope.ts';

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
interface Lateness {
  /** Parties of the run's scope that were not asked for longer than an idle one may wait. */
  readonly late: number;
  /** Of all ledgers, the earliest end of what is known; RFC 3339. */
  readonly oldestFrontier: string | null;
}

/** What is known of a run before it asks. */
export interface Estimate {
  readonly parties: number;
  readonly quarantined: number;
  /** No list was read yet: the parties are not known. */
  readonly isFirst: boolean;
  /** From export to export, in the last nightly run that exported anything. */
  readonly secondsPerExport: number | null;
}

export class NightlyPlans {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /**
   * Writes once whom the run asks, in a partition of its own, with what it leaves out; a resumed run finds both.
   * The order is `dueParties`'; those beyond `exportsMax` wait for another night. Leaving out an idle party loses
   * nothing: its next question starts where the last ended.
   */
  async plan(request: NightlyScope & { runId: string; exportsMax: number | undefined }): Promise<Plan> {
    const { runId, partyIds, exportsMax = null } = request;
    const isDeferred = sql`priority > ${exportsMax}::bigint`;
    const known = sql<
      Record<'plan', Plan | null>
    >`select params->'plan' as plan from mirror.runs where run_id = ${runId}`;
    const [run] = await readRows(this.#db, 'read the plan of the nightly run', known);
    if (run?.plan) return run.plan;
    return mapDatabaseError('plan the nightly run', async () => {
      const plan = await this.#db.transaction().execute(async (tx) => {
        await sql`select pg_advisory_xact_lock(mirror.lock_key('nightly plan'))`.execute(tx);
        await sql`do ${sql.lit(attachStatement(runId))}`.execute(tx);
        const planning = sql<Plan>`
          with ${dueParties(request)},
          written as (
            insert into mirror.nightly_units (run_id, party_id, priority, is_idle)
            select ${runId}, party_id, priority, rank in (2, 5) from due
            where ${exportsMax}::bigint is null or priority <= ${exportsMax}::bigint
            on conflict do nothing)
          select parties, parties - due as "notDue", due - deferred as asked, deferred, "deferredNeverAsked", "deferredSince"
            from (select count(*)::int as parties from considered) c,
                 (select count(*)::int as due, (count(*) filter (where ${isDeferred}))::int as deferred,
                         (count(*) filter (where ${isDeferred} and last_asked_at is null))::int as "deferredNeverAsked",
                         min(last_asked_at) filter (where ${isDeferred}) as "deferredSince" from due) d`;
        const planned = await readRow(tx, 'plan the nightly run', planning);
        await sql`update mirror.runs set params = params || ${JSON.stringify({ plan: planned })}::jsonb
          where run_id = ${runId}`.execute(tx);
        await recordScope(tx, partyIds);
        return planned;
      });
      // A table that has just been filled has no statistics: plans made without them read all of it for each row.
      await sql`analyze ${sql.id('mirror', namePartition(runId))}`.execute(this.#db);
      return plan;
    });
  }

  /** What `plan` would ask for now; who comes first does not matter for that. */
  async preview(
    scope: NightlyScope,
    exportsMax = Infinity,
  ): Promise<Pick<Plan, 'parties' | 'notDue' | 'asked' | 'deferred'>> {
    const counted = sql<{ parties: number; due: number }>`
      with ${consideredParties(scope)}
      select count(*)::int as parties, (count(*) filter (where is_due))::int as due from considered`;
    const { parties, due } = await readRow(this.#db, 'preview the nightly run', counted);
    const asked = Math.min(due, exportsMax);
    return { parties, notDue: parties - due, asked, deferred: due - asked };
  }

  /** @param daysMax how long a party may go unasked */
  lateness(daysMax: number, partyIds?: NightlyScope['partyIds']): Promise<Lateness> {
    const late = sql<Lateness>`
      with ${selectPartyIds(partyIds)}
      select (select count(*) from (${ASKED}) asked join ids using (party_id)
               where last_asked_at < clock_timestamp() - (${daysMax} + 1) * interval '1 day')::int as late,
             (select min(known_to) from (
               select max(to_time) as known_to from mirror.coverage where not open group by party_id, asset_id) ends)
               as "oldestFrontier"`;
    return readRow(this.#db, 'look for late ledgers', late);
  }

  estimate(partyIds: NightlyScope['partyIds']): Promise<Estimate> {
    const estimate = sql<Estimate>`
      with ${selectPartyIds(partyIds)}
      select (select count(*) from ids)::int as parties,
        (select count(distinct party_id) from mirror.exports join ids using (party_id)
           where quarantined_at is not null and ${SAYS_OF_ALL})::int as quarantined,
        not exists (select from mirror.runs where kind = 'sync' and state = 'done') as "isFirst",
        (select (evidence->'exports'->>'secondsPerExport')::float8 from mirror.runs
           where kind = 'nightly' and state = 'done' and evidence->'exports' ? 'secondsPerExport'
           order by queued_at desc limit 1) as "secondsPerExport"`;
    return readRow(this.#db, 'estimate the nightly run', estimate);
  }
}

/** Its rows are dropped with it, and counted apart from those of other runs. */
export function namePartition(runId: string): string {
  return `nightly_units_${runId.replaceAll('-', '')}`;
}

/** Attached, not created in place: that would wait for whoever reads the table, a backup for hours. */
function attachStatement(runId: string): string {
  const name = namePartition(runId);
  return `begin
    create table if not exists mirror.${name} (like mirror.nightly_units including all);
    if not exists (select from pg_inherits where inhrelid = 'mirror.${name}'::regclass) then
      alter table mirror.nightly_units attach partition mirror.${name} for values in ('${runId}');
    end if;
  end`;
}
