/** One walk under its lease. Whatever it writes is fenced: a walk that was taken over writes nothing more. */
import { sql, type Selectable, type Transaction } from 'kysely';
import type { Pool } from 'pg';
import { FencedError, PermanentError } from '../../core/errors.ts';
import type {
  AuditTotals,
  Chain,
  Direction,
  HeightOnRecord,
  KnownGap,
  ListedRow,
  ListName,
  PageCommit,
  PlacedGroup,
  Violation,
  WalkKind,
  WalkSession,
  WalkTotals,
} from '../ports.ts';
import type { Database, Warehouse } from '../../postgres/database.ts';
import { patiently } from '../../postgres/patience.ts';
import type { MirrorSchema } from '../../postgres/schema.ts';
import { guarded, inTransaction, type TransactionOptions } from '../../postgres/transaction.ts';
import {
  locate,
  nextPlace,
  readChains,
  readEdge,
  readPlaces,
  spreadPlaces,
  writeChain,
} from './walk-chains.ts';
import {
  claimComplete,
  promoteAudit,
  readAuditTotals,
  readTotals,
  recordVerdict,
  type ClaimContext,
} from './walk-claim.ts';
import { closeWalk, currentEpoch, fence, LEASE, letGo, type Lease } from './walk-lease.ts';
import { insertNewPage } from './walk-new-page.ts';
import { writePage } from './walk-pages.ts';
import { type RowContext, writeCheckpoints, writeParties, writeUnplacedParties } from './walk-rows.ts';

type Tx = Transaction<MirrorSchema>;

/** Opens the session of a walk that was taken under this token. */
export async function openWalkSession(
  warehouse: Warehouse,
  taken: {
    readonly walk: Selectable<MirrorSchema['walks']>;
    readonly token: string;
    readonly resumed: boolean;
  },
  signal: AbortSignal,
): Promise<WalkSession> {
  const session = new PostgresWalkSession(warehouse, taken, signal);
  await session.readStart();
  return session;
}

class PostgresWalkSession implements WalkSession {
  readonly walkId: bigint;
  readonly list: ListName;
  readonly kind: WalkKind;
  readonly resumed: boolean;
  epoch: number;
  heightBefore: bigint | undefined;
  placesBefore: { readonly lowest: bigint; readonly highest: bigint } | undefined;
  readonly #db: Database;
  readonly #pool: Pool;
  readonly #signal: AbortSignal;
  readonly #runId: string;
  readonly #lease: Lease;
  #pageNo = 0;
  /** Whether a page behind an edge was committed in this session. */
  #hasGrown = false;

  constructor(
    { db, pool }: Warehouse,
    taken: {
      readonly walk: Selectable<MirrorSchema['walks']>;
      readonly token: string;
      readonly resumed: boolean;
    },
    signal: AbortSignal,
  ) {
    const { walk, token, resumed } = taken;
    this.#db = db;
    this.#pool = pool;
    this.#signal = signal;
    this.#runId = walk.run_id;
    this.#lease = { walkId: walk.walk_id, token };
    this.walkId = walk.walk_id;
    this.list = walk.list;
    this.kind = walk.kind;
    this.epoch = walk.epoch;
    this.resumed = resumed;
  }

