/**
 * The tables of the lists. They record which worker syncs a list, which rows are
 * stored, which doubts are open, and the verdict.
 */
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { FencedError } from '../../errors/errors.ts';
import { keepLease, LEASE_MS } from '../../concurrency/lease.ts';
import { evidenceJson } from '../../json/json-value.ts';
import type { Verdict } from '../../errors/verdict.ts';
import type { Database } from '../../postgres/database.ts';
import {
  inTransaction,
  readRow,
  retryWhileUnavailable,
} from '../../postgres/transaction.ts';
import { readRow as readStatementRow } from '../../postgres/run-statement.ts';
import { statement } from '../../postgres/statement.ts';
import {
  rowsNotUnderstood,
  seenRowTwice,
  type DoubtError,
} from '../page-checks.ts';
import type { ListedRow, ListName } from '../ports.ts';
import type { ResumePoint } from '../resume-point.ts';
import { claimList, type Claim, type Claimed } from './claim.ts';
import {
  appendRows,
  COLUMNS,
  rowsOf,
  setHead,
  type Generation,
  type SourceHead,
} from './generations.ts';
import { readEpoch, readSituation } from './list-state.ts';

const LEASE_UNTIL = sql`clock_timestamp() + ${LEASE_MS} * interval '1 ms'`;

interface PageCommit extends SourceHead {
  readonly rows: readonly ListedRow[];
  readonly resumePoint: ResumePoint;
}

interface Held {
  readonly db: Database;
  readonly list: ListName;
  readonly runId: string;
  readonly token: string;
  readonly signal: AbortSignal;
}

/**
 * One list under its lease.
 * @throws FencedError from every write, once another worker has taken over
 */
export type ListSession = ReturnType<typeof openSession>;

/**
 * Opens the session of a lease that this worker has taken.
 * @param takenAtMs when the request that took the lease was sent (`performance.now()`)
 */
function openSession(held: Held, takenAtMs: number) {
  const { db, list, token } = held;
  const what = `the sync of ${list}`;

  async function renew() {
    const { rows } =
      await sql`update mirror.list_leases set lease_until = ${LEASE_UNTIL}
      where list = ${list} and token = ${token} returning list`.execute(db);
    if (rows.length === 0) throw new FencedError(what);
  }

  async function release() {
    await sql`update mirror.list_leases set token = null, lease_until = null
      where list = ${list} and token = ${token}`.execute(db);
  }

  /**
   * Renews the lease until it is disposed, and then releases it, so that a successor
   * need not wait until it expires.
   */
  const keep = () => keepLease({ what, takenAtMs, renew, release });
  const write = openWriter(held);
  return {
    list,
    renew,
    release,
    keepLease: keep,
    ...openPages(held, write),
    ...openVerdicts(held, write),
  };
}

function openWriter({ db, list, token, signal }: Held) {
  /**
   * Locks the lease's row first, so that only this worker can commit.
   * @param wasDone returns the result that an earlier attempt has written, in case its
   *   answer was lost; absent if the work is safe to repeat
   */
  return <Result>(
    action: string,
    work: (tx: Database) => Promise<Result>,
    wasDone?: () => Promise<Result | undefined>,
  ) =>
    retryWhileUnavailable({ action, signal, wasDone }, () =>
      inTransaction(db, { action }, async (tx) => {
        const { rows } = await sql`select from mirror.list_leases
          where list = ${list} and token = ${token} for update`.execute(tx);
        if (rows.length === 0) throw new FencedError(`the sync of ${list}`);
        return work(tx);
      }),
    );
}

