/** Every run, its state and its verdict. The queue may forget a job; a run is never forgotten. */
import { type RawBuilder, sql } from 'kysely';
import { CANDIDATES_MAX } from '../../ledger/ids.ts';
import { evidenceJson } from '../../json/json-value.ts';
import type { Verdict } from '../../errors/verdict.ts';
import type { Database } from '../../postgres/database.ts';
import { mapDatabaseError } from '../../postgres/database-error.ts';
import { readRow, readRows } from '../../postgres/transaction.ts';
import type { RunDocument, RunKind, RunState } from '../run-schema.ts';

/** A run, as it is recorded in a row of `mirror.runs`. */
export interface Run extends Readonly<RunDocument> {
  /** The source that it asks; null where it asks none. */
  readonly sourceUrl: string | null;
  readonly scheduleKey: string | null;
  readonly params: Readonly<Record<string, unknown>>;
  readonly heartbeatAt: string | null;
  readonly cancelRequested: boolean;
  /** Of the job that was queued for it last. */
  readonly jobId: string | null;
}

/** The columns under the names of `Run`. */
const RUN_COLUMNS = sql`run_id as "runId", parent_run_id as "parentRunId", kind, subject,
  source_url as "sourceUrl", slot as "scheduleKey", params, state, verdict, evidence, queued_at as "queuedAt",
  started_at as "startedAt", heartbeat_at as "heartbeatAt", finished_at as "finishedAt", attempts,
  cancel_requested as "cancelRequested", job_id as "jobId"`;

export interface NewRun extends Pick<Run, 'kind' | 'subject'> {
  readonly parentRunId?: string | undefined;
  /** At most one run has a given key, which tells its scheduled time. */
  readonly scheduleKey?: string | undefined;
  readonly params?: Run['params'];
}

type Sql = RawBuilder<unknown>;

export interface RunFilter {
  readonly kind?: RunKind | undefined;
  readonly subject?: string | undefined;
  readonly states?: readonly RunState[];
  /** Only runs queued before this one: the last of the page before. */
  readonly before?: string | undefined;
  readonly limit: number;
}

/** The others work on what is there. */
const ASKS_SOURCE: ReadonlySet<RunKind> = new Set(['sync', 'export', 'nightly']);
/** Renewed every three seconds: one that was renewed so lately is worked by a living process. */
const WORKED_MS = 8_000;
const LISTED_MAX = 1000;
const IS_OPEN = sql`state in ('queued', 'running')`;
/** No living process works it. */
const IS_IDLE = sql`(state = 'queued' or heartbeat_at is null
  or heartbeat_at < clock_timestamp() - ${WORKED_MS} * interval '1 millisecond')`;
/** What a run keeps for itself beside what it was asked. */
const NOT_ASKED = ['clock', 'isOrdered', 'deaths', 'diedAt', 'deliveredAt', 'told'];

/** What metrics are told of a run. */
export interface EndedRun extends Pick<Run, 'kind'> {
  readonly verdict: Verdict;
  readonly durationMs: number;
}

export class RunStore {
  readonly #db: Database;
  readonly #sourceUrl: string | undefined;
  readonly #onEnded: (ended: EndedRun) => void;

  /**
   * @param sourceUrl the source that runs made here ask
   * @param onEnded told of every run that ends by this store, for metrics
   */
  constructor(
    db: Database,
    sourceUrl?: string,
    onEnded: (ended: EndedRun) => void = () => undefined,
  ) {
    this.#db = db;
    this.#sourceUrl = sourceUrl;
    this.#onEnded = onEnded;
  }

  /** @returns the new run, or the one that already has this schedule key or this parent, kind and subject */
  async create({
    kind,
    subject,
    parentRunId,
    scheduleKey,
    params = {},
  }: NewRun): Promise<Run> {
    // Whoever only looks makes no id, and loads nothing that does.
    const { v7: uuidv7 } = await import('uuid');
    const sourceUrl = ASKS_SOURCE.has(kind) ? this.#sourceUrl : undefined;
    const insertion = sql`insert into mirror.runs (run_id, kind, subject, parent_run_id, slot, source_url, params)
      values (${uuidv7()}, ${kind}, ${subject}, ${parentRunId ?? null}, ${scheduleKey ?? null}, ${sourceUrl ?? null},
              ${JSON.stringify(params)}::jsonb)
      on conflict do nothing returning ${RUN_COLUMNS}`;
    const [inserted] = await this.#read('record a run', insertion);
    const isSame =
      scheduleKey === undefined
        ? sql`parent_run_id = ${parentRunId ?? null} and kind = ${kind} and subject = ${subject}`
        : sql`slot = ${scheduleKey}`;
    const [run = inserted] = inserted
      ? [inserted]
      : await this.#select('read a run', isSame);
    if (run === undefined)
      throw new TypeError('a run was in the way of another, and is gone');
    return run;
  }