  get #axis(): ClaimContext {
    const { list, epoch, walkId, kind } = this;
    const { token } = this.#lease;
    return {
      list,
      epoch,
      walkId,
      token,
      runId: this.#runId,
      auditWalk: kind === 'audit' ? walkId : undefined,
    };
  }

  /** What was known when the walk was opened, or its epoch began. */
  async readStart(): Promise<void> {
    await this.#read('see where the walk stands', async () => {
      const { rows } = await sql<{
        height: string | null;
        lowest: bigint | null;
        highest: bigint | null;
        page_no: number | null;
      }>`select
          (select max(head_height) from mirror.chains where epoch = ${this.epoch} and audit_walk is null) as height,
          (select min(pos) from mirror.parties where epoch = ${this.epoch}) as lowest,
          (select max(pos) from mirror.parties where epoch = ${this.epoch}) as highest,
          (select max(page_no) from mirror.walk_pages where walk_id = ${this.walkId}) as page_no`.execute(
        this.#db,
      );
      const { height = null, lowest = null, highest = null, page_no = null } = rows[0] ?? {};
      this.heightBefore = height === null ? undefined : BigInt(height);
      this.placesBefore = lowest === null || highest === null ? undefined : { lowest, highest };
      this.#pageNo = page_no ?? 0;
    });
  }

  async renew(): Promise<void> {
    const { walkId, token } = this.#lease;
    const { rows } = await guarded('renew the lease of a walk', () =>
      sql`update mirror.walks set lease_until = clock_timestamp() + ${LEASE}::interval
        where walk_id = ${walkId} and lease_token = ${token} and state = 'open' returning walk_id`.execute(
        this.#db,
      ),
    );
    if (rows.length === 0) throw new FencedError(`walk ${walkId}`);
  }

  async release(): Promise<void> {
    await guarded('let go of a walk', () => letGo(this.#db, this.#lease));
  }

  async chains(): Promise<readonly Chain[]> {
    return this.#read('read the chains of a list', () => readChains(this.#db, this.#axis));
  }

  async locate(groups: readonly string[]): Promise<ReadonlyMap<string, bigint>> {
    return this.#read('look up places', () => locate(this.#db, this.#axis, groups));
  }

  async formerPlaces(groups: readonly string[]): Promise<ReadonlyMap<string, bigint>> {
    return this.#read('look up places', () => readPlaces(this.#db, this.epoch, groups));
  }

  async nextPlace(pos: bigint, direction: Direction): Promise<bigint | undefined> {
    return this.#read('look up a place', () => nextPlace(this.#db, this.epoch, pos, direction));
  }

  async spread(pos: bigint, direction: Direction, rowsMax: number): Promise<void> {
    await this.#write('make room between places', (tx) =>
      spreadPlaces(tx, this.epoch, { pos, direction, rowsMax }),
    );
  }

  async edge(chain: Chain, end: 'top' | 'bottom', groupsMax: number): Promise<readonly PlacedGroup[]> {
    return this.#read('read the edge of a chain', () =>
      readEdge(this.#db, this.#axis, chain, end, groupsMax),
    );
  }

  async commit(change: PageCommit): Promise<bigint> {
    return this.#commit(change, (options, pageNo) =>
      inTransaction(this.#db, options, async (tx) => {
        await fence(tx, this.#lease);
        const newRows = await this.#writeRows(tx, change);
        const chainId = await writeChain(tx, this.#axis, change.chain, change.absorbed);
        await writePage(tx, { walkId: this.walkId, pageNo, newRows }, change.page);
        return chainId;
      }),
    );
  }

  async commitIfNew(change: PageCommit): Promise<bigint | undefined> {
    return this.#commit(change, async (_, pageNo) =>
      (await insertNewPage(this.#pool, this.#axis, change, pageNo)) ? change.chain.chainId : undefined,
    );
  }

  async #commit<Id extends bigint | undefined>(
    change: PageCommit,
    work: (options: TransactionOptions, pageNo: number) => Promise<Id>,
  ): Promise<Id | bigint> {
    const pageNo = this.#pageNo + 1;
    const options = { action: `commit a page of ${this.list}`, signal: this.#signal };
    const chainId = await patiently<Id | bigint>(
      { ...options, wasDone: () => this.#chainOfPage(pageNo, change) },
      () => work(options, pageNo),
    );
    if (chainId === undefined) return undefined as Id;
    this.#pageNo = pageNo;
    if (change.page.after !== undefined) this.#hasGrown = true;
    return chainId;
  }

  get #rowContext(): RowContext {
    return { epoch: this.epoch, walkId: this.walkId };
  }

  async #writeRows(tx: Tx, { placed, unplaced }: PageCommit): Promise<number> {
    if (this.list === 'checkpoints') {
      return writeCheckpoints(
        tx,
        this.#rowContext,
        placed.flatMap(({ rows }) => rows),
      );
    }
    await writeUnplacedParties(tx, this.#rowContext, unplaced);
    return writeParties(tx, this.#rowContext, placed);
  }

  /** Whether a commit whose answer was lost had been done: its page is there, and the chain as it left it. */
  async #chainOfPage(pageNo: number, { chain }: PageCommit): Promise<bigint | undefined> {
    const axis = this.#axis;
    const { rows } = await sql<{ chain_id: bigint }>`
      select chain_id from mirror.chains
      where epoch = ${axis.epoch} and list = ${axis.list} and lo = ${chain.lo} and hi = ${chain.hi}
        and audit_walk is not distinct from ${axis.auditWalk ?? null}::bigint
        and exists (select from mirror.walk_pages where walk_id = ${this.walkId} and page_no = ${pageNo})
        and exists (select from mirror.walks
          where walk_id = ${this.walkId} and lease_token = ${this.#lease.token})`.execute(this.#db);
    return rows[0]?.chain_id;
  }

  async keepUnproven(rows: readonly ListedRow[]): Promise<void> {
    await this.#write(`keep rows of ${this.list}`, async (tx) => {
      if (this.list === 'parties') await writeUnplacedParties(tx, this.#rowContext, rows);
      else await writeCheckpoints(tx, this.#rowContext, rows);
    });
  }

  async note(violation: Violation): Promise<void> {
    await this.#write('note a violation', async (tx) => {
      await sql`update mirror.walks set violations = violations || ${JSON.stringify([violation])}::jsonb
        where walk_id = ${this.walkId} and not violations @> ${JSON.stringify([{ code: violation.code }])}::jsonb`.execute(
        tx,
      );
    });
  }

  async recordGap(gap: KnownGap): Promise<void> {
    await this.#write('record a gap', async (tx) => {
      await sql`insert into mirror.known_gaps (epoch, list, below_key, above_key, run_id, reason)
        select ${this.epoch}, ${this.list}, ${gap.belowKey ?? null}, ${gap.aboveKey ?? null}, ${this.#runId},
          ${gap.reason}
        where not exists (select from mirror.known_gaps known where known.run_id = ${this.#runId}
          and known.reason = ${gap.reason})`.execute(tx);
    });
  }

  async totals(): Promise<WalkTotals> {
    return this.#read('count what a walk found', () => readTotals(this.#db, this.#axis));
  }

  async auditTotals(): Promise<AuditTotals> {
    return this.#read('count what an audit found', () => readAuditTotals(this.#db, this.#axis));
  }

  async claim(evidence: object): Promise<boolean> {
    const wasDone = async (): Promise<true | undefined> => ((await this.#hasVerdict()) ? true : undefined);
    return patiently<boolean>({ action: 'claim a walk', signal: this.#signal, wasDone }, async () => {
      const rollback = new PermanentError('Cannot claim the walk: it is not proven', { code: 'NOT_PROVEN' });
      try {
        await this.#transact('claim a walk', async (tx) => {
          if (this.kind === 'audit') await promoteAudit(tx, this.#axis);
          if (!(await claimComplete(tx, this.#axis, evidence))) throw rollback;
          await closeWalk(tx, this.walkId, 'finished');
        });
        return true;
      } catch (error) {
        if (error === rollback) return false;
        throw error;
      }
    });
  }

  /** Asked only where an answer was lost: nobody else gives this run its verdict while we work on it. */
  async #hasVerdict(): Promise<boolean> {
    const { rows } = await sql`select from mirror.runs
      where run_id = ${this.#runId} and verdict is not null`.execute(this.#db);
    return rows.length === 1;
  }

  async settle(verdict: 'incomplete' | 'suspicious' | 'failed', evidence: object): Promise<void> {
    const options = {
      action: 'record a verdict',
      signal: this.#signal,
      wasDone: async (): Promise<true | undefined> => ((await this.#hasVerdict()) ? true : undefined),
    };
    await patiently(options, async () => {
      await this.#transact(options.action, async (tx) => {
        await recordVerdict(tx, this.#axis, verdict, evidence);
        if (this.#isWorthGoingOn(verdict)) await letGo(tx, this.#lease);
        else await closeWalk(tx, this.walkId, 'abandoned');
      });
      return true;
    });
  }

  /**
   * What an audit has read on its own chains stays for the next one, unless a guard spoke, which forbids to
   * complete it ever, or it got no further: then the next had better start over.
   */
  #isWorthGoingOn(verdict: 'incomplete' | 'suspicious' | 'failed'): boolean {
    return this.kind === 'audit' && (verdict === 'failed' || (verdict === 'incomplete' && this.#hasGrown));
  }

  async checkpointsAt(heights: readonly string[]): Promise<ReadonlyMap<string, HeightOnRecord>> {
    return this.#read('compare checkpoints', async () => {
      const { rows } = await sql<{ height: string; block_hashes: string[]; proven: boolean }>`
        select height::text as height,
          array(select block_hash from mirror.checkpoints
            where epoch = ${this.epoch} and at_block = height) as block_hashes,
          exists (select from mirror.chains where epoch = ${this.epoch} and list = 'checkpoints'
            and audit_walk is null and height between lo and hi) as proven
        from unnest(${heights}::numeric[]) as height`.execute(this.#db);
      return new Map(
        rows.map(({ height, block_hashes, proven }) => [height, { blockHashes: block_hashes, proven }]),
      );
    });
  }

  async heightsOnRecord(): Promise<{ readonly lowest: bigint; readonly highest: bigint } | undefined> {
    return this.#read('compare checkpoints', async () => {
      const { rows } = await sql<{ lowest: string | null; highest: string | null }>`
        select min(at_block) as lowest, max(at_block) as highest
        from mirror.checkpoints where epoch = ${this.epoch}`.execute(this.#db);
      const { lowest = null, highest = null } = rows[0] ?? {};
      return lowest === null || highest === null
        ? undefined
        : { lowest: BigInt(lowest), highest: BigInt(highest) };
    });
  }

  async knownParties(
    ids: readonly string[],
  ): Promise<{ readonly known: number; readonly anyOnRecord: boolean }> {
    return this.#read('compare parties', async () => {
      const { rows } = await sql<{ known: bigint; any_on_record: boolean }>`
        select (select count(*) from mirror.parties where party_id = any(${ids}::text[])) as known,
          exists (select from mirror.parties where epoch is not null) as any_on_record`.execute(this.#db);
      return { known: Number(rows[0]?.known ?? 0n), anyOnRecord: rows[0]?.any_on_record ?? false };
    });
  }

  async beginEpoch(evidence: object): Promise<void> {
    const next = this.epoch + 1;
    await this.#write('begin an epoch', async (tx) => {
      // The walk of the other list may have seen it first.
      await sql`insert into mirror.networks (epoch, evidence) values (${next}, ${JSON.stringify(evidence)})
        on conflict do nothing`.execute(tx);
      await sql`update mirror.walks set epoch = ${await currentEpoch(tx)} where walk_id = ${this.walkId}`.execute(
        tx,
      );
    });
    this.epoch = next;
    await this.readStart();
  }

  async #read<Result>(action: string, work: () => Promise<Result>): Promise<Result> {
    return patiently({ action, signal: this.#signal }, work);
  }

  /** For writes that may be done twice. */
  async #write(action: string, work: (tx: Tx) => Promise<void>): Promise<void> {
    await patiently({ action, signal: this.#signal }, () => this.#transact(action, work));
  }

  async #transact(action: string, work: (tx: Tx) => Promise<void>): Promise<void> {
    await inTransaction(this.#db, { action, signal: this.#signal }, async (tx) => {
      await fence(tx, this.#lease);
      await work(tx);
    });
  }
}