/** Reads and writes the stored rows of the list, page by page. */
function openPages(
  { db, list, runId, token, signal }: Held,
  write: ReturnType<typeof openWriter>,
) {
  /**
   * Begins a generation and drops an abandoned audit, which a new one replaces. Safe to
   * repeat, because the new generation has no page yet.
   */
  const begin = (kind: Generation['kind'], epoch: number) =>
    write('begin a generation', async (tx) => {
      if (kind === 'audit') await dropAudit(tx, list);
      const query = sql<Generation>`
        insert into mirror.generations as held (list, epoch, kind, run_id) values (${list}, ${epoch}, ${kind}, ${runId})
        on conflict (list, epoch, kind) do update set run_id = excluded.run_id where held.sequence = 0
        returning ${COLUMNS}`;
      return readRow(tx, 'begin a generation', query);
    });

  /**
   * Appends a page.
   * @returns the generation including the page; undefined if the generation has
   *   advanced since the resume point that the page builds on: then nothing is written
   * @throws DoubtError `ROW_TWICE` if a party is already stored
   */
  function append(
    { generationId }: Generation,
    { rows: page, resumePoint, ...head }: PageCommit,
  ) {
    const shown = page.filter(({ odd }) => odd === undefined);
    const keys = shown.map(({ key }) => key);
    const added = new Set(keys).size;
    const sequence = resumePoint.sequence;
    const point = JSON.stringify(resumePoint);
    const commit = async (tx: Database) => {
      const { rows } = await sql<Generation>`
        update mirror.generations
        set sequence = ${sequence}::bigint, resume_point = ${point}::jsonb, last_pos = last_pos + ${added}::int,
          rows = rows + ${shown.length}::int, pages = pages + 1, ${setHead(head)}
        where generation_id = ${generationId} and sequence = ${sequence}::bigint - 1
        returning ${COLUMNS}`.execute(tx);
      const [held] = rows;
      if (held === undefined || added === 0) return held;
      const { numAffectedRows } = await appendRows(held, shown, added).execute(
        tx,
      );
      if (numAffectedRows !== BigInt(added)) throw seenRowTwice(list, keys);
      return held;
    };
    // The sequence shows whether the page was committed: no other worker commits under
    // this lease.
    return write(`commit a page of ${list}`, commit, async () => {
      const { rows } =
        await sql<Generation>`select ${COLUMNS} from mirror.generations
        where generation_id = ${generationId} and sequence = ${sequence}::bigint and resume_point = ${point}::jsonb
          and exists (select from mirror.list_leases where token = ${token})`.execute(
          db,
        );
      return rows[0];
    });
  }

  /**
   * Finds out which rows of a page are stored, and the highest of their positions, with
   * one index lookup for each row.
   * @param countingTo counts the rows of the list, including repeated ones, up to this
   *   position, or up to the highest position of the given keys if that is higher; if
   *   absent, `rowsUpTo` is 0
   */
  function locate(
    generation: Generation,
    keys: readonly string[],
    countingTo?: bigint,
  ) {
    const { table, copies, isAsked, isHeld } = rowsOf(generation);
    const query = sql<{
      held: readonly string[];
      highestPos: bigint | null;
      rowsUpTo: bigint;
    }>`
      with found as (select asked.key, one.pos from unnest(${[...keys]}::text[]) as asked (key),
        lateral (select pos from ${table} held where ${isHeld} and ${isAsked} limit 1) one),
      top as (select max(pos) as pos from found)
      select array(select key from found) as held, top.pos as "highestPos",
        (select coalesce(sum(${copies}), 0)::bigint from ${table} where ${isHeld} and ${countingTo !== undefined}
          and pos <= greatest(top.pos, ${countingTo ?? 0n}::bigint)) as "rowsUpTo" from top`;
    const action = 'compare a page';
    return retryWhileUnavailable({ action, signal }, () =>
      readRow(db, action, query),
    );
  }

  return { begin, append, locate };
}

