/** Every run, its state and its verdict. The queue may forget a job; a run is never forgotten. */
import { sql } from 'kysely';
import { v7 as uuidv7 } from 'uuid';
import { CANDIDATES_MAX } from '../../core/cut-ids.ts';
import { evidenceJson } from '../../core/evidence.ts';
import type { Verdict } from '../../core/verdict.ts';
import type { Database } from '../../postgres/database.ts';
import type { RunKind, RunState } from '../../postgres/schema.ts';
import { mapDatabaseError } from '../../postgres/transaction.ts';
import { type NewRun, type Run, toRun } from './run.ts';
import { readUntoldRuns, type UntoldRun } from './untold-runs.ts';

export interface RunFilter {
  readonly kind?: RunKind;
  readonly subject?: string;
  readonly parentRunId?: string;
  readonly states?: readonly RunState[];
  /** Only runs queued before this one: the last of the page before. */
  readonly before?: string;
  readonly limit: number;
}

/** The others work on what is there. */
const ASKS_SOURCE: ReadonlySet<RunKind> = new Set(['sync', 'export', 'nightly']);
/** Renewed every three seconds: one that was renewed so lately is worked by a living process. */
const WORKED_MS = 8_000;
/** What metrics are told of a run. */
export interface EndedRun {
  readonly kind: string;
  readonly verdict: Verdict;
  readonly durationMs: number;
}

const LISTED_MAX = 1000;
/** What a run keeps for itself beside what it was asked. */
const NOT_ASKED = ['clock', 'isOrdered', 'deaths', 'diedAt', 'deliveredAt'] as const;

export class RunStore {
  readonly #db: Database;
  readonly #sourceUrl: string | undefined;
  readonly #onEnded: (ended: EndedRun) => void;

  /**
   * @param sourceUrl the source that runs made here ask
   * @param onEnded told of every run that ends by this store, for metrics
   */
  constructor(db: Database, sourceUrl?: string, onEnded: (ended: EndedRun) => void = () => undefined) {
    this.#db = db;
    this.#sourceUrl = sourceUrl;
    this.#onEnded = onEnded;
  }

  /** @returns the new run, or the one that already has this schedule key or this parent, kind and subject */
  async create(fresh: NewRun): Promise<Run> {
    return mapDatabaseError('record a run', async () => {
      const inserted = await this.#db
        .insertInto('runs')
        .values({
          run_id: uuidv7(),
          kind: fresh.kind,
          subject: fresh.subject,
          parent_run_id: fresh.parentRunId ?? null,
          slot: fresh.scheduleKey ?? null,
          source_url: ASKS_SOURCE.has(fresh.kind) ? (this.#sourceUrl ?? null) : null,
          params: JSON.stringify(fresh.params ?? {}),
        })
        .onConflict((conflict) => conflict.doNothing())
        .returningAll()
        .executeTakeFirst();
      if (inserted !== undefined) return toRun(inserted);
      const existing = await this.#db
        .selectFrom('runs')
        .selectAll()
        .where((where) =>
          fresh.scheduleKey === undefined
            ? where.and({
                parent_run_id: fresh.parentRunId ?? null,
                kind: fresh.kind,
                subject: fresh.subject,
              })
            : where('slot', '=', fresh.scheduleKey),
        )
        .executeTakeFirstOrThrow();
      return toRun(existing);
    });
  }

  /** The newest unfinished run, of its own accord, that asks for the same and was not told to stop. */
  async findOpen({ kind, subject, params = {} }: NewRun): Promise<Run | undefined> {
    return mapDatabaseError('look for an equal run', async () => {
      const row = await this.#db
        .selectFrom('runs')
        .selectAll()
        .where('kind', '=', kind)
        .where('subject', '=', subject)
        .where('state', 'in', ['queued', 'running'])
        .where('cancel_requested', '=', false)
        .where('parent_run_id', 'is', null)
        .where(
          sql<boolean>`params - ${[...NOT_ASKED]}::text[] = ${JSON.stringify(params)}::jsonb - ${[...NOT_ASKED]}::text[]`,
        )
        .orderBy('queued_at', 'desc')
        .limit(1)
        .executeTakeFirst();
      return row === undefined ? undefined : toRun(row);
    });
  }

  /**
   * The run that a key stands for, or the same work that is open, or a new run.
   * @param isExclusive an open one is only told of: the key stands for nothing yet
   * @returns `other` where the key stands for another order
   */
  async order(
    fresh: NewRun,
    {
      key,
      isExclusive = false,
    }: { key?: { name: string; hash: string } | undefined; isExclusive?: boolean } = {},
  ): Promise<{ readonly run: Run; readonly found: 'key' | 'other' | 'open' | 'none' }> {
    return mapDatabaseError('record a run', () =>
      this.#db.transaction().execute(async (tx) => {
        const runs = new RunStore(tx, this.#sourceUrl);
        const lock = sql.raw('select pg_advisory_xact_lock(mirror.lock_key(');
        if (key !== undefined) {
          await sql`${lock}${`order ${key.name}`}))`.execute(tx);
          const { rows } = await sql<{ run_id: string; hash: string }>`
            select run_id, hash from mirror.run_keys where name = ${key.name}`.execute(tx);
          const known = rows[0] === undefined ? undefined : await runs.get(rows[0].run_id);
          if (known !== undefined) return { run: known, found: rows[0]?.hash === key.hash ? 'key' : 'other' };
        }
        const work = fresh.kind === 'nightly' ? 'nightly' : `${fresh.kind} ${fresh.subject}`;
        await sql`${lock}${work}))`.execute(tx);
        const open =
          fresh.kind === 'nightly'
            ? (await runs.list({ kind: 'nightly', states: ['queued', 'running'], limit: 1 }))[0]
            : await runs.findOpen(fresh);
        if (open !== undefined && isExclusive) return { run: open, found: 'open' };
        const run = open ?? (await runs.create(fresh));
        if (key !== undefined) {
          await sql`insert into mirror.run_keys (name, hash, run_id) values (${key.name}, ${key.hash}, ${run.runId})
            on conflict (name) do update set hash = excluded.hash, run_id = excluded.run_id`.execute(tx);
        }
        return { run, found: open === undefined ? 'none' : 'open' };
      }),
    );
  }

