/** The tables of the lists: who syncs one, what is held, what speaks against it, and the verdict. */
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { FencedError } from '../../core/errors.ts';
import { keepLease, LEASE_MS, type KeptLease } from '../../core/lease.ts';
import { evidenceJson } from '../../core/json-value.ts';
import type { Verdict } from '../../core/verdict.ts';
import type { Database } from '../../postgres/database.ts';
import { inTransaction, retryWhileUnavailable } from '../../postgres/transaction.ts';
import { seenRowTwice, type DoubtSeen } from '../guards.ts';
import type { ListedRow, ListName } from '../ports.ts';
import type { ResumePoint } from '../resume-point.ts';
import { claimList, type Claim, type Claimed } from './claim.ts';
import {
  appendRows,
  COLUMNS,
  readGenerations,
  rowsOf,
  setHead,
  theOnly,
  type Generation,
  type SourceHead,
} from './generations.ts';
import { readOpen, type ListState } from './list-state.ts';

const LEASE_UNTIL = sql`clock_timestamp() + ${LEASE_MS} * interval '1 ms'`;

export interface ListSituation
  extends Readonly<Record<Generation['kind'], Generation | undefined>>, Pick<ListState, 'doubts' | 'gaps'> {
  readonly epoch: number;
}

interface PageCommit extends SourceHead {
  readonly rows: readonly ListedRow[];
  readonly resumePoint: ResumePoint;
}

interface Located {
  /** Those of the asked keys that are held. */
  readonly held: readonly string[];
  /** The highest of their places; null where none has one. */
  readonly highestPos: bigint | null;
  /** Rows of the list up to there, repeated ones counted; 0 where the caller does not need it. */
  readonly rowsUpTo: bigint;
}

interface SessionDeps {
  readonly db: Database;
  readonly runId: string;
  readonly token: string;
  /** When the request that took the lease was sent (`performance.now()`). */
  readonly takenAtMs: number;
  readonly signal: AbortSignal;
}

/** One list under its lease. @throws FencedError from whatever writes, once another worker has taken over */
export class ListSession {
  readonly list: ListName;
  readonly #deps: SessionDeps;

  constructor(list: ListName, deps: SessionDeps) {
    this.list = list;
    this.#deps = deps;
  }

  /** Renews the lease until it is disposed, and then gives it back: a successor need not wait for its end. */
  keepLease(): KeptLease {
    return keepLease({
      what: `the sync of ${this.list}`,
      takenAtMs: this.#deps.takenAtMs,
      renew: () => this.renew(),
      release: () => this.release(),
    });
  }

  async renew(): Promise<void> {
    const { rows } = await sql`update mirror.list_leases set lease_until = ${LEASE_UNTIL}
      where list = ${this.list} and token = ${this.#deps.token} returning list`.execute(this.#deps.db);
    if (rows.length === 0) throw new FencedError(`the sync of ${this.list}`);
  }

  async release(): Promise<void> {
    await sql`update mirror.list_leases set token = null, lease_until = null
      where list = ${this.list} and token = ${this.#deps.token}`.execute(this.#deps.db);
  }

  situation(): Promise<ListSituation> {
    return this.#read('read how a list stands', async (db) => {
      const epoch = await readEpoch(db);
      const generations = await readGenerations(db, this.list, epoch);
      return {
        epoch,
        current: generations.find(({ kind }) => kind === 'current'),
        audit: generations.find(({ kind }) => kind === 'audit'),
        ...(await readOpen(db, this.list, epoch)),
      };
    });
  }

