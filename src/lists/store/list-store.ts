/**
 * The tables of the lists. They record which worker syncs a list, which rows are
 * stored, which doubts are open, and the verdict.
 */
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { errorCode, FencedError } from '../../errors/errors.ts';
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
  locateAudited,
  locateStored,
  SELECTED,
  setHead,
  type Generation,
  type Located,
  type SourceHead,
} from './generations.ts';
import { readEpoch, readSituation, type ListSituation } from './list-state.ts';

/** The code of an insert whose row is stored already (unique_violation). */
const STORED_ALREADY = 'DATABASE_23505';
const LEASE_UNTIL = sql`clock_timestamp() + ${LEASE_MS} * interval '1 ms'`;

interface PageCommit extends SourceHead {
  readonly rows: readonly ListedRow[];
  readonly resumePoint: ResumePoint;
}

/** A lease that this worker has taken, and the run that it works for. */
interface Held {
  readonly db: Database;
  readonly list: ListName;
  readonly runId: string;
  readonly token: string;
  readonly signal: AbortSignal;
}

/**
 * One list under its lease: reads and writes its rows, its doubts and its verdict.
 * @throws FencedError from every write once another worker has taken over
 */
export class ListSession {
  readonly list: ListName;
  readonly #held: Held;
  readonly #takenAtMs: number;
  /** What the lease is for, as messages name it. */
  readonly #what: string;
  /** Whether a page of this sync had rows that were stored before. */
  #hasMetStored = false;

  /**
   * @param held the lease that this worker has taken
   * @param takenAtMs when the request that took the lease was sent (`performance.now()`)
   */
  constructor(held: Held, takenAtMs: number) {
    this.list = held.list;
    this.#held = held;
    this.#takenAtMs = takenAtMs;
    this.#what = `the sync of ${held.list}`;
  }