  /** Orders of the read API that are queued or worked. */
  async openOrders(): Promise<number> {
    return mapDatabaseError('count open orders', async () => {
      const { rows } = await sql<{ count: bigint }>`select count(*) as count from mirror.runs
        where state in ('queued', 'running') and kind = 'export' and params @> '{"isOrdered": true}'`.execute(
        this.#db,
      );
      return Number(rows[0]?.count ?? 0n);
    });
  }

  async get(runId: string): Promise<Run | undefined> {
    return mapDatabaseError('read a run', async () => {
      const row = await this.#db
        .selectFrom('runs')
        .selectAll()
        .where('run_id', '=', runId)
        .executeTakeFirst();
      return row === undefined ? undefined : toRun(row);
    });
  }

  /** Those whose id begins and ends so: as many as one is chosen of. */
  async withId(prefix: string, suffix: string): Promise<readonly Run[]> {
    return mapDatabaseError('look for a run', async () => {
      const found = this.#db
        .selectFrom('runs')
        .selectAll()
        .where(
          sql<boolean>`starts_with(run_id::text, ${prefix}) and right(run_id::text, length(${suffix})) = ${suffix}`,
        )
        .orderBy('run_id')
        .limit(CANDIDATES_MAX);
      return (await found.execute()).map(toRun);
    });
  }

  /** Newest first. */
  async list(filter: RunFilter): Promise<readonly Run[]> {
    return mapDatabaseError('list runs', async () => {
      let query = this.#db
        .selectFrom('runs')
        .selectAll()
        .orderBy('queued_at', 'desc')
        .orderBy('run_id', 'desc')
        .limit(Math.min(filter.limit, LISTED_MAX));
      if (filter.kind !== undefined) query = query.where('kind', '=', filter.kind);
      if (filter.subject !== undefined) query = query.where('subject', '=', filter.subject);
      if (filter.parentRunId !== undefined) query = query.where('parent_run_id', '=', filter.parentRunId);
      if (filter.states !== undefined) query = query.where('state', 'in', filter.states);
      if (filter.before !== undefined) {
        const last = sql`select queued_at, run_id from mirror.runs where run_id = ${filter.before}`;
        query = query.where(sql<boolean>`(queued_at, run_id) < (${last})`);
      }
      return (await query.execute()).map(toRun);
    });
  }

  /** Remembers the run's job, so that whoever misses it can ask the queue for it. */
  async noteJob(runId: string, jobId: string): Promise<void> {
    await mapDatabaseError("remember a run's job", () =>
      this.#db.updateTable('runs').set({ job_id: jobId }).where('run_id', '=', runId).execute(),
    );
  }

  /** Counts one more attempt. @returns undefined where the run has ended, or a living process works it */
  async start(runId: string): Promise<Run | undefined> {
    return mapDatabaseError('start a run', async () => {
      const row = await this.#db
        .updateTable('runs')
        .set({
          state: 'running',
          attempts: sql<number>`attempts + 1`,
          started_at: sql<string>`coalesce(started_at, clock_timestamp())`,
          heartbeat_at: sql<string>`clock_timestamp()`,
        })
        .where('run_id', '=', runId)
        .where('state', 'in', ['queued', 'running'])
        .where(
          sql<boolean>`(state = 'queued' or heartbeat_at is null
            or heartbeat_at < clock_timestamp() - ${WORKED_MS} * interval '1 millisecond')`,
        )
        .returningAll()
        .executeTakeFirst();
      return row === undefined ? undefined : toRun(row);
    });
  }

