/**
 * Every run, its state and its verdict. The queue may forget a job; a run is never
 * forgotten.
 */
import { type SelectQueryBuilder, sql, type UpdateObject } from 'kysely';
import { CANDIDATES_MAX } from '../../ledger/ids.ts';
import { evidenceJson } from '../../json/json-value.ts';
import type { Verdict } from '../../errors/verdict.ts';
import type { Database } from '../../postgres/database.ts';
import { builder } from '../../postgres/builder.ts';
import {
  execute,
  findRow,
  readRow,
  readRows,
} from '../../postgres/run-statement.ts';
import type { Schema } from '../../postgres/schema.generated.ts';
import { statement, typed } from '../../postgres/statement.ts';
import { inTransaction } from '../../postgres/transaction.ts';
import type { RunDocument, RunKind, RunState } from '../run-schema.ts';

/** A run, as it is recorded in a row of `mirror.runs`. */
export interface Run extends Readonly<RunDocument> {
  /** The source that it asks; null where it asks none. */
  readonly sourceUrl: string | null;
  readonly scheduleKey: string | null;
  readonly params: Readonly<Record<string, unknown>>;
  readonly heartbeatAt: string | null;
  readonly cancelRequested: boolean;
  /** The id of the job that was queued for it last. */
  readonly jobId: string | null;
}

/** The columns under the names of `Run`. */
const RUN_COLUMNS = [
  'run_id as runId',
  'parent_run_id as parentRunId',
  'kind',
  'subject',
  'source_url as sourceUrl',
  'slot as scheduleKey',
  'params',
  'state',
  'verdict',
  'evidence',
  'queued_at as queuedAt',
  'started_at as startedAt',
  'heartbeat_at as heartbeatAt',
  'finished_at as finishedAt',
  'attempts',
  'cancel_requested as cancelRequested',
  'job_id as jobId',
] as const;

/** JSON columns hold what this program wrote: objects. */
type RunJson = Pick<Run, 'params' | 'evidence'>;

export interface NewRun extends Pick<Run, 'kind' | 'subject'> {
  readonly parentRunId?: string | undefined;
  /** At most one run has a given key, which tells its scheduled time. */
  readonly scheduleKey?: string | undefined;
  readonly params?: Run['params'];
}

export interface RunFilter {
  readonly kind?: RunKind | undefined;
  readonly subject?: string | undefined;
  readonly states?: readonly RunState[];
  /** Only runs queued before this one: the last of the page before. */
  readonly before?: string | undefined;
  readonly limit: number;
}

/** The others work on what is there. */
const ASKS_SOURCE: ReadonlySet<RunKind> = new Set([
  'sync',
  'export',
  'nightly',
]);
/**
 * Renewed every three seconds: one that was renewed so lately is worked by a living
 * process.
 */
const WORKED_MS = 8_000;
const LISTED_MAX = 1000;
const IS_OPEN = sql<boolean>`state in ('queued', 'running')`;
/** No living process works it. */
const IS_IDLE = sql<boolean>`(state = 'queued' or heartbeat_at is null
  or heartbeat_at < clock_timestamp() - ${WORKED_MS} * interval '1 millisecond')`;
