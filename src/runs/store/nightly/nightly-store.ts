/**
 * Stores the ledgers of a nightly run and their outcomes. The run's verdict is computed
 * from these rows.
 */
import { type RawBuilder, sql } from 'kysely';
import { PermanentError } from '../../../errors/errors.ts';
import { evidenceJson } from '../../../json/json-value.ts';
import type { Database } from '../../../postgres/database.ts';
import { builder } from '../../../postgres/builder.ts';
import {
  execute,
  findRow,
  readRow,
  readRows,
} from '../../../postgres/run-statement.ts';
import { statement, typed } from '../../../postgres/statement.ts';

/** A nightly run's progress: the number of its ledgers in each state. */
export type NightlyCounts = Readonly<
  Record<'due' | 'queued' | 'done' | 'failed', number>
>;

export interface DueLedger {
  readonly partyId: string;
  /**
   * True if the export is likely to return nothing, as for all idle parties and most that
   * were never requested. Many of these go into one job.
   */
  readonly isIdle: boolean;
}

export interface SettledLedger {
  readonly partyId: string;
  readonly state: 'done' | 'failed';
  readonly outcome: Readonly<Record<string, unknown>>;
}

/** The results of a run's exports, as evidence. */
export interface NightlySummary extends Readonly<Record<string, unknown>> {
  readonly suspicious: number;
  /** Exports that ended without an error but did not prove their ledger complete. */
  readonly incomplete: number;
  /** The first few ledgers that failed. */
  readonly failures?: readonly {
    readonly partyId: string;
    readonly outcome: {
      readonly error?: { readonly code: string; readonly sourceAway?: boolean };
    } | null;
  }[];
}

const SUMMARY_COLUMNS = {
  newRows: 'numeric',
  replacedRows: 'numeric',
  newBytes: 'numeric',
  newSegments: 'numeric',
  suspicious: 'int',
  incomplete: 'int',
  failures: typed<readonly object[] | null>('json?'),
  doubted: typed<readonly object[] | null>('json?'),
  unaskedParties: typed<readonly string[] | null>('json?'),
} as const;

const LISTED_MAX = 20;
/** Added to the priority of a postponed ledger; higher than any priority in a plan. */
const BEHIND_ALL = 100_000_000;
/**
 * Stands in for an outcome that cannot be stored; it records only that the ledger was
 * settled.
 */
const UNREADABLE = { verdict: 'incomplete', code: 'EVIDENCE_UNREADABLE' };
/** The part of the evidence shown for a ledger that was not proven complete. */
const DOUBT = sql`jsonb_strip_nulls(jsonb_build_object(
  'verdict', outcome->'verdict', 'reason', outcome->'reason',
  'findings', outcome->'findings', 'kept', outcome->'kept', 'audited', outcome->'audited'))`;

