/** Verdicts: `complete` is one statement that can only succeed where it is true. */
import { sql, type Kysely, type Transaction } from 'kysely';
import type { Verdict } from '../../core/verdict.ts';
import type { AuditTotals, PageRole, Violation, WalkTotals } from '../ports.ts';
import type { MirrorSchema } from '../../postgres/schema.ts';
import type { Axis } from './walk-chains.ts';

type Db = Kysely<MirrorSchema>;
type Tx = Transaction<MirrorSchema>;

export interface ClaimContext extends Axis {
  readonly walkId: bigint;
  readonly token: string;
  readonly runId: string;
}

/**
 * True, and recorded, only where one chain that counts holds the tail and a head that this walk has read,
 * the walk is still ours, no guard spoke and no gap was given up in this run.
 */
export async function claimComplete(tx: Tx, context: ClaimContext, evidence: object): Promise<boolean> {
  const { rows } = await sql`
    update mirror.runs set state = 'done', verdict = 'complete', finished_at = clock_timestamp(),
      evidence = ${JSON.stringify(evidence)}
    where run_id = ${context.runId} and state in ('queued', 'running')
      and exists (
        select from mirror.walks walk
        join mirror.chains chain on chain.epoch = walk.epoch and chain.list = walk.list
          and chain.head_walk = walk.walk_id
        where walk.walk_id = ${context.walkId} and walk.lease_token = ${context.token} and walk.state = 'open'
          and walk.run_id = runs.run_id and walk.violations = '[]'
          and walk.epoch = (select max(epoch) from mirror.networks)
          and chain.has_tail and chain.has_head and chain.audit_walk is null
          and not exists (select from mirror.known_gaps gap where gap.run_id = runs.run_id))
    returning run_id`.execute(tx);
  return rows.length === 1;
}

/**
 * An audit that holds both ends takes the place of the chains it read over, and says which rows the
 * source serves no longer. Nothing is moved and nothing is deleted.
 */
export async function promoteAudit(tx: Tx, context: ClaimContext): Promise<void> {
  const { epoch, list, walkId } = context;
  const audit = await tx
    .selectFrom('chains')
    .select(['chain_id', 'lo', 'hi'])
    .where('audit_walk', '=', walkId)
    .where('has_tail', '=', true)
    .where('has_head', '=', true)
    .executeTakeFirst();
  if (audit === undefined) return;
  const covered = await tx
    .deleteFrom('chains')
    .where('epoch', '=', epoch)
    .where('list', '=', list)
    .where('audit_walk', 'is', null)
    .where('lo', '<=', audit.hi)
    .where('hi', '>=', audit.lo)
    .returning('lo')
    .execute();
  const lowest = covered.reduce((low, { lo }) => (BigInt(lo) < low ? BigInt(lo) : low), BigInt(audit.lo));
  await tx
    .updateTable('chains')
    .set({ audit_walk: null, lo: lowest })
    .where('chain_id', '=', audit.chain_id)
    .execute();
  await markGone(tx, context);
}

async function markGone(tx: Tx, { epoch, list, walkId }: ClaimContext): Promise<void> {
  const table = list === 'parties' ? sql`mirror.parties` : sql`mirror.checkpoints`;
  await sql`update ${table} set gone_since = clock_timestamp()
    where epoch = ${epoch} and gone_since is null and last_seen_walk is distinct from ${walkId}`.execute(tx);
}

export async function readAuditTotals(db: Db, { epoch, list, walkId }: ClaimContext): Promise<AuditTotals> {
  const table = list === 'parties' ? sql`mirror.parties` : sql`mirror.checkpoints`;
  const pos = list === 'parties' ? sql`pos` : sql`at_block`;
  const { rows } = await sql<Record<'served' | 'gone' | 'above' | 'fresh', bigint>>`
    select count(*) filter (where last_seen_walk = ${walkId}) as served,
      count(*) filter (where last_seen_walk is distinct from ${walkId} and gone_since is null) as gone,
      count(*) filter (where last_seen_walk = ${walkId} and ${pos} > former.hi) as above,
      (select coalesce(sum(new_rows), 0)::bigint from mirror.walk_pages where walk_id = ${walkId}) as fresh
    from ${table}, (select max(hi) as hi from mirror.chains
      where epoch = ${epoch} and list = ${list} and audit_walk is null) as former
    where epoch = ${epoch}`.execute(db);
  const { served = 0n, gone = 0n, above = 0n, fresh = 0n } = rows[0] ?? {};
  return { served, gone, missed: fresh > above ? fresh - above : 0n };
}