/** The database's clock. */
const NOW = sql<string>`clock_timestamp()`;
/** What a run keeps for itself beside what it was asked. */
const NOT_ASKED = [
  'clock',
  'isOrdered',
  'deaths',
  'diedAt',
  'deliveredAt',
  'told',
  'notifiedLastAt',
];

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

  /**
   * @returns the new run, or the one that already has this schedule key or this parent,
   *   kind and subject
   */
  async create({
    kind,
    subject,
    parentRunId,
    scheduleKey,
    params = {},
  }: NewRun): Promise<Run> {
    // A command that only reads makes no ids, and does not load the library for it.
    const { v7: uuidv7 } = await import('uuid');
    const sourceUrl = ASKS_SOURCE.has(kind) ? this.#sourceUrl : undefined;
    const insertion = builder
      .insertInto('mirror.runs')
      .values({
        run_id: uuidv7(),
        kind,
        subject,
        parent_run_id: parentRunId ?? null,
        slot: scheduleKey ?? null,
        source_url: sourceUrl ?? null,
        params: JSON.stringify(params),
      })
      .onConflict((conflict) => conflict.doNothing())
      .returning(RUN_COLUMNS)
      .$narrowType<RunJson>();
    const inserted = await findRow(this.#db, 'record a run', insertion);
    if (inserted !== undefined) return inserted;
    const same =
      scheduleKey === undefined
        ? selectRuns()
            .where('parent_run_id', '=', parentRunId ?? null)
            .where('kind', '=', kind)
            .where('subject', '=', subject)
        : selectRuns().where('slot', '=', scheduleKey);
    const run = await findRow(this.#db, 'read a run', same);
    if (run === undefined)
      throw new TypeError('a run was in the way of another, and is gone');
    return run;
  }

  /**
   * The newest unfinished run, of its own accord, that asks for the same and was not told
   * to stop.
   */
  async findOpen({
    kind,
    subject,
    params = {},
  }: NewRun): Promise<Run | undefined> {
    const hasSameParams = sql<boolean>`params - ${NOT_ASKED}::text[]
      = ${JSON.stringify(params)}::jsonb - ${NOT_ASKED}::text[]`;
    const equal = selectRuns()
      .where('kind', '=', kind)
      .where('subject', '=', subject)
      .where(IS_OPEN)
      .where('cancel_requested', '=', false)
      .where('parent_run_id', 'is', null)
      .where(hasSameParams)
      .orderBy('queued_at', 'desc')
      .limit(1);
    return findRow(this.#db, 'look for an equal run', equal);
  }

  /** The nightly run that is going on, whatever asked for it. */
  async findNightly(): Promise<Run | undefined> {
    return (
      await this.list({
        kind: 'nightly',
        states: ['queued', 'running'],
        limit: 1,
      })
    )[0];
  }

  /**
   * The run that a key stands for, or the same work that is open, or a new run.
   * @param isExclusive an open run is only reported: the key does not stand for it
   * @returns `other` if the key stands for another order
   */
  async order(
    fresh: NewRun,
    options: {
      key?: { name: string; hash: string } | undefined;
      isExclusive?: boolean;
    } = {},
  ): Promise<{
    readonly run: Run;
    readonly found: 'key' | 'other' | 'open' | 'none';
  }> {
    const { key, isExclusive = false } = options;
    const action = 'record a run';
    return inTransaction(this.#db, { action, retries: 0 }, async (tx) => {
      const runs = new RunStore(tx, this.#sourceUrl);
      if (key !== undefined) {
        await lockName(tx, `order ${key.name}`);
        const recorded = builder
          .selectFrom('mirror.run_keys')
          .select(['run_id as runId', 'hash'])
          .where('name', '=', key.name);
        const order = await findRow(tx, action, recorded);
        const known = order && (await runs.get(order.runId));
        if (known !== undefined)
          return {
            run: known,
            found: order?.hash === key.hash ? 'key' : 'other',
          };
      }
      await lockName(
        tx,
        fresh.kind === 'nightly' ? 'nightly' : `${fresh.kind} ${fresh.subject}`,
      );
      const open = await (fresh.kind === 'nightly'
        ? runs.findNightly()
        : runs.findOpen(fresh));
      if (open !== undefined && isExclusive)
        return { run: open, found: 'open' };
      const run = open ?? (await runs.create(fresh));
      if (key !== undefined) {
        const order = { hash: key.hash, run_id: run.runId };
        const record = builder
          .insertInto('mirror.run_keys')
          .values({ name: key.name, ...order })
          .onConflict((conflict) => conflict.column('name').doUpdateSet(order));
        await execute(tx, action, record);
      }
      return { run, found: open === undefined ? 'none' : 'open' };
    });
  }

  /** Orders of the read API that are queued or worked. */
  async openOrders(): Promise<number> {
    const orders = statement({ count: 'int' })`
      select count(*)::int as count from mirror.runs
      where ${IS_OPEN} and kind = 'export' and params @> '{"isOrdered": true}'`;
    const { count } = await readRow(this.#db, 'count open orders', orders);
    return count;
  }

  async get(runId: string): Promise<Run | undefined> {
    return findRow(
      this.#db,
      'read a run',
      selectRuns().where('run_id', '=', runId),
    );
  }

  /** Those whose id begins and ends so: as many as one is chosen of. */
  withId(prefix: string, suffix: string): Promise<readonly Run[]> {
    const isLike = sql<boolean>`starts_with(run_id::text, ${prefix})
      and right(run_id::text, length(${suffix})) = ${suffix}`;
    const runs = selectRuns()
      .where(isLike)
      .orderBy('run_id')
      .limit(CANDIDATES_MAX);
    return readRows(this.#db, 'look for a run', runs);
  }

  /** Newest first. */
  list(filter: RunFilter): Promise<readonly Run[]> {
    const { kind, subject, states, before, limit } = filter;
    let runs = selectRuns()
      .orderBy('queued_at', 'desc')
      .orderBy('run_id', 'desc')
      .limit(Math.min(limit, LISTED_MAX));
    if (kind !== undefined) runs = runs.where('kind', '=', kind);
    if (subject !== undefined) runs = runs.where('subject', '=', subject);
    if (states !== undefined) {
      runs = runs.where(sql<boolean>`state = any(${[...states]}::text[])`);
    }
    if (before !== undefined) {
      const isBefore = sql<boolean>`(queued_at, run_id) < (
        select queued_at, run_id from mirror.runs where run_id = ${before})`;
      runs = runs.where(isBefore);
    }
    return readRows(this.#db, 'list runs', runs);
  }

  /** Remembers the run's job, so that the queue can be asked whether it still has it. */
  async noteJob(runId: string, jobId: string): Promise<void> {
    await this.#update("remember a run's job", runId, { job_id: jobId });
  }

  /**
   * Counts one more attempt. @returns undefined if the run has ended, or a living
   * process works it
   */
  start(runId: string): Promise<Run | undefined> {
    const started = {
      state: 'running',
      attempts: sql<number>`attempts + 1`,
      started_at: sql<string>`coalesce(started_at, clock_timestamp())`,
      heartbeat_at: NOW,
    } as const;
    const isFree = sql<boolean>`${IS_OPEN} and ${IS_IDLE}`;
    return this.#update('start a run', runId, started, isFree);
  }

  /**
   * @returns whether the run was told to stop meanwhile, or was ended by somebody else
   */
  async heartbeat(runId: string): Promise<{ cancelRequested: boolean }> {
    const run = await this.#update(
      'renew a run',
      runId,
      { heartbeat_at: NOW },
      IS_OPEN,
    );
    return { cancelRequested: run?.cancelRequested ?? true };
  }

  /**
   * Nobody works it from now on: the next who looks need not wait until it counts as
   * silent.
   */
  async giveBack(
    runId: string,
    { hasTried = true }: { readonly hasTried?: boolean } = {},
  ): Promise<void> {
    const free = {
      heartbeat_at: null,
      attempts: sql<number>`attempts - ${hasTried ? 0 : 1}::int`,
    };
    const isRunning = sql<boolean>`state = 'running'`;
    await this.#update('give a run back', runId, free, isRunning);
  }

  /** Keeps a value that a resumed run needs again, merged into the run's parameters. */
  async keep(
    runId: string,
    params: Readonly<Record<string, unknown>>,
  ): Promise<void> {
    const merged = sql<string>`params || ${evidenceJson(params)}::jsonb`;
    await this.#update('update a run', runId, { params: merged });
  }

  /**
   * Records the verdict once; a run that has one already keeps it: a complete sync was
   * given its verdict by the statement that proved it (list-sync/store/claim.ts), and
   * only ends here.
   */
  async finish(
    runId: string,
    verdict: Verdict,
    evidence: Readonly<Record<string, unknown>>,
  ): Promise<void> {
    const ended = statement({ kind: typed<RunKind>('text'), seconds: 'float' })`
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
    const rows = await readRows(this.#db, 'record a verdict', ended);
    for (const { kind, seconds } of rows)
      this.#onEnded({ kind, verdict, durationMs: seconds * 1_000 });
  }

  /**
   * Tells the run, and those below it, to stop at their next safe point. One that nobody
   * works ends here.
   * @returns the state before; undefined if there is no such run
   */
  async requestCancel(runId: string): Promise<RunState | undefined> {
    const before = await this.get(runId);
    const cancellation = statement()`with told as (
          select run_id, ${IS_IDLE} as is_idle from mirror.runs
           where (run_id = ${runId} or parent_run_id = ${runId}) and ${IS_OPEN} for update)
        update mirror.runs r set cancel_requested = true,
            state = case when is_idle then 'cancelled' else state end,
            finished_at = case when is_idle then clock_timestamp() else finished_at end
          from told where told.run_id = r.run_id`;
    await execute(this.#db, 'cancel a run', cancellation);
    return before?.state;
  }

  async markCancelled(runId: string): Promise<void> {
    const cancelled = { state: 'cancelled', finished_at: NOW } as const;
    await this.#update('cancel a run', runId, cancelled, IS_OPEN);
  }

  /**
   * Unfinished runs that nobody has renewed for `staleMs`, oldest first; orphans are
   * parts of a run that has ended.
   */
  stale(
    staleMs: number,
  ): Promise<readonly (Run & { readonly isOrphan: boolean })[]> {
    const isOrphan = sql<boolean>`exists (
      select from mirror.runs parent where parent.run_id = mirror.runs.parent_run_id
        and parent.state in ('done', 'cancelled'))`;
    const isSilent = sql<boolean>`coalesce(heartbeat_at, queued_at)
      < clock_timestamp() - ${staleMs} * interval '1 millisecond'`;
    const runs = selectRuns()
      .select(isOrphan.as('isOrphan'))
      .where(IS_OPEN)
      .where(isSilent)
      .orderBy('queued_at')
      .limit(LISTED_MAX);
    return readRows(this.#db, 'look for stale runs', runs);
  }

  /** @returns the run as it is now; undefined where the condition does not hold */
  #update(
    action: string,
    runId: string,
    changes: UpdateObject<Schema, 'mirror.runs'>,
    condition = sql<boolean>`true`,
  ): Promise<Run | undefined> {
    const update = builder
      .updateTable('mirror.runs')
      .set(changes)
      .where('run_id', '=', runId)
      .where(condition)
      .returning(RUN_COLUMNS)
      .$narrowType<RunJson>();
    return findRow(this.#db, action, update);
  }
}

/** Every run, for conditions and an order to be added. */
function selectRuns(): SelectQueryBuilder<Schema, 'mirror.runs', Run> {
  return builder
    .selectFrom('mirror.runs')
    .select(RUN_COLUMNS)
    .$narrowType<RunJson>();
}

/**
 * Waits for a lock that other orders of the same name take, and holds it until the
 * transaction ends.
 */
async function lockName(tx: Database, name: string): Promise<void> {
  const lock = statement({ lock: 'void' })`
    select pg_advisory_xact_lock(mirror.lock_key(${name})) as lock`;
  await execute(tx, 'record a run', lock);
}
