/**
 * The tables of the lists. They record which worker syncs a list, which rows are
 * stored, which doubts are open, and the verdict.
 */
import { randomUUID } from 'node:crypto';
import { sql, type RawBuilder } from 'kysely';
import { FencedError } from '../../errors/errors.ts';
import { keepLease, LEASE_MS } from '../../concurrency/lease.ts';
import { evidenceJson } from '../../json/json-value.ts';
import type { Verdict } from '../../errors/verdict.ts';
import { builder } from '../../postgres/builder.ts';
import type { Database } from '../../postgres/database.ts';
import {
  execute,
  findRow,
  readRow,
  readRows,
} from '../../postgres/run-statement.ts';
import { statement, typed, type Statement } from '../../postgres/statement.ts';
import {
  inTransaction,
  retryWhileUnavailable,
} from '../../postgres/transaction.ts';
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
  COPIES,
  IS_ASKED,
  SELECTED,
  setHead,
  TABLES,
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
 * @throws FencedError from every write once another worker has taken over
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
    const renewal = statement()`
      update mirror.list_leases set lease_until = ${LEASE_UNTIL}
      where list = ${list} and token = ${token}`;
    const renewed = await execute(db, `renew the lease of ${what}`, renewal);
    if (renewed === 0n) throw new FencedError(what);
  }

  async function release() {
    const end = statement()`
      update mirror.list_leases set token = null, lease_until = null
      where list = ${list} and token = ${token}`;
    await execute(db, `release the lease of ${what}`, end);
  }

  /**
   * Renews the lease until it is disposed, and then releases it, so that a successor
   * does not have to wait until it expires.
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
   * Runs a transaction that locks the lease's row first, so that only this worker can
   * commit.
   * @param wasDone returns the result that an earlier attempt has written, in case its
   *   response was lost; absent if the work is safe to repeat
   */
  return <Result>(
    action: string,
    work: (tx: Database) => Promise<Result>,
    wasDone?: () => Promise<Result | undefined>,
  ) =>
    retryWhileUnavailable({ action, signal, wasDone }, () =>
      inTransaction(db, { action }, async (tx) => {
        const fence = statement({ list: 'text' })`
          select list from mirror.list_leases
          where list = ${list} and token = ${token} for update`;
        const held = await readRows(tx, action, fence);
        if (held.length === 0) throw new FencedError(`the sync of ${list}`);
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
   * Begins a generation, and drops an abandoned audit that it replaces. Safe to repeat,
   * because the new generation has no page yet.
   */
  const begin = (kind: Generation['kind'], epoch: number) =>
    write('begin a generation', async (tx) => {
      if (kind === 'audit') await dropAudit(tx, list);
      const insert = statement(COLUMNS)`
        insert into mirror.generations as held (list, epoch, kind, run_id)
        values (${list}, ${epoch}, ${kind}, ${runId})
        on conflict (list, epoch, kind)
        do update set run_id = excluded.run_id where held.sequence = 0
        returning ${SELECTED}`;
      return readRow(tx, 'begin a generation', insert);
    });

  /**
   * Appends a page.
   * @returns the generation including the page; undefined if the generation has
   *   advanced since the resume point that the page builds on, in which case nothing is
   *   written
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
    const action = `commit a page of ${list}`;
    const commit = async (tx: Database) => {
      const advance = statement(COLUMNS)`
        update mirror.generations
        set sequence = ${sequence}::bigint, resume_point = ${point}::jsonb,
          last_pos = last_pos + ${added}::int, rows = rows + ${shown.length}::int,
          pages = pages + 1, ${setHead(head)}
        where generation_id = ${generationId} and sequence = ${sequence}::bigint - 1
        returning ${SELECTED}`;
      const held = await findRow(tx, action, advance);
      if (held === undefined || added === 0) return held;
      const appended = await execute(
        tx,
        action,
        appendRows(held, shown, added),
      );
      if (appended !== BigInt(added)) throw seenRowTwice(list, keys);
      return held;
    };
    // The sequence number shows whether the page was committed, because no other worker
    // commits under this lease.
    return write(action, commit, () => {
      const committed = statement(COLUMNS)`
        select ${SELECTED} from mirror.generations
        where generation_id = ${generationId} and sequence = ${sequence}::bigint
          and resume_point = ${point}::jsonb
          and exists (select from mirror.list_leases where token = ${token})`;
      return findRow(db, action, committed);
    });
  }

  /**
   * Finds out which rows of a page are stored, and the highest of their positions, with
   * one index lookup per row.
   * @param countingTo counts the rows of the list, including repeated ones, up to this
   *   position, or up to the highest position of the given keys if that is higher; if
   *   absent, `rowsUpTo` is 0
   */
  function locate(
    generation: Generation,
    keys: readonly string[],
    countingTo?: bigint,
  ) {
    const found =
      generation.kind === 'current'
        ? locateStored(generation, keys, countingTo)
        : locateAudited(generation, keys, countingTo);
    const action = 'compare a page';
    return retryWhileUnavailable({ action, signal }, () =>
      readRow(db, action, found),
    );
  }

  return { begin, append, locate };
}

/** See `locate` in `openPages`. */
interface Located {
  readonly held: readonly string[];
  readonly highestPos: bigint | null;
  readonly rowsUpTo: bigint;
}

const LOCATED = {
  held: typed<readonly string[]>('text[]'),
  highestPos: 'bigint?',
  rowsUpTo: 'bigint',
} as const;

function locateStored(
  { list, epoch }: Generation,
  keys: readonly string[],
  countingTo: bigint | undefined,
): Statement<Located> {
  return statement(LOCATED)`
    with found as (
      select asked.key, one.pos from unnest(${[...keys]}::text[]) as asked (key), lateral (
        select pos from ${TABLES[list]} held
        where epoch = ${epoch} and gone_since is null and ${IS_ASKED[list]} limit 1) one),
    counted as (
      select ${COPIES[list]} as copies, pos from ${TABLES[list]}
      where epoch = ${epoch} and gone_since is null)
    ${describeFound(countingTo)}`;
}

function locateAudited(
  { generationId }: Generation,
  keys: readonly string[],
  countingTo: bigint | undefined,
): Statement<Located> {
  return statement(LOCATED)`
    with found as (
      select asked.key, held.pos from unnest(${[...keys]}::text[]) as asked (key)
      join mirror.audit_rows held on generation_id = ${generationId} and held.key = asked.key),
    counted as (
      select copies, pos from mirror.audit_rows where generation_id = ${generationId})
    ${describeFound(countingTo)}`;
}

/** The end of a statement with the rows `found`, and the rows to be `counted`. */
function describeFound(countingTo: bigint | undefined): RawBuilder<unknown> {
  return sql`, top as (select max(pos) as pos from found)
    select array(select key from found) as held, top.pos as "highestPos",
      (select coalesce(sum(copies), 0)::bigint from counted
        where ${countingTo !== undefined}
          and pos <= greatest(top.pos, ${countingTo ?? 0n}::bigint)) as "rowsUpTo"
    from top`;
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
     * Whether one of these parties is stored for the current network. If no party is
     * stored at all yet, the source address of the last claim decides.
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
        readRow(db, action, held),
      );
      return isHeld;
    },

    /**
     * Whether there is a doubt that the other list belongs to this network, and whether
     * a worker is reading it.
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
        readRow(db, action, other),
      );
    },

    keepUnplaced: (epoch: number, row: ListedRow) =>
      write('keep a party without a place', (tx) =>
        keepUnplaced(tx, epoch, row),
      ),

    /**
     * Opens the doubt unless it is already open, and discards the rows that an audit
     * has read.
     */
    openDoubt: (epoch: number, { code, message, meta }: DoubtError) =>
      write('record a doubt', async (tx) => {
        await dropAudit(tx, list);
        const seen = evidenceJson({ message, ...meta });
        const insert = statement()`
          insert into mirror.doubts (subject, epoch, code, seen, run_id)
          values (${list}, ${epoch}, ${code}, ${seen}::jsonb, ${runId})
          on conflict (subject, epoch, code) where closed_at is null do nothing`;
        await execute(tx, 'record a doubt', insert);
      }),

    /**
     * Opens or updates the doubt about rows that cannot be parsed. The reading that
     * encountered such rows leaves it open; the next audit closes it.
     */
    keepOddRows: ({ generationId, epoch }: Generation, seen: object) =>
      write('keep rows that are not understood', async (tx) => {
        const { code, message } = rowsNotUnderstood(list, {});
        const found = { message, ...seen, generationId: `${generationId}` };
        const insert = statement()`
          insert into mirror.doubts as open (subject, epoch, code, seen, run_id)
          values (${list}, ${epoch}, ${code}, ${evidenceJson(found)}::jsonb, ${runId})
          on conflict (subject, epoch, code) where closed_at is null
          do update set seen = excluded.seen`;
        await execute(tx, 'keep rows that are not understood', insert);
      }),

    /**
     * Replaces the current rows with those of an audit, and records `complete` if the
     * list is. A single statement decides that from the stored rows.
     */
    claim: (claim: Claim) =>
      write<Claimed>(
        'claim a list complete',
        (tx) => claimList(tx, runId, claim),
        async () => {
          const claimed = statement({ evidence: typed<object>('json!') })`
            select evidence from mirror.runs
            where run_id = ${runId} and verdict = 'complete'`;
          const run = await findRow(db, 'claim a list complete', claimed);
          return run && { kind: 'complete', evidence: run.evidence };
        },
      ),

    /** Records any verdict other than `complete`. */
    settle: (verdict: Exclude<Verdict, 'complete'>, evidence: object) =>
      write('record a verdict', async (tx) => {
        const end = statement()`
          update mirror.runs set state = 'done', verdict = ${verdict},
            finished_at = clock_timestamp(), evidence = ${evidenceJson(evidence)}::jsonb
          where run_id = ${runId} and state in ('queued', 'running')`;
        await execute(tx, 'record a verdict', end);
      }),
  };
}