export class NightlyStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /**
   * Returns the next ledgers to queue and marks them as queued. If they are lost with
   * their queue, `requeue` makes them available again.
   */
  take(runId: string, ledgersMax: number): Promise<readonly DueLedger[]> {
    const taken = statement({ partyId: 'text', isIdle: 'boolean' })`
      with picked as materialized (
        select party_id from mirror.nightly_units
        where run_id = ${runId} and state = 'due'
        order by priority limit ${ledgersMax} for update skip locked),
      taken as (
        update mirror.nightly_units n set state = 'queued', updated_at = clock_timestamp()
        from picked where n.run_id = ${runId} and n.party_id = picked.party_id
        returning n.party_id, n.is_idle, n.priority)
      select party_id as "partyId", is_idle as "isIdle" from taken order by priority`;
    return readRows(this.#db, 'take ledgers to export', taken);
  }

  /** Returns the given ledgers that are not settled yet, in the order of the plan. */
  async unsettled(
    runId: string,
    partyIds: readonly string[],
  ): Promise<readonly string[]> {
    const unsettled = statement({ partyId: 'text' })`
      select party_id as "partyId" from mirror.nightly_units
      where run_id = ${runId} and party_id = any(${[...partyIds]})
        and state in ('due', 'queued') order by priority`;
    const ledgers = await readRows(
      this.#db,
      'read which ledgers are due',
      unsettled,
    );
    return ledgers.map(({ partyId }) => partyId);
  }

  /**
   * Makes all queued ledgers due again. After a crash or a flushed queue it is unknown
   * which jobs still exist, but queueing a ledger twice is harmless.
   */
  async requeue(runId: string): Promise<void> {
    const requeued = builder
      .updateTable('mirror.nightly_units')
      .set({ state: 'due' })
      .where('run_id', '=', runId)
      .where('state', '=', 'queued');
    await execute(this.#db, 'queue ledgers again', requeued);
  }

  /**
   * Records the outcomes of ledgers, and which of their parties were idle again, in one
   * statement. An outcome that the database rejects is replaced by a short one, because a
   * night must not wait forever for a piece of evidence.
   */
  async settle(
    runId: string,
    ledgers: readonly SettledLedger[],
  ): Promise<void> {
    try {
      await this.#settle(runId, ledgers);
    } catch (error) {
      if (!(error instanceof PermanentError)) throw error;
      const [ledger, ...others] = ledgers;
      if (ledger === undefined) return;
      // Recording each ledger by itself finds the one that is rejected.
      if (others.length === 0)
        await this.#settle(runId, [{ ...ledger, outcome: UNREADABLE }]);
      else for (const one of ledgers) await this.settle(runId, [one]);
    }
  }

  async #settle(
    runId: string,
    ledgers: readonly SettledLedger[],
  ): Promise<void> {
    // Each outcome is encoded separately, so that one that cannot be encoded does not
    // affect the others.
    const given = ledgers.map(
      ({ partyId, state, outcome }) =>
        `{"party_id": ${JSON.stringify(partyId)}, "state": "${state}", "outcome": ${evidenceJson(outcome)}}`,
    );
    const settlement = statement()`
      with given as materialized (
        select * from jsonb_to_recordset(${`[${given.join(',')}]`}::jsonb)
          as t(party_id text, state text, outcome jsonb)),
      settled as (
        update mirror.nightly_units n
        set state = given.state, outcome = given.outcome, updated_at = clock_timestamp()
        from given
        where n.run_id = ${runId} and n.party_id = given.party_id
          and n.state in ('due', 'queued')
        returning n.party_id, n.state, n.outcome->>'rows' = '0' as is_idle)
      update mirror.exports u
      set idle_nights = case when settled.is_idle then u.idle_nights + 1 else 0 end
      from settled where settled.state = 'done' and u.party_id = settled.party_id`;
    await execute(this.#db, 'record what became of ledgers', settlement);
  }

  /**
   * Moves a ledger behind the others of its run, and stores the reason.
   * @returns how many turns it has had
   */
  async postpone(
    runId: string,
    partyId: string,
    error: Readonly<Record<string, unknown>>,
  ): Promise<number> {
    const postponed = statement({ turns: 'int' })`
      update mirror.nightly_units
      set state = 'due', is_idle = false, priority = priority + ${BEHIND_ALL}::int,
        outcome = ${evidenceJson({ error })}::jsonb
          || jsonb_build_object('turns', coalesce((outcome->>'turns')::int, 0) + 1),
        updated_at = clock_timestamp()
      where run_id = ${runId} and party_id = ${partyId} and state in ('due', 'queued')
      returning (outcome->>'turns')::int as turns`;
    const row = await findRow(this.#db, 'postpone a ledger', postponed);
    // No row: another delivery of the job has settled the ledger.
    return row?.turns ?? 0;
  }

  /**
   * Returns the number of turns that a ledger has had, and whether another ledger is
   * still waiting to be started.
   */
  turnsOf(
    runId: string,
    partyId: string,
  ): Promise<{ readonly turns: number; readonly isOtherWaiting: boolean }> {
    const looked = statement({ turns: 'int', isOtherWaiting: 'boolean' })`
      select exists (
          select from mirror.nightly_units n
          where n.run_id = ${runId} and n.state in ('due', 'queued')
            and n.party_id <> ${partyId}
            and not exists (
              select from mirror.exports e
              where e.party_id = n.party_id and e.lease_until > clock_timestamp()
                and mirror.is_leased(e.lease_until, e.lease_holder))) as "isOtherWaiting",
        coalesce((
          select (outcome->>'turns')::int from mirror.nightly_units
          where run_id = ${runId} and party_id = ${partyId}), 0) as turns`;
    return readRow(this.#db, 'look at the turns of a ledger', looked);
  }

  /**
   * Counts ledgers by state.
   * @param asked the number of planned ledgers; those neither open nor failed count as
   *   done
   */
  async counts(runId: string, asked: number): Promise<NightlyCounts> {
    const count = (state: string) =>
      sql`(select count(*) from mirror.nightly_units
        where run_id = ${runId} and state = ${sql.lit(state)})::int`;
    const counted = statement({ due: 'int', queued: 'int', failed: 'int' })`
      select ${count('due')} as due, ${count('queued')} as queued,
        ${count('failed')} as failed`;
    const open = await readRow(
      this.#db,
      'count the ledgers of the nightly run',
      counted,
    );
    return {
      ...open,
      done: Math.max(0, asked - open.due - open.queued - open.failed),
    };
  }

  /** Whether any ledger is being exported now. */
  isExporting(): Promise<boolean> {
    return this.#isAnyLeased(sql`true`);
  }

  /** Whether any ledger of the run is being exported now. */
  hasExportsInHand(runId: string): Promise<boolean> {
    return this.#isAnyLeased(sql`exists (select from mirror.nightly_units n
      where n.run_id = ${runId} and n.party_id = e.party_id)`);
  }

  async #isAnyLeased(condition: RawBuilder<unknown>): Promise<boolean> {
    const inHand = statement({ has: 'boolean' })`
      select exists (
        select from mirror.exports e
        where lease_until > clock_timestamp()
          and mirror.is_leased(lease_until, lease_holder) and ${condition}) as has`;
    const { has } = await readRow(this.#db, 'look for exports in hand', inHand);
    return has;
  }

  /**
   * Summarizes the outcomes. Lists the first ledgers that failed, those that ended
   * without an error but not `complete`, and those that were not requested; each list is
   * undefined if it is empty.
   */
  async summary(runId: string): Promise<NightlySummary> {
    const count = (condition: RawBuilder<unknown>) =>
      sql`(count(*) filter (where ${condition}))::int`;
    const sum = (name: string) =>
      sql`coalesce(sum((outcome->>${sql.lit(name)})::numeric), 0)`;
    const first = (what: RawBuilder<unknown>, condition: RawBuilder<unknown>) =>
      sql`(select json_agg(${what} order by priority) from (
        select * from units where ${condition} order by priority limit ${LISTED_MAX}) listed)`;
    const named = (outcome: RawBuilder<unknown>) =>
      sql`json_build_object('partyId', party_id, 'outcome', ${outcome})`;
    const summed = statement(SUMMARY_COLUMNS)`
      with units as not materialized (
        select * from mirror.nightly_units where run_id = ${runId})
      select ${sum('rows')} as "newRows", ${sum('replacedRows')} as "replacedRows",
        ${sum('bytes')} as "newBytes", ${sum('segments')} as "newSegments",
        ${count(sql`outcome->>'verdict' = 'suspicious'`)} as suspicious,
        ${count(sql`state = 'done' and outcome->>'verdict' in ('incomplete', 'failed')`)}
          as incomplete,
        ${first(named(sql`outcome`), sql`state = 'failed'`)} as failures,
        ${first(named(DOUBT), sql`state = 'done' and outcome->>'verdict' <> 'complete'`)}
          as doubted,
        ${first(sql`party_id`, sql`state in ('due', 'queued')`)} as "unaskedParties"
      from units`;
    const summary = await readRow(this.#db, 'sum up the nightly run', summed);
    return Object.fromEntries(
      Object.entries(summary).filter(([, value]) => value !== null),
    ) as unknown as NightlySummary;
  }
}