/** Reads the state of the list and its open doubts, and records verdicts. */
function openVerdicts(
  { db, list, runId, signal }: Held,
  write: ReturnType<typeof openWriter>,
) {
  return {
    situation: () =>
      retryWhileUnavailable({ action: 'read how a list stands', signal }, () =>
        readSituation(db, list),
      ),

    /**
     * Whether one of these parties is stored for the current network. While no party is
     * stored at all, the source address of the last claim decides.
     */
    holdsParty: async (partyIds: readonly string[]) => {
      const held = statement({ isHeld: 'boolean' })`
        with parties as (
          select party_id from mirror.parties
          where gone_since is null and epoch = (select max(epoch) from mirror.networks))
        select exists (select from parties where party_id = any(${[...partyIds]}::text[]))
          or (not exists (select from parties) and exists (
            select from mirror.runs r, mirror.identity i
            where r.run_id = ${runId} and r.source_url is not distinct from i.source_url)) as "isHeld"`;
      const action = 'compare parties';
      const { isHeld } = await retryWhileUnavailable({ action, signal }, () =>
        readStatementRow(db, action, held),
      );
      return isHeld;
    },

    /**
     * Whether the other list is doubted to be of this network, and whether a worker is
     * reading it.
     */
    otherList: () => {
      const other = statement({ isOtherNetwork: 'boolean', isRead: 'boolean' })`
        select exists (select from mirror.doubts
            where subject <> ${list} and code = 'OTHER_NETWORK' and closed_at is null
              and epoch = (select max(epoch) from mirror.networks)) as "isOtherNetwork",
          exists (select from mirror.list_leases
            where list <> ${list} and mirror.is_leased(lease_until, lease_holder)) as "isRead"`;
      const action = 'read how the other list stands';
      return retryWhileUnavailable({ action, signal }, () =>
        readStatementRow(db, action, other),
      );
    },

    keepUnplaced: (epoch: number, row: ListedRow) =>
      write('keep a party without a place', (tx) =>
        keepUnplaced(tx, epoch, row),
      ),

    /**
     * Opens the doubt, or keeps it if it is open already, and discards the rows that an
     * audit has read.
     */
    openDoubt: (epoch: number, { code, message, meta }: DoubtError) =>
      write('record a doubt', async (tx) => {
        await dropAudit(tx, list);
        await sql`insert into mirror.doubts (subject, epoch, code, seen, run_id)
          values (${list}, ${epoch}, ${code}, ${evidenceJson({ message, ...meta })}::jsonb, ${runId})
          on conflict (subject, epoch, code) where closed_at is null do nothing`.execute(
          tx,
        );
      }),

    /**
     * Opens or updates the doubt about rows that are not understood. The reading that
     * met such rows leaves it open, and the next audit closes it.
     */
    keepOddRows: ({ generationId, epoch }: Generation, seen: object) =>
      write('keep rows that are not understood', async (tx) => {
        const { code, message } = rowsNotUnderstood(list, {});
        const found = { message, ...seen, generationId: `${generationId}` };
        await sql`insert into mirror.doubts as open (subject, epoch, code, seen, run_id)
          values (${list}, ${epoch}, ${code}, ${evidenceJson(found)}::jsonb, ${runId})
          on conflict (subject, epoch, code) where closed_at is null do update set seen = excluded.seen`.execute(
          tx,
        );
      }),

    /**
     * Replaces the current rows with an audit's rows, and records `complete` if it is
     * true: one statement decides, from the stored rows.
     */
    claim: (claim: Claim) =>
      write<Claimed>(
        'claim a list complete',
        (tx) => claimList(tx, runId, claim),
        async () => {
          const { rows } = await sql<{
            evidence: object;
          }>`select evidence from mirror.runs
          where run_id = ${runId} and verdict = 'complete'`.execute(db);
          return rows[0] && { kind: 'complete', evidence: rows[0].evidence };
        },
      ),

    /** Records any verdict other than `complete`. */
    settle: (verdict: Exclude<Verdict, 'complete'>, evidence: object) =>
      write('record a verdict', async (tx) => {
        await sql`update mirror.runs set state = 'done', verdict = ${verdict}, finished_at = clock_timestamp(),
            evidence = ${evidenceJson(evidence)}::jsonb
          where run_id = ${runId} and state in ('queued', 'running')`.execute(
          tx,
        );
      }),
  };
}

export class ListStore {
  readonly #db: Database;
  readonly #holder: number | undefined;

  /**
   * @param holder the id of this process's liveness lock, which shows other processes
   *   that it is alive; if absent, other workers soon take its leases over
   */
  constructor(db: Database, holder?: number) {
    this.#db = db;
    this.#holder = holder;
  }

  /**
   * Takes the lease of a list and opens its session.
   * @returns undefined while another worker has the lease
   */
  async open(
    list: ListName,
    runId: string,
    signal: AbortSignal,
  ): Promise<ListSession | undefined> {
    const db = this.#db;
    const token = randomUUID();
    const takenAtMs = performance.now();
    // Safe to repeat: a lease that this worker already has is taken again.
    const query = sql`update mirror.list_leases
      set token = ${token}, lease_until = ${LEASE_UNTIL}, lease_holder = ${this.#holder ?? null}::int
      where list = ${list} and (token = ${token} or mirror.is_leased(lease_until, lease_holder) is not true)
      returning list`;
    const action = `open the sync of ${list}`;
    const { rows } = await retryWhileUnavailable({ action, signal }, () =>
      query.execute(db),
    );
    return rows.length === 0
      ? undefined
      : openSession({ db, list, runId, token, signal }, takenAtMs);
  }

  /** Stores one party that was looked up, without a position in the list. */
  keepParty(row: ListedRow): Promise<{ readonly wasKnown: boolean }> {
    return inTransaction(this.#db, { action: 'store a party' }, async (tx) =>
      keepUnplaced(tx, await readEpoch(tx), row),
    );
  }
}

async function dropAudit(tx: Database, list: ListName) {
  await sql`delete from mirror.generations where list = ${list} and kind = 'audit'`.execute(
    tx,
  );
}

/** Stores a party without a position: `network`, or a party that was looked up. */
function keepUnplaced(tx: Database, epoch: number, { key, extra }: ListedRow) {
  const query = sql<{ wasKnown: boolean }>`
    insert into mirror.parties as held (party_id, first_epoch, epoch, extra)
    values (${key}, ${epoch}, ${epoch}, ${extra === undefined ? null : JSON.stringify(extra)}::jsonb)
    on conflict (party_id) do update set epoch = excluded.epoch, last_seen_at = clock_timestamp(),
      pos = case when held.epoch = excluded.epoch then held.pos end,
      gone_since = null, extra = excluded.extra
    returning xmax <> 0 as "wasKnown"`;
  return readRow(tx, 'store a party', query);
}