  /** @returns whether the run was told to stop meanwhile, or was ended by somebody else */
  async heartbeat(runId: string): Promise<{ cancelRequested: boolean }> {
    return mapDatabaseError('renew a run', async () => {
      const row = await this.#db
        .updateTable('runs')
        .set({ heartbeat_at: sql<string>`clock_timestamp()` })
        .where('run_id', '=', runId)
        .where('state', 'in', ['queued', 'running'])
        .returning('cancel_requested')
        .executeTakeFirst();
      return { cancelRequested: row?.cancel_requested ?? true };
    });
  }

  /** Nobody works it from now on: the next who looks need not wait until it counts as silent. */
  async giveBack(runId: string, { hasTried = true }: { readonly hasTried?: boolean } = {}): Promise<void> {
    await mapDatabaseError('give a run back', () =>
      this.#db
        .updateTable('runs')
        .set({ heartbeat_at: null, ...(hasTried ? {} : { attempts: sql<number>`attempts - 1` }) })
        .where('run_id', '=', runId)
        .where('state', '=', 'running')
        .execute(),
    );
  }

  /** Whom nobody was told of, oldest first. */
  untold(rowsMax: number): Promise<readonly UntoldRun[]> {
    return readUntoldRuns(this.#db, rowsMax);
  }

  /** Keeps a value that a resumed run needs again, merged into the run's parameters. */
  async keep(runId: string, params: Readonly<Record<string, unknown>>): Promise<void> {
    await mapDatabaseError('update a run', () =>
      sql`update mirror.runs set params = params || ${evidenceJson(params)}::jsonb where run_id = ${runId}`.execute(
        this.#db,
      ),
    );
  }

  /**
   * Records the verdict once; a run that has one already keeps it. A list that was proven complete proves which
   * source the mirror is of: that address is shown from then on.
   */
  async finish(runId: string, verdict: Verdict, evidence: Readonly<Record<string, unknown>>): Promise<void> {
    const { rows } = await mapDatabaseError('record a verdict', () =>
      sql<{ kind: string; seconds: number }>`
        with ended as (
          update mirror.runs set state = 'done', verdict = ${verdict}, evidence = ${evidenceJson(evidence)}::jsonb,
            finished_at = clock_timestamp()
          where run_id = ${runId} and state in ('queued', 'running')
          returning kind, source_url, extract(epoch from finished_at - queued_at)::float8 as seconds),
        proven as (
          update mirror.identity i set source_url = ended.source_url from ended
           where ended.kind = 'sync' and ${verdict} = 'complete' and ended.source_url is not null
             and i.source_url is distinct from ended.source_url)
        select kind, seconds from ended`.execute(this.#db),
    );
    for (const { kind, seconds } of rows) this.#onEnded({ kind, verdict, durationMs: seconds * 1_000 });
  }

  /**
   * Tells the run, and those below it, to stop at their next safe point. One that nobody works ends here.
   * @returns the state before; undefined where there is no such run
   */
  async requestCancel(runId: string): Promise<RunState | undefined> {
    return mapDatabaseError('cancel a run', async () => {
      const before = await this.get(runId);
      await sql`
        with told as (select run_id, state = 'queued' or heartbeat_at is null
            or heartbeat_at < clock_timestamp() - ${WORKED_MS} * interval '1 millisecond' as is_idle
          from mirror.runs where (run_id = ${runId} or parent_run_id = ${runId}) and state in ('queued', 'running') for update)
        update mirror.runs r set cancel_requested = true,
            state = case when is_idle then 'cancelled' else state end,
            finished_at = case when is_idle then clock_timestamp() else finished_at end
          from told where told.run_id = r.run_id`.execute(this.#db);
      return before?.state;
    });
  }

  async markCancelled(runId: string): Promise<void> {
    await mapDatabaseError('cancel a run', () =>
      this.#db
        .updateTable('runs')
        .set({ state: 'cancelled', finished_at: sql<string>`clock_timestamp()` })
        .where('run_id', '=', runId)
        .where('state', 'in', ['queued', 'running'])
        .execute(),
    );
  }

  /** Unfinished runs that nobody has renewed for `staleMs`, oldest first. */
  async stale(staleMs: number): Promise<readonly Run[]> {
    return mapDatabaseError('look for stale runs', async () => {
      const rows = await this.#db
        .selectFrom('runs')
        .selectAll()
        .where('state', 'in', ['queued', 'running'])
        .where(
          sql<boolean>`coalesce(heartbeat_at, queued_at) < clock_timestamp() - ${staleMs} * interval '1 millisecond'`,
        )
        .orderBy('queued_at')
        .limit(LISTED_MAX)
        .execute();
      return rows.map(toRun);
    });
  }
}