  /** An abandoned audit is of no use beside a new one. Safe to repeat: the new one has no page yet. */
  begin(kind: Generation['kind'], epoch: number): Promise<Generation> {
    return this.#write('begin a generation', async (tx) => {
      if (kind === 'audit') await dropAudit(tx, this.list);
      const { rows } = await sql<Generation>`
        insert into mirror.generations as held (list, epoch, kind, run_id)
        values (${this.list}, ${epoch}, ${kind}, ${this.#deps.runId})
        on conflict (list, epoch, kind) do update set run_id = excluded.run_id where held.sequence = 0
        returning ${COLUMNS}`.execute(tx);
      return theOnly(rows);
    });
  }

  /**
   * Appends a page. @returns the generation with it; undefined, and nothing is written, where the generation has gone
   * on since the resume point that the page builds on
   * @throws DoubtSeen `ROW_TWICE` where a party is held already
   */
  append(
    { generationId }: Generation,
    { rows: shown, resumePoint, ...head }: PageCommit,
  ): Promise<Generation | undefined> {
    const keys = shown.map(({ key }) => key);
    const added = new Set(keys).size;
    const [sequence, point] = [resumePoint.sequence, JSON.stringify(resumePoint)];
    return this.#write(
      `commit a page of ${this.list}`,
      async (tx) => {
        const { rows } = await sql<Generation>`
          update mirror.generations
          set sequence = ${sequence}::bigint, resume_point = ${point}::jsonb, last_pos = last_pos + ${added}::int,
            rows = rows + ${shown.length}::int, pages = pages + 1, ${setHead(head)}
          where generation_id = ${generationId} and sequence = ${sequence}::bigint - 1
          returning ${COLUMNS}`.execute(tx);
        const [held] = rows;
        if (held === undefined || added === 0) return held;
        const { numAffectedRows } = await appendRows(held, shown, added).execute(tx);
        if (numAffectedRows !== BigInt(added)) throw seenRowTwice(this.list, keys);
        return held;
      },
      // The sequence tells whether the page is in: nobody else commits under our lease.
      async (db) => {
        const { rows } = await sql<Generation>`select ${COLUMNS} from mirror.generations
          where generation_id = ${generationId} and sequence = ${sequence}::bigint and resume_point = ${point}::jsonb
            and exists (select from mirror.list_leases where token = ${this.#deps.token})`.execute(db);
        return rows[0];
      },
    );
  }

  /**
   * Which rows of a page are held, and where: one look into an index for each.
   * @param countingTo counts the rows up to this place, or to the highest of the asked ones where that is higher
   */
  locate(generation: Generation, keys: readonly string[], countingTo?: bigint): Promise<Located> {
    const { table, copies, isAsked, isHeld } = rowsOf(generation);
    return this.#read('compare a page', async (db) => {
      const { rows } = await sql<Located>`
        with found as (select asked.key, one.pos from unnest(${[...keys]}::text[]) as asked (key),
          lateral (select pos from ${table} held where ${isHeld} and ${isAsked} limit 1) one),
        top as (select max(pos) as pos from found)
        select array(select key from found) as held, top.pos as "highestPos",
          (select coalesce(sum(${copies}), 0)::bigint from ${table} where ${isHeld} and ${countingTo !== undefined}
            and pos <= greatest(top.pos, ${countingTo ?? 0n}::bigint)) as "rowsUpTo" from top`.execute(db);
      return theOnly(rows);
    });
  }

  async keepUnplaced(epoch: number, row: ListedRow): Promise<void> {
    await this.#write('keep a party without a place', (tx) => keepUnplaced(tx, epoch, row));
  }

  /** Opens the doubt, or keeps the open one; discards what an audit has read. */
  openDoubt(epoch: number, { code, message, meta }: DoubtSeen): Promise<void> {
    return this.#write('record a doubt', async (tx) => {
      await dropAudit(tx, this.list);
      await sql`insert into mirror.doubts (subject, epoch, code, seen, run_id)
        values (${this.list}, ${epoch}, ${code}, ${evidenceJson({ message, ...meta })}::jsonb, ${this.#deps.runId})
        on conflict (subject, epoch, code) where closed_at is null do nothing`.execute(tx);
    });
  }

  /**
   * Puts an audit in place of the current rows, and records `complete` where it is true: one statement decides, from stored rows.
   */
  claim(claim: Claim): Promise<Claimed> {
    const { runId } = this.#deps;
    return this.#write(
      'claim a list complete',
      (tx) => claimList(tx, runId, claim),
      async (db) => {
        const { rows } = await sql<{ evidence: object }>`select evidence from mirror.runs
          where run_id = ${runId} and verdict = 'complete'`.execute(db);
        return rows[0] && { kind: 'complete', evidence: rows[0].evidence };
      },
    );
  }

  /** Records any other verdict. */
  settle(verdict: Exclude<Verdict, 'complete'>, evidence: object): Promise<void> {
    return this.#write('record a verdict', async (tx) => {
      await sql`update mirror.runs set state = 'done', verdict = ${verdict}, finished_at = clock_timestamp(),
          evidence = ${evidenceJson(evidence)}::jsonb
        where run_id = ${this.#deps.runId} and state in ('queued', 'running')`.execute(tx);
    });
  }

  #read<Result>(action: string, work: (db: Database) => Promise<Result>): Promise<Result> {
    const { db, signal } = this.#deps;
    return retryWhileUnavailable({ action, signal }, () => work(db));
  }

  /**
   * Locks the lease's row first, which makes this worker the only one that commits.
   * @param findDone what was written, where its answer was lost; absent for what is safe to repeat
   */
  #write<Result>(
    action: string,
    work: (tx: Database) => Promise<Result>,
    findDone?: (db: Database) => Promise<Result | undefined>,
  ): Promise<Result> {
    const { db, token, signal } = this.#deps;
    return retryWhileUnavailable({ action, signal, wasDone: findDone && (() => findDone(db)) }, () =>
      inTransaction(db, { action }, async (tx) => {
        const { rows } = await sql`select from mirror.list_leases
          where list = ${this.list} and token = ${token} for update`.execute(tx);
        if (rows.length === 0) throw new FencedError(`the sync of ${this.list}`);
        return work(tx);
      }),
    );
  }
}