export async function readTotals(db: Db, context: ClaimContext): Promise<WalkTotals> {
  const { epoch, list, walkId } = context;
  const walk = await db
    .selectFrom('walks')
    .select(['violations', 'started_at'])
    .where('walk_id', '=', walkId)
    .executeTakeFirst();
  const pages = await db
    .selectFrom('walk_pages')
    .select(['direction', sql<bigint>`count(*)`.as('pages'), sql<bigint>`sum(new_rows)`.as('new_rows')])
    .where('walk_id', '=', walkId)
    .groupBy('direction')
    .execute();
  const gaps = await db
    .selectFrom('known_gaps')
    .select(['below_key', 'above_key', 'reason', 'found_at'])
    .where('epoch', '=', epoch)
    .where('list', '=', list)
    .orderBy('gap_id')
    .limit(GAPS_SHOWN_MAX)
    .execute();
  const { rows: dates } = await sql<{ audited_at: string | null }>`
    select greatest(min(finished_at), max(finished_at) filter (where kind = 'audit')) as audited_at
    from mirror.walks where epoch = ${epoch} and list = ${list} and state = 'finished'`.execute(db);
  const countOf = (role: PageRole): number =>
    Number(pages.find(({ direction }) => direction === role)?.pages ?? 0n);
  return {
    rows: await countRows(db, context),
    newRows: pages.reduce((sum, page) => sum + page.new_rows, 0n),
    pages: { head: countOf('head'), tail: countOf('tail'), up: countOf('up'), down: countOf('down') },
    violations: (walk?.violations ?? []).filter(isViolation),
    knownGaps: gaps.map((gap) => ({
      belowKey: gap.below_key ?? undefined,
      aboveKey: gap.above_key ?? undefined,
      reason: gap.reason,
      foundAt: gap.found_at,
    })),
    startedAt: walk?.started_at,
    auditedAt: dates[0]?.audited_at ?? undefined,
  };
}

const GAPS_SHOWN_MAX = 100;

/** What the highest chain holds of what the source serves, repeated checkpoints counted. */
async function countRows(db: Db, { epoch, list, auditWalk }: ClaimContext): Promise<bigint> {
  const from =
    list === 'parties'
      ? sql`count(*) as rows from mirror.parties, top where pos between top.lo::bigint and top.hi::bigint`
      : sql`coalesce(sum(copies), 0)::bigint as rows from mirror.checkpoints, top where at_block between top.lo and top.hi`;
  const { rows } = await sql<{ rows: bigint }>`
    with top as (select lo, hi from mirror.chains
      where epoch = ${epoch} and list = ${list} and audit_walk is not distinct from ${auditWalk ?? null}::bigint
      order by hi desc limit 1)
    select ${from} and epoch = ${epoch} and gone_since is null
      and (${auditWalk ?? null}::bigint is null or last_seen_walk = ${auditWalk ?? null}::bigint)`.execute(
    db,
  );
  return rows[0]?.rows ?? 0n;
}

function isViolation(value: unknown): value is Violation {
  return typeof value === 'object' && value !== null && 'code' in value && 'meta' in value;
}

/** Any other verdict; a run that has one keeps it. */
export async function recordVerdict(
  tx: Tx,
  { runId }: ClaimContext,
  verdict: Verdict,
  evidence: object,
): Promise<void> {
  await sql`
    update mirror.runs set state = 'done', verdict = ${verdict}, finished_at = clock_timestamp(),
      evidence = ${JSON.stringify(evidence)}
    where run_id = ${runId} and state in ('queued', 'running')`.execute(tx);
}
