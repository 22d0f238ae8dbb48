/** The tables of the lists: who syncs one, what is held, what speaks against it, and the verdict. */
import { randomUUID } from 'node:crypto';
import { sql, type Kysely, type Transaction } from 'kysely';
import { FencedError, type PermanentError } from '../../core/errors.ts';
import { keepLease, LEASE_MS, type KeptLease } from '../../core/lease.ts';
import { evidenceJson } from '../../core/json-value.ts';
import type { Verdict } from '../../core/verdict.ts';
import type { Database } from '../../postgres/database.ts';
import { retryWhileUnavailable } from '../../postgres/retry-while-unavailable.ts';
import type { MirrorSchema } from '../../postgres/schema.ts';
import { inTransaction } from '../../postgres/transaction.ts';
import type { ListedRow, ListName } from '../ports.ts';
import { claimList, type Claim, type Claimed } from './claim.ts';
import {
  appendPage,
  beginGeneration,
  dropAudit,
  fence,
  keepUnplaced,
  locateRows,
  readGenerations,
  readUnheld,
  theOnly,
  type Generation,
  type Lease,
  type Located,
  type PageCommit,
} from './generations.ts';
import { readOpenDoubts, readOpenGaps, type KnownGap, type OpenDoubt } from './list-state.ts';

type Tx = Transaction<MirrorSchema>;

const LEASE_UNTIL = sql`clock_timestamp() + ${LEASE_MS} * interval '1 ms'`;

export interface ListSituation {
  readonly epoch: number;
  readonly current: Generation | undefined;
  readonly audit: Generation | undefined;
  readonly doubts: readonly OpenDoubt[];
  readonly gaps: readonly KnownGap[];
}

const rollback = new Error('not complete');

/** One list under its lease. @throws FencedError from whatever writes, once another worker has taken over */
export class ListSession {
  readonly #db: Database;
  readonly #lease: Lease;
  readonly #runId: string;
  readonly #signal: AbortSignal;

  constructor(db: Database, lease: Lease, runId: string, signal: AbortSignal) {
    this.#db = db;
    this.#lease = lease;
    this.#runId = runId;
    this.#signal = signal;
  }

  get list(): ListName {
    return this.#lease.list;
  }

  /** Renews the lease until it is disposed, and then gives it back: a successor need not wait for its end. */
  keepLease(): KeptLease {
    return keepLease({
      what: `the sync of ${this.list}`,
      takenAtMs: this.#lease.takenAtMs,
      renew: () => this.renew(),
      release: () => this.release(),
    });
  }

