/**
 * Stores every run with its state and verdict. A queue may lose a job, but the run is
 * never lost with it.
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

/** A run, as stored in a row of `mirror.runs`. */
export interface Run extends Readonly<RunDocument> {
  /** The source that the run makes requests to; null if it makes none. */
  readonly sourceUrl: string | null;
  readonly scheduleKey: string | null;
  readonly params: Readonly<Record<string, unknown>>;
  readonly heartbeatAt: string | null;
  readonly cancelRequested: boolean;
  /** The id of the last job that was queued for the run. */
  readonly jobId: string | null;
}

/** The columns of `mirror.runs`, under the names of `Run`. */
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

/** The JSON columns. Only this program writes them, and always as objects. */
type RunJson = Pick<Run, 'params' | 'evidence'>;

export interface NewRun extends Pick<Run, 'kind' | 'subject'> {
  readonly parentRunId?: string | undefined;
  /** Names the run's scheduled time. At most one run has a given key. */
  readonly scheduleKey?: string | undefined;
  readonly params?: Run['params'];
}

export interface RunFilter {
  readonly kind?: RunKind | undefined;
  readonly subject?: string | undefined;
  /** The beginning of the subject, such as the first digits of a party's id. */
  readonly subjectPrefix?: string | undefined;
  /** Only runs that ended with this verdict. */
  readonly verdict?: Verdict | undefined;
  readonly states?: readonly RunState[];
  /** Only runs that started at this instant or later; a queued run counts as queued. */
  readonly since?: string | undefined;
  /** Only runs that started before this instant. */
  readonly until?: string | undefined;
  /** Only runs queued before this one, which is the last run of the previous page. */
  readonly before?: string | undefined;
  readonly limit: number;
}

/**
 * The kinds of runs that make requests to the source. The others work on data that the
 * mirror already has.
 */
const ASKS_SOURCE: ReadonlySet<RunKind> = new Set([
  'sync',
  'export',
  'nightly',
]);
/**
 * How recent the heartbeat must be for a live process to count as working on the run.
 * Heartbeats are sent every three seconds.
 */
const WORKED_MS = 8_000;
const LISTED_MAX = 1000;
const IS_OPEN = sql<boolean>`state in ('queued', 'running')`;
/** Whether no live process is working on the run. */
const IS_IDLE = sql<boolean>`(state = 'queued' or heartbeat_at is null
  or heartbeat_at < clock_timestamp() - ${WORKED_MS} * interval '1 millisecond')`;
/** When a run started, as lists of runs show it. */
const STARTED = sql`coalesce(started_at, queued_at)`;
/** The current time by the database's clock. */
const NOW = sql<string>`clock_timestamp()`;
/**
 * Parameters that a run stores for its own use, in addition to those it was requested
 * with.
 */
const NOT_ASKED = [
  'clock',
  'isOrdered',
  'deaths',
  'diedAt',
  'deliveredAt',
  'told',
  'notifiedLastAt',
];

/** The facts about an ended run that metrics need. */
export interface EndedRun extends Pick<Run, 'kind'> {
  readonly verdict: Verdict;
  readonly durationMs: number;
}

export class RunStore {
  readonly #db: Database;
  readonly #sourceUrl: string | undefined;
  readonly #onEnded: (ended: EndedRun) => void;