export class ListStore {
  readonly #db: Database;
  readonly #holder: number | undefined;

  /**
   * @param holder the id of this process's liveness lock, which shows other processes
   *   that it is alive; if absent, other workers soon take over its leases
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
    // Safe to repeat, because a lease that this worker already has can be taken again.
    const lease = statement()`
      update mirror.list_leases
      set token = ${token}, lease_until = ${LEASE_UNTIL},
        lease_holder = ${this.#holder ?? null}::int
      where list = ${list}
        and (token = ${token} or mirror.is_leased(lease_until, lease_holder) is not true)`;
    const action = `open the sync of ${list}`;
    const leased = await retryWhileUnavailable({ action, signal }, () =>
      execute(db, action, lease),
    );
    return leased === 0n
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
  const drop = builder
    .deleteFrom('mirror.generations')
    .where('list', '=', list)
    .where('kind', '=', 'audit');
  await execute(tx, 'drop an abandoned audit', drop);
}

/** Stores a party without a position: `network`, or a party that was looked up. */
function keepUnplaced(tx: Database, epoch: number, { key, extra }: ListedRow) {
  const fields = extra === undefined ? null : JSON.stringify(extra);
  const insert = statement({ wasKnown: 'boolean' })`
    insert into mirror.parties as held (party_id, first_epoch, epoch, extra)
    values (${key}, ${epoch}, ${epoch}, ${fields}::jsonb)
    on conflict (party_id) do update
    set epoch = excluded.epoch, last_seen_at = clock_timestamp(),
      pos = case when held.epoch = excluded.epoch then held.pos end,
      gone_since = null, extra = excluded.extra
    returning xmax <> 0 as "wasKnown"`;
  return readRow(tx, 'store a party', insert);
}