  async renew(): Promise<void> {
    const { rows } = await sql`update mirror.list_leases set lease_until = ${LEASE_UNTIL}
      where list = ${this.list} and token = ${this.#lease.token} returning list`.execute(this.#db);
    if (rows.length === 0) throw new FencedError(`the sync of ${this.list}`);
  }

  async release(): Promise<void> {
    await sql`update mirror.list_leases set token = null, lease_until = null
      where list = ${this.list} and token = ${this.#lease.token}`.execute(this.#db);
  }

  async situation(): Promise<ListSituation> {
    return this.#read('read how a list stands', async () => {
      const epoch = await readEpoch(this.#db);
      const generations = await readGenerations(this.#db, this.list, epoch);
      return {
        epoch,
        current: generations.find(({ kind }) => kind === 'current'),
        audit: generations.find(({ kind }) => kind === 'audit'),
        doubts: await readOpenDoubts(this.#db, this.list, epoch),
        gaps: await readOpenGaps(this.#db, this.list, epoch),
      };
    });
  }

  async begin(kind: Generation['kind'], epoch: number): Promise<Generation> {
    return this.#write('begin a generation', (tx) =>
      beginGeneration(tx, { list: this.list, epoch, kind }, this.#runId),
    );
  }

  /** @returns false where the generation has gone on since the resume point that the page builds on */
  async append(generation: Generation, page: PageCommit): Promise<boolean> {
    const action = `commit a page of ${this.list}`;
    // Where the answer was lost, the sequence tells whether the page is in: nobody else commits under our lease.
    const wasDone = async (): Promise<true | undefined> => {
      const { rows } = await sql`select from mirror.generations g, mirror.list_leases l
        where g.generation_id = ${generation.generationId} and g.sequence = ${page.resumePoint.sequence}::bigint
          and g.resume_point = ${JSON.stringify(page.resumePoint)}::jsonb
          and l.list = ${this.list} and l.token = ${this.#lease.token}`.execute(this.#db);
      return rows.length === 1 ? true : undefined;
    };
    return retryWhileUnavailable({ action, signal: this.#signal, wasDone }, () =>
      inTransaction(this.#db, { action, signal: this.#signal }, (tx) =>
        appendPage(tx, this.#lease, generation, page),
      ),
    );
  }

  async unheld(generation: Generation, keys: readonly string[]): Promise<readonly string[]> {
    return this.#read('compare a page', () => readUnheld(this.#db, generation, keys));
  }

  async locate(generation: Generation, keys: readonly string[], countingTo?: bigint): Promise<Located> {
    return this.#read('compare a page', () => locateRows(this.#db, generation, keys, countingTo));
  }

  /** Whether the generation has no place for the party: not listed, or listed without one. */
  async isUnplaced(generation: Generation, partyId: string): Promise<boolean> {
    return this.#read('look a party up', async () => {
      const { rows } = await (
        generation.kind === 'audit'
          ? sql`select from mirror.audit_rows where generation_id = ${generation.generationId} and key = ${partyId}`
          : sql`select from mirror.parties
            where party_id = ${partyId} and epoch = ${generation.epoch} and pos is not null and gone_since is null`
      ).execute(this.#db);
      return rows.length === 0;
    });
  }

  async keepUnplaced(epoch: number, row: ListedRow): Promise<void> {
    await this.#write('keep a party without a place', (tx) => keepUnplaced(tx, epoch, row));
  }

  /** Opens the doubt, or keeps the open one; discards what an audit has read. */
  async openDoubt(epoch: number, doubt: PermanentError): Promise<void> {
    const seen = evidenceJson({ message: doubt.message, ...doubt.meta });
    await this.#write('record a doubt', async (tx) => {
      await dropAudit(tx, this.list);
      await sql`insert into mirror.doubts (subject, epoch, code, seen, run_id)
        values (${this.list}, ${epoch}, ${doubt.code}, ${seen}::jsonb, ${this.#runId})
        on conflict (subject, epoch, code) where closed_at is null do nothing`.execute(tx);
    });
  }

  /**
   * Puts an audit in place of the current rows, and records `complete` where it is true: one statement decides, from stored rows.
   */
  async claim(claim: Claim): Promise<Claimed> {
    const options = {
      action: 'claim a list complete',
      signal: this.#signal,
      wasDone: async (): Promise<Claimed | undefined> => {
        const { rows } = await sql<{ evidence: object }>`select evidence from mirror.runs
          where run_id = ${this.#runId} and verdict = 'complete'`.execute(this.#db);
        return rows[0] === undefined ? undefined : { kind: 'complete', evidence: rows[0].evidence };
      },
    };
    return retryWhileUnavailable(options, async () => {
      let ended: Claimed | undefined;
      try {
        return await inTransaction(this.#db, options, async (tx) => {
          await fence(tx, this.#lease);
          ended = await claimList(tx, { list: this.list, runId: this.#runId }, claim);
          if (ended.kind !== 'complete' && (ended.kind !== 'refused' || !ended.isKept)) throw rollback;
          return ended;
        });
      } catch (error) {
        if (ended !== undefined && (error === rollback || isCausedBy(error, rollback))) return ended;
        throw error;
      }
    });
  }

  /** Records any other verdict. */
  async settle(verdict: Exclude<Verdict, 'complete'>, evidence: object): Promise<void> {
    await this.#write('record a verdict', async (tx) => {
      await sql`update mirror.runs set state = 'done', verdict = ${verdict}, finished_at = clock_timestamp(),
          evidence = ${evidenceJson(evidence)}::jsonb
        where run_id = ${this.#runId} and state in ('queued', 'running')`.execute(tx);
    });
  }

  async #read<Result>(action: string, work: () => Promise<Result>): Promise<Result> {
    return retryWhileUnavailable({ action, signal: this.#signal }, work);
  }

  /** For writes that are safe to repeat. */
  async #write<Result>(action: string, work: (tx: Tx) => Promise<Result>): Promise<Result> {
    const options = { action, signal: this.#signal };
    return retryWhileUnavailable(options, () =>
      inTransaction(this.#db, options, async (tx) => {
        await fence(tx, this.#lease);
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
    const [token, takenAtMs] = [randomUUID(), performance.now()];
    const action = `open the sync of ${list}`;
    const isOurs = async (): Promise<true | undefined> => {
      const { rows } = await sql`select from mirror.list_leases where token = ${token}`.execute(this.#db);
      return rows.length === 1 ? true : undefined;
    };
    const taken = await retryWhileUnavailable({ action, signal, wasDone: isOurs }, async () => {
      const { rows } = await sql`
        update mirror.list_leases
        set token = ${token}, lease_until = ${LEASE_UNTIL}, lease_holder = ${this.#holder ?? null}::int
        where list = ${list} and mirror.is_leased(lease_until, lease_holder) is not true returning list`.execute(
        this.#db,
      );
      return rows.length === 1;
    });
    return taken ? new ListSession(this.#db, { list, token, takenAtMs }, runId, signal) : undefined;
  }

  /** Stores one party that was looked up, without a place in the list. */
  async keepParty(row: ListedRow): Promise<{ readonly wasKnown: boolean }> {
    return inTransaction(this.#db, { action: 'store a party' }, async (tx) => ({
      wasKnown: await keepUnplaced(tx, await readEpoch(tx), row),
    }));
  }
}

async function readEpoch(db: Kysely<MirrorSchema>): Promise<number> {
  const { rows } = await sql<{ epoch: number }>`select max(epoch) as epoch from mirror.networks`.execute(db);
  return theOnly(rows).epoch;
}

function isCausedBy(error: unknown, cause: unknown): boolean {
  return error instanceof Error && error.cause === cause;
}