  /** The newest unfinished run, of its own accord, that asks for the same and was not told to stop. */
  async findOpen({ kind, subject, params = {} }: NewRun): Promise<Run | undefined> {
    const isEqual = sql`kind = ${kind} and subject = ${subject} and ${IS_OPEN} and not cancel_requested
      and parent_run_id is null
      and params - ${NOT_ASKED}::text[] = ${JSON.stringify(params)}::jsonb - ${NOT_ASKED}::text[]`;
    return (
      await this.#select(
        'look for an equal run',
        isEqual,
        sql`order by queued_at desc limit 1`,
      )
    )[0];
  }

  /** The nightly run that is going on, whatever asked for it. */
  async findNightly(): Promise<Run | undefined> {
    return (
      await this.list({ kind: 'nightly', states: ['queued', 'running'], limit: 1 })
    )[0];
  }

  /**
   * The run that a key stands for, or the same work that is open, or a new run.
   * @param isExclusive an open one is only told of: the key stands for nothing yet
   * @returns `other` where the key stands for another order
   */
  async order(
    fresh: NewRun,
    options: {
      key?: { name: string; hash: string } | undefined;
      isExclusive?: boolean;
    } = {},
  ): Promise<{ readonly run: Run; readonly found: 'key' | 'other' | 'open' | 'none' }> {
    const { key, isExclusive = false } = options;
    return mapDatabaseError('record a run', () =>
      this.#db.transaction().execute(async (tx) => {
        const runs = new RunStore(tx, this.#sourceUrl);
        const lock = (name: string) =>
          sql`select pg_advisory_xact_lock(mirror.lock_key(${name}))`.execute(tx);
        if (key !== undefined) {
          await lock(`order ${key.name}`);
          const { rows } = await sql<{ run_id: string; hash: string }>`
            select run_id, hash from mirror.run_keys where name = ${key.name}`.execute(
            tx,
          );
          const known = rows[0] && (await runs.get(rows[0].run_id));
          if (known !== undefined)
            return { run: known, found: rows[0]?.hash === key.hash ? 'key' : 'other' };
        }
        await lock(
          fresh.kind === 'nightly' ? 'nightly' : `${fresh.kind} ${fresh.subject}`,
        );
        const open = await (fresh.kind === 'nightly'
          ? runs.findNightly()
          : runs.findOpen(fresh));
        if (open !== undefined && isExclusive) return { run: open, found: 'open' };
        const run = open ?? (await runs.create(fresh));
        if (key !== undefined) {
          await sql`insert into mirror.run_keys (name, hash, run_id) values (${key.name}, ${key.hash}, ${run.runId})
            on conflict (name) do update set hash = excluded.hash, run_id = excluded.run_id`.execute(
            tx,
          );
        }
        return { run, found: open === undefined ? 'none' : 'open' };
      }),
    );
  }

  /** Orders of the read API that are queued or worked. */
  async openOrders(): Promise<number> {
    const statement = sql<{
      count: number;
    }>`select count(*)::int as count from mirror.runs
        where ${IS_OPEN} and kind = 'export' and params @> '{"isOrdered": true}'`;
    const { count } = await readRow(this.#db, 'count open orders', statement);
    return count;
  }

  async get(runId: string): Promise<Run | undefined> {
    return (await this.#select('read a run', sql`run_id = ${runId}`))[0];
  }

  /** Those whose id begins and ends so: as many as one is chosen of. */
  withId(prefix: string, suffix: string): Promise<readonly Run[]> {
    const isLike = sql`starts_with(run_id::text, ${prefix})
      and right(run_id::text, length(${suffix})) = ${suffix}`;
    return this.#select(
      'look for a run',
      isLike,
      sql`order by run_id limit ${CANDIDATES_MAX}`,
    );
  }

  /** Newest first. */
  list(filter: RunFilter): Promise<readonly Run[]> {
    const { kind = null, subject = null, states = null, before = null, limit } = filter;
    const isWanted = sql`(${kind}::text is null or kind = ${kind})
      and (${subject}::text is null or subject = ${subject})
      and (${states}::text[] is null or state = any(${states}))
      and (${before}::uuid is null
        or (queued_at, run_id) < (select queued_at, run_id from mirror.runs where run_id = ${before}))`;
    const newest = sql`order by queued_at desc, run_id desc limit ${Math.min(limit, LISTED_MAX)}`;
    return this.#select('list runs', isWanted, newest);
  }

  /** Remembers the run's job, so that whoever misses it can ask the queue for it. */
  async noteJob(runId: string, jobId: string): Promise<void> {
    await this.#update("remember a run's job", runId, sql`job_id = ${jobId}`);
  }

  /** Counts one more attempt. @returns undefined where the run has ended, or a living process works it */
  start(runId: string): Promise<Run | undefined> {
    const started = sql`state = 'running', attempts = attempts + 1,
      started_at = coalesce(started_at, clock_timestamp()), heartbeat_at = clock_timestamp()`;
    return this.#update('start a run', runId, started, sql`${IS_OPEN} and ${IS_IDLE}`);
  }

  /** @returns whether the run was told to stop meanwhile, or was ended by somebody else */
  async heartbeat(runId: string): Promise<{ cancelRequested: boolean }> {
    const run = await this.#update(
      'renew a run',
      runId,
      sql`heartbeat_at = clock_timestamp()`,
      IS_OPEN,
    );
    return { cancelRequested: run?.cancelRequested ?? true };
  }

  /** Nobody works it from now on: the next who looks need not wait until it counts as silent. */
  async giveBack(
    runId: string,
    { hasTried = true }: { readonly hasTried?: boolean } = {},
  ): Promise<void> {
    const free = sql`heartbeat_at = null, attempts = attempts - ${hasTried ? 0 : 1}::int`;
    await this.#update('give a run back', runId, free, sql`state = 'running'`);
  }

  /** Keeps a value that a resumed run needs again, merged into the run's parameters. */
  async keep(runId: string, params: Readonly<Record<string, unknown>>): Promise<void> {
    await this.#update(
      'update a run',
      runId,
      sql`params = params || ${evidenceJson(params)}::jsonb`,
    );
  }

  /**
   * Records the verdict once; a run that has one already keeps it: a complete sync was given its verdict by the
   * statement that proved it (list-sync/store/claim.ts), and only ends here.
   */
  async finish(
    runId: string,
    verdict: Verdict,
    evidence: Readonly<Record<string, unknown>>,
  ): Promise<void> {
    const statement = sql<{ kind: RunKind; seconds: number }>`
        with ended as (
          update mirror.runs set state = 'done', verdict = ${verdict}, evidence = ${evidenceJson(evidence)}::jsonb,
            finished_at = clock_timestamp()
          where run_id = ${runId} and ${IS_OPEN}
          returning kind, finished_at - queued_at as lasted)
        select kind, extract(epoch from lasted)::float8 as seconds from (
          select kind, lasted from ended
          union all
          select kind, finished_at - queued_at from mirror.runs
          where run_id = ${runId} and kind = 'sync' and verdict = 'complete' and ${verdict} = 'complete') as over`;
    const rows = await readRows(this.#db, 'record a verdict', statement);
    for (const { kind, seconds } of rows)
      this.#onEnded({ kind, verdict, durationMs: seconds * 1_000 });
  }

  /**
   * Tells the run, and those below it, to stop at their next safe point. One that nobody works ends here.
   * @returns the state before; undefined where there is no such run
   */
  async requestCancel(runId: string): Promise<RunState | undefined> {
    const before = await this.get(runId);
    const statement = sql`with told as (
          select run_id, ${IS_IDLE} as is_idle from mirror.runs
           where (run_id = ${runId} or parent_run_id = ${runId}) and ${IS_OPEN} for update)
        update mirror.runs r set cancel_requested = true,
            state = case when is_idle then 'cancelled' else state end,
            finished_at = case when is_idle then clock_timestamp() else finished_at end
          from told where told.run_id = r.run_id`;
    await readRows(this.#db, 'cancel a run', statement);
    return before?.state;
  }

  async markCancelled(runId: string): Promise<void> {
    const cancelled = sql`state = 'cancelled', finished_at = clock_timestamp()`;
    await this.#update('cancel a run', runId, cancelled, IS_OPEN);
  }

  /**
   * Unfinished runs that nobody has renewed for `staleMs`, oldest first; orphans are parts of a run that has ended.
   */
  stale(staleMs: number): Promise<readonly (Run & { readonly isOrphan: boolean })[]> {
    const statement = sql<Run & { isOrphan: boolean }>`
        select ${RUN_COLUMNS}, exists (select from mirror.runs parent
            where parent.run_id = r.parent_run_id and parent.state in ('done', 'cancelled')) as "isOrphan"
          from mirror.runs r
         where ${IS_OPEN} and coalesce(heartbeat_at, queued_at) < clock_timestamp() - ${staleMs} * interval '1 millisecond'
         order by queued_at limit ${LISTED_MAX}`;
    return readRows(this.#db, 'look for stale runs', statement);
  }

  /** @returns the run as it is now; undefined where the condition does not hold */
  async #update(action: string, runId: string, changes: Sql, condition: Sql = sql`true`) {
    const update = sql`update mirror.runs set ${changes} where run_id = ${runId} and ${condition} returning ${RUN_COLUMNS}`;
    return (await this.#read(action, update))[0];
  }

  #select(action: string, condition: Sql, order: Sql = sql``) {
    return this.#read(
      action,
      sql`select ${RUN_COLUMNS} from mirror.runs where ${condition} ${order}`,
    );
  }

  #read(action: string, statement: Sql) {
    return readRows(this.#db, action, statement as RawBuilder<Run>);
  }
}