  /**
   * @param sourceUrl the source of the runs that this store creates
   * @param onEnded called for every run that ends through this store, for metrics
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
   * Creates a run.
   * @returns the new run, or the existing one with this schedule key, or with this
   *   parent, kind and subject
   */
  async create({
    kind,
    subject,
    parentRunId,
    scheduleKey,
    params = {},
  }: NewRun): Promise<Run> {
    // The library is loaded only when needed, because commands that only read create no
    // ids.
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
   * Finds the newest unfinished top-level run with the same kind, subject and parameters
   * that has not been told to stop.
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

  /** Finds the unfinished nightly run, no matter what requested it. */
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
   * Returns the run that a key stands for, or an open run that does the same work, or
   * else a new run.
   * @param isExclusive if an open run does the same work, returns that run without
   *   recording the key for it
   * @returns `found` is `other` if the key stands for a different request
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

  /** Counts the runs requested through the read API that are queued or running. */
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

  /**
   * Finds runs whose id has the given prefix and suffix, but only as many as it takes to
   * tell whether the match is unique.
   */
  withId(prefix: string, suffix: string): Promise<readonly Run[]> {
    const isLike = sql<boolean>`starts_with(run_id::text, ${prefix})
      and right(run_id::text, length(${suffix})) = ${suffix}`;
    const runs = selectRuns()
      .where(isLike)
      .orderBy('run_id')
      .limit(CANDIDATES_MAX);
    return readRows(this.#db, 'look for a run', runs);
  }

  /** Lists runs, newest first. */
  list(filter: RunFilter): Promise<readonly Run[]> {
    const { kind, subject, subjectPrefix, verdict, states } = filter;
    const { since, until, before, limit } = filter;
    let runs = selectRuns()
      .orderBy('queued_at', 'desc')
      .orderBy('run_id', 'desc')
      .limit(Math.min(limit, LISTED_MAX));
    if (kind !== undefined) runs = runs.where('kind', '=', kind);
    if (subject !== undefined) runs = runs.where('subject', '=', subject);
    if (verdict !== undefined) runs = runs.where('verdict', '=', verdict);
    if (subjectPrefix !== undefined) {
      runs = runs.where(sql<boolean>`starts_with(subject, ${subjectPrefix})`);
    }
    if (states !== undefined) {
      runs = runs.where(sql<boolean>`state = any(${[...states]}::text[])`);
    }
    if (since !== undefined) {
      runs = runs.where(sql<boolean>`${STARTED} >= ${since}::timestamptz`);
    }
    if (until !== undefined) {
      runs = runs.where(sql<boolean>`${STARTED} < ${until}::timestamptz`);
    }
    if (before !== undefined) {
      const isBefore = sql<boolean>`(queued_at, run_id) < (
        select queued_at, run_id from mirror.runs where run_id = ${before})`;
      runs = runs.where(isBefore);
    }
    return readRows(this.#db, 'list runs', runs);
  }

  /**
   * Records the run's job, so that a later check can find out whether the queue still has
   * it.
   */
  async noteJob(runId: string, jobId: string): Promise<void> {
    await this.#update("remember a run's job", runId, { job_id: jobId });
  }

  /**
   * Marks the run as running and increments its number of attempts.
   * @returns undefined if the run has ended, or a live process is working on it
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
   * Renews the run's heartbeat.
   * @returns whether the run has since been told to stop, or was ended by another process
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
   * Records that no process works on the run any longer, so that the next process need
   * not wait until the run counts as silent.
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

  /** Stores a value that a resumed run needs, by merging it into the run's parameters. */
  async keep(
    runId: string,
    params: Readonly<Record<string, unknown>>,
  ): Promise<void> {
    const merged = sql<string>`params || ${evidenceJson(params)}::jsonb`;
    await this.#update('update a run', runId, { params: merged });
  }

  /**
   * Records the verdict. A run that already has one keeps it: the statement that proves a
   * sync complete records its verdict (lists/store/claim.ts), so such a run is only
   * marked as ended here.
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
   * Tells the run and its child runs to stop at their next safe point. A run that no
   * process is working on ends immediately.
   * @returns the previous state; undefined if there is no such run
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
   * Returns unfinished runs without a heartbeat for `staleMs`, oldest first. `isOrphan`
   * marks the parts of a run that has already ended.
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

  /**
   * Updates a run.
   * @returns the updated run; undefined if the condition is false
   */
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

/** Selects all runs; callers add conditions and an order. */
function selectRuns(): SelectQueryBuilder<Schema, 'mirror.runs', Run> {
  return builder
    .selectFrom('mirror.runs')
    .select(RUN_COLUMNS)
    .$narrowType<RunJson>();
}

/**
 * Takes the lock of a name and holds it until the transaction ends, so that requests with
 * the same name are handled one after another.
 */
async function lockName(tx: Database, name: string): Promise<void> {
  const lock = statement({ lock: 'void' })`
    select pg_advisory_xact_lock(mirror.lock_key(${name})) as lock`;
  await execute(tx, 'record a run', lock);
}