  async renew(): Promise<void> {
    const { db, list, token } = this.#held;
    const renewal = statement()`
      update mirror.list_leases set lease_until = ${LEASE_UNTIL}
      where list = ${list} and token = ${token}`;
    const action = `renew the lease of ${this.#what}`;
    const renewed = await execute(db, action, renewal);
    if (renewed === 0n) throw new FencedError(this.#what);
  }

  async release(): Promise<void> {
    const { db, list, token } = this.#held;
    const end = statement()`
      update mirror.list_leases set token = null, lease_until = null
      where list = ${list} and token = ${token}`;
    await execute(db, `release the lease of ${this.#what}`, end);
  }

  /**
   * Renews the lease until the result is disposed of, and then releases it, so that a
   * successor does not have to wait until it expires.
   */
  keepLease(): ReturnType<typeof keepLease> {
    return keepLease({
      what: this.#what,
      takenAtMs: this.#takenAtMs,
      renew: () => this.renew(),
      release: () => this.release(),
    });
  }

  /**
   * Begins a generation, and drops an abandoned audit that it replaces. Safe to repeat,
   * because the new generation has no page yet.
   */
  begin(kind: Generation['kind'], epoch: number): Promise<Generation> {
    const { list, runId } = this.#held;
    return this.#write('begin a generation', async (tx) => {
      if (kind === 'audit') await dropAudit(tx, list);
      const insert = statement(COLUMNS)`
        insert into mirror.generations as held (list, epoch, kind, run_id)
        values (${list}, ${epoch}, ${kind}, ${runId})
        on conflict (list, epoch, kind)
        do update set run_id = excluded.run_id where held.sequence = 0
        returning ${SELECTED}`;
      return readRow(tx, 'begin a generation', insert);
    });
  }

  /**
   * Appends a page.
   * @returns the generation including the page; undefined if the generation has
   *   advanced since the resume point that the page builds on, in which case nothing is
   *   written
   * @throws DoubtError `ROW_TWICE` if a party is already stored
   */
  async append(
    { generationId }: Generation,
    { rows: page, resumePoint, ...head }: PageCommit,
  ): Promise<Generation | undefined> {
    const { db, list, token } = this.#held;
    const shown = page.filter(({ odd }) => odd === undefined);
    const keys = shown.map(({ key }) => key);
    const added = new Set(keys).size;
    const sequence = resumePoint.sequence;
    const point = JSON.stringify(resumePoint);
    const action = `commit a page of ${list}`;
    const commit = async (tx: Database, areNew: boolean) => {
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
        appendRows(held, shown, added, areNew),
      );
      if (appended !== BigInt(added)) throw seenRowTwice(list, keys);
      return held;
    };
    // The sequence number shows whether the page was committed, because no other worker
    // commits under this lease.
    const findCommitted = () => {
      const committed = statement(COLUMNS)`
        select ${SELECTED} from mirror.generations
        where generation_id = ${generationId} and sequence = ${sequence}::bigint
          and resume_point = ${point}::jsonb
          and exists (select from mirror.list_leases where token = ${token})`;
      return findRow(db, action, committed);
    };
    const attempt = (areNew: boolean) =>
      this.#write(action, (tx) => commit(tx, areNew), findCommitted);
    if (this.#hasMetStored) return attempt(false);
    try {
      return await attempt(true);
    } catch (error) {
      if (errorCode(error) !== STORED_ALREADY) throw error;
      this.#hasMetStored = true;
      return attempt(false);
    }
  }

  /**
   * Finds out which rows of a page are stored, and the highest of their positions, with
   * one index lookup per row.
   * @param countingTo counts the rows of the list, including repeated ones, up to this
   *   position, or up to the highest position of the given keys if that is higher; if
   *   absent, `rowsUpTo` is 0
   */
  locate(
    generation: Generation,
    keys: readonly string[],
    countingTo?: bigint,
  ): Promise<Located> {
    const found =
      generation.kind === 'current'
        ? locateStored(generation, keys, countingTo)
        : locateAudited(generation, keys, countingTo);
    return this.#read('compare a page', found);
  }

  /** Reads the generations, doubts and gaps of the list. */
  situation(): Promise<ListSituation> {
    const { db, list, signal } = this.#held;
    return retryWhileUnavailable(
      { action: 'read how a list stands', signal },
      () => readSituation(db, list),
    );
  }

  /**
   * Whether one of these parties is stored for the current network. If no party is
   * stored at all yet, the source address of the last claim decides.
   */
  async holdsParty(partyIds: readonly string[]): Promise<boolean> {
    const { runId } = this.#held;
    const held = statement({ isHeld: 'boolean' })`
      with parties as (
        select party_id from mirror.parties
        where gone_since is null and epoch = (select max(epoch) from mirror.networks))
      select exists (select from parties where party_id = any(${[...partyIds]}::text[]))
        or (not exists (select from parties) and exists (
          select from mirror.runs r, mirror.identity i
          where r.run_id = ${runId} and r.source_url is not distinct from i.source_url)) as "isHeld"`;
    const { isHeld } = await this.#read('compare parties', held);
    return isHeld;
  }

  /**
   * Whether there is a doubt that the other list belongs to this network, and whether
   * a worker is reading it.
   */
  otherList(): Promise<OtherList> {
    const { list } = this.#held;
    const other = statement({ isOtherNetwork: 'boolean', isRead: 'boolean' })`
      select exists (select from mirror.doubts
          where subject <> ${list} and code = 'OTHER_NETWORK' and closed_at is null
            and epoch = (select max(epoch) from mirror.networks)) as "isOtherNetwork",
        exists (select from mirror.list_leases
          where list <> ${list} and mirror.is_leased(lease_until, lease_holder)) as "isRead"`;
    return this.#read('read how the other list stands', other);
  }

  /** Stores a party without a position, such as `network`. */
  keepUnplaced(
    epoch: number,
    row: ListedRow,
  ): Promise<{ readonly wasKnown: boolean }> {
    return this.#write('keep a party without a place', (tx) =>
      keepUnplaced(tx, epoch, row),
    );
  }

  /**
   * Opens the doubt unless it is already open, and discards the rows that an audit
   * has read.
   */
  openDoubt(epoch: number, { code, message, meta }: DoubtError): Promise<void> {
    const { list, runId } = this.#held;
    return this.#write('record a doubt', async (tx) => {
      await dropAudit(tx, list);
      const seen = evidenceJson({ message, ...meta });
      const insert = statement()`
        insert into mirror.doubts (subject, epoch, code, seen, run_id)
        values (${list}, ${epoch}, ${code}, ${seen}::jsonb, ${runId})
        on conflict (subject, epoch, code) where closed_at is null do nothing`;
      await execute(tx, 'record a doubt', insert);
    });
  }

  /**
   * Opens or updates the doubt about rows that cannot be parsed. The reading that
   * encountered such rows leaves it open; the next audit closes it.
   */
  keepOddRows(
    { generationId, epoch }: Generation,
    seen: object,
  ): Promise<void> {
    const { list, runId } = this.#held;
    return this.#write('keep rows that are not understood', async (tx) => {
      const { code, message } = rowsNotUnderstood(list, {});
      const found = { message, ...seen, generationId: `${generationId}` };
      const insert = statement()`
        insert into mirror.doubts as open (subject, epoch, code, seen, run_id)
        values (${list}, ${epoch}, ${code}, ${evidenceJson(found)}::jsonb, ${runId})
        on conflict (subject, epoch, code) where closed_at is null
        do update set seen = excluded.seen`;
      await execute(tx, 'keep rows that are not understood', insert);
    });
  }

  /**
   * Replaces the current rows with those of an audit, and records `complete` if the
   * list is complete. A single statement decides that from the stored rows.
   */
  claim(claim: Claim): Promise<Claimed> {
    const { db, runId } = this.#held;
    return this.#write<Claimed>(
      'claim a list complete',
      (tx) => claimList(tx, runId, claim),
      async () => {
        const claimed = statement({ evidence: typed<object>('json!') })`
          select evidence from mirror.runs
          where run_id = ${runId} and verdict = 'complete'`;
        const run = await findRow(db, 'claim a list complete', claimed);
        return run && { kind: 'complete', evidence: run.evidence };
      },
    );
  }

  /** Records any verdict other than `complete`. */
  settle(
    verdict: Exclude<Verdict, 'complete'>,
    evidence: object,
  ): Promise<void> {
    const { runId } = this.#held;
    return this.#write('record a verdict', async (tx) => {
      const end = statement()`
        update mirror.runs set state = 'done', verdict = ${verdict},
          finished_at = clock_timestamp(), evidence = ${evidenceJson(evidence)}::jsonb
        where run_id = ${runId} and state in ('queued', 'running')`;
      await execute(tx, 'record a verdict', end);
    });
  }

  /** Runs a statement that yields one row, and repeats it while Postgres is away. */
  #read<Row>(action: string, query: Statement<Row>): Promise<Row> {
    const { db, signal } = this.#held;
    return retryWhileUnavailable({ action, signal }, () =>
      readRow(db, action, query),
    );
  }

  /**
   * Runs a transaction that locks the lease's row first, so that only this worker can
   * commit.
   * @param wasDone returns the result that an earlier attempt has written, in case its
   *   response was lost; absent if the work is safe to repeat
   */
  #write<Result>(
    action: string,
    work: (tx: Database) => Promise<Result>,
    wasDone?: () => Promise<Result | undefined>,
  ): Promise<Result> {
    const { db, list, token, signal } = this.#held;
    return retryWhileUnavailable({ action, signal, wasDone }, () =>
      inTransaction(db, { action }, async (tx) => {
        const fence = statement({ list: 'text' })`
          select list from mirror.list_leases
          where list = ${list} and token = ${token} for update`;
        const held = await readRows(tx, action, fence);
        if (held.length === 0) throw new FencedError(this.#what);
        return work(tx);
      }),
    );
  }
}

/** The other list, as far as it matters to the claim of this one. */
interface OtherList {
  /** Whether there is an open doubt that the list belongs to this network. */
  readonly isOtherNetwork: boolean;
  /** Whether a worker is reading the list. */
  readonly isRead: boolean;
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
      : new ListSession({ db, list, runId, token, signal }, takenAtMs);
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
    set epoch = excluded.epoch, last_seen_at = clock_timestamp(), restored_at = null,
      pos = case when held.epoch = excluded.epoch then held.pos end,
      gone_since = null, extra = excluded.extra
    returning xmax <> 0 as "wasKnown"`;
  return readRow(tx, 'store a party', insert);
}
