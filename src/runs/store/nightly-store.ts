/** The ledgers of a nightly run, and what became of them. The verdict is computed from here. */
import { sql } from 'kysely';
import { PermanentError } from '../../core/errors.ts';
import { evidenceJson } from '../../core/evidence.ts';
import type { Database } from '../../postgres/database.ts';
import { mapDatabaseError } from '../../postgres/transaction.ts';

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

const UNASKED_LISTED_MAX = 20;

export class NightlyStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Hands out the next ledgers to queue, marking them; those marked earlier and lost are handed out again by `requeue`. */
  async take(runId: string, unitsMax: number): Promise<readonly DueUnit[]> {
    return mapDatabaseError('take ledgers to export', async () => {
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
    return mapDatabaseError('read which ledgers are due', async () => {
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
    await mapDatabaseError('queue ledgers again', () =>
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
    await mapDatabaseError('record what became of ledgers', () =>
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
    return mapDatabaseError('count the ledgers of the nightly run', async () => {
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
    return mapDatabaseError('look for exports in hand', async () => {
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
    return mapDatabaseError('sum up the nightly run', async () => {
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