export class ListStore {
  readonly #db: Database;
  readonly #holder: number | undefined;

  /** @param holder by which others see that this process is there; absent: its leases are soon taken over */
  constructor(db: Database, holder?: number) {
    this.#db = db;
    this.#holder = holder;
  }

  /** @returns undefined while another worker has the list */
  async open(list: ListName, runId: string, signal: AbortSignal): Promise<ListSession | undefined> {
    const [db, token, takenAtMs] = [this.#db, randomUUID(), performance.now()];
    const wasDone = async (): Promise<true | undefined> => {
      const { rows } = await sql`select from mirror.list_leases where token = ${token}`.execute(db);
      return rows.length === 1 ? true : undefined;
    };
    const taken = await retryWhileUnavailable(
      { action: `open the sync of ${list}`, signal, wasDone },
      async () => {
        const { rows } = await sql`update mirror.list_leases
        set token = ${token}, lease_until = ${LEASE_UNTIL}, lease_holder = ${this.#holder ?? null}::int
        where list = ${list} and mirror.is_leased(lease_until, lease_holder) is not true returning list`.execute(
          db,
        );
        return rows.length === 1;
      },
    );
    return taken ? new ListSession(list, { db, runId, token, takenAtMs, signal }) : undefined;
  }

  /** Stores one party that was looked up, without a place in the list. */
  keepParty(row: ListedRow): Promise<{ readonly wasKnown: boolean }> {
    return inTransaction(this.#db, { action: 'store a party' }, async (tx) => ({
      wasKnown: await keepUnplaced(tx, await readEpoch(tx), row),
    }));
  }
}

async function readEpoch(db: Database): Promise<number> {
  const { rows } = await sql<{ epoch: number }>`select max(epoch) as epoch from mirror.networks`.execute(db);
  return theOnly(rows).epoch;
}

async function dropAudit(tx: Database, list: ListName): Promise<void> {
  await sql`delete from mirror.generations where list = ${list} and kind = 'audit'`.execute(tx);
}

/** Keeps a party without a place: `network`, or one that was looked up. @returns whether it was known */
async function keepUnplaced(tx: Database, epoch: number, { key, extra }: ListedRow): Promise<boolean> {
  const { rows } = await sql<{ wasKnown: boolean }>`
    insert into mirror.parties as held (party_id, first_epoch, epoch, extra)
    values (${key}, ${epoch}, ${epoch}, ${extra === undefined ? null : JSON.stringify(extra)}::jsonb)
    on conflict (party_id) do update set epoch = excluded.epoch, last_seen_at = clock_timestamp(),
      pos = case when held.epoch = excluded.epoch then held.pos end,
      gone_since = null, extra = coalesce(excluded.extra, held.extra)
    returning xmax <> 0 as "wasKnown"`.execute(tx);
  return theOnly(rows).wasKnown;
}
