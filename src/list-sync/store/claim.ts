/** Claims a list complete: an audit takes its place, and one statement says `complete` where it is true. */
import { sql } from 'kysely';
import { heightOf } from '../../core/ids.ts';
import { evidenceJson } from '../../core/json-value.ts';
import { DoubtSeen, judgeAudit, type Accepted, type AuditFinding, type AuditTotals } from '../guards.ts';
import type { Database } from '../../postgres/database.ts';
import { beginEpoch, compareAudit, replaceWithAudit } from './audit.ts';
import { LISTS, readGenerations, setHead, theOnly, type Generation, type SourceHead } from './generations.ts';
import { readOpen, type KnownGap } from './list-state.ts';

/** The source's last block is of when it sent the newest page: so far the list is read. */
export interface Claim extends SourceHead {
  readonly generation: Generation;
  readonly sequence: bigint;
  /** From the newest-first page of this run. */
  readonly newestKeys: readonly string[];
  readonly accepted: Accepted;
  readonly evidence: (audit: AuditReport | undefined, gaps: readonly KnownGap[]) => object;
}

export interface AuditReport extends AuditTotals {
  readonly finding: Exclude<AuditFinding, DoubtSeen>;
  readonly removed: readonly string[];
}

export type Claimed =
  | { readonly kind: 'complete'; readonly evidence: object }
  /** The generation has gone on since: the resume point was an old one. */
  | { readonly kind: 'stale' }
  | { readonly kind: 'doubt'; readonly doubt: DoubtSeen }
  | { readonly kind: 'refused'; readonly gaps: readonly KnownGap[]; readonly audit: AuditReport | undefined };

/** Decides the claim, within the transaction that holds the lease. */
export async function claimList(tx: Database, runId: string, claim: Claim): Promise<Claimed> {
  const { list } = claim.generation;
  const generations = await readGenerations(tx, list, claim.generation.epoch);
  const generation = generations.find(({ generationId }) => generationId === claim.generation.generationId);
  if (generation === undefined || generation.sequence !== claim.sequence) return { kind: 'stale' };
  await sql`savepoint unclaimed`.execute(tx);
  let audit: AuditReport | undefined;
  let { epoch } = generation;
  if (generation.kind === 'audit') {
    const current = theOnly(generations.filter(({ kind }) => kind === 'current'));
    const replaced = await replaceCurrent(tx, runId, current, generation, claim.accepted);
    if (replaced instanceof DoubtSeen) return { kind: 'doubt', doubt: replaced };
    ({ audit, epoch } = replaced);
  }
  const { gaps } = await readOpen(tx, list, epoch);
  const evidence = claim.evidence(audit, gaps);
  if (await sayComplete(tx, runId, { ...claim, generation, epoch, evidence })) {
    return { kind: 'complete', evidence };
  }
  // An audit that is right but unfinished keeps its rows.
  const isKept = gaps.some(({ isConfirmed }) => !isConfirmed);
  if (!isKept) await sql`rollback to savepoint unclaimed`.execute(tx);
  return { kind: 'refused', gaps, audit };
}

async function replaceCurrent(
  tx: Database,
  runId: string,
  current: Generation,
  audit: Generation,
  accepted: Accepted,
): Promise<DoubtSeen | { readonly audit: AuditReport; readonly epoch: number }> {
  const { list, epoch } = audit;
  const { lastHeld, firstServed, ...totals } = await compareAudit(tx, current, audit);
  const finding = judgeAudit(list, totals, accepted);
  if (finding instanceof DoubtSeen) return finding;
  if (finding === 'new network') {
    const { isAllNewer: _, ...counts } = totals;
    const next = await beginEpoch(tx, audit, { ...counts, list, runId });
    await closeDoubts(tx, runId, audit, []);
    return { audit: { ...totals, finding, removed: [] }, epoch: next };
  }
  const { gaps, doubts } = await readOpen(tx, list, epoch);
  // Rows between confirmed rows, without a doubt: the source inserts rows, and will do so again.
  const isUndoubted = gaps.length === 0 && doubts.length === 0;
  const isInserted = totals.missed > 0n && current.isClaimed && isUndoubted;
  const removed = await replaceWithAudit(tx, current, audit, current.isAppendOnly && !isInserted);
  await settleGaps(tx, runId, gaps, firstServed);
  if (finding === 'gap') {
    await sql`insert into mirror.list_gaps (list, epoch, below_key, above_key, run_id)
      values (${list}, ${epoch}, ${lastHeld}, ${firstServed}, ${runId})`.execute(tx);
  }
  await closeDoubts(tx, runId, audit, removed);
  return { audit: { ...totals, finding, removed }, epoch };
}

/** Known gaps in the light of an audit: closed where rows below are served again, confirmed where not. */
async function settleGaps(
  tx: Database,
  runId: string,
  gaps: readonly KnownGap[],
  firstKey: string | null,
): Promise<void> {
  for (const gap of gaps) {
    const isOlder = firstKey !== null && heightOf(firstKey) < heightOf(gap.aboveKey);
    const isClosed = isOlder && heightOf(firstKey) <= heightOf(gap.belowKey);
    await (
      isClosed
        ? sql`update mirror.list_gaps set closed_at = clock_timestamp() where gap_id = ${gap.gapId}`
        : sql`update mirror.list_gaps set confirmed_by_run = ${runId},
          above_key = ${isOlder ? firstKey : gap.aboveKey} where gap_id = ${gap.gapId}`
    ).execute(tx);
  }
}

async function closeDoubts(
  tx: Database,
  runId: string,
  { list, epoch }: Generation,
  removed: readonly string[],
): Promise<void> {
  await sql`update mirror.doubts set closed_at = clock_timestamp(), closed_by_run = ${runId},
      seen = seen || ${JSON.stringify(removed.length === 0 ? {} : { removed })}::jsonb
    where subject = ${list} and epoch = ${epoch} and closed_at is null`.execute(tx);
}

/** The one statement that says `complete`: it can only succeed where it is true. */
async function sayComplete(
  tx: Database,
  runId: string,
  claim: Omit<Claim, 'evidence'> & { readonly epoch: number; readonly evidence: object },
): Promise<boolean> {
  const { generation, epoch, newestKeys } = claim;
  const isReading = generation.kind === 'audit' || !generation.isClaimed;
  const { list } = generation;
  const { table, isAsked } = LISTS[list];
  const { rows } = await sql`
    with claimed as (
      update mirror.generations g
      set claimed_at = clock_timestamp(), claimed_pos = last_pos, claimed_rows = rows, run_id = ${runId},
        audited_at = case when ${isReading} then started_at else audited_at end, ${setHead(claim)}
      where generation_id = ${generation.generationId} and kind = 'current' and sequence = ${claim.sequence}
        and epoch = (select max(epoch) from mirror.networks)
        and not exists (select from mirror.doubts d
          where d.subject = ${list} and d.epoch = g.epoch and d.closed_at is null)
        and not exists (select from mirror.list_gaps gap
          where gap.list = ${list} and gap.epoch = g.epoch and gap.closed_at is null and gap.confirmed_by_run is null)
        and not exists (select from unnest(${[...newestKeys]}::text[]) as asked (key)
          where not exists (select from ${table} held where epoch = ${epoch} and gone_since is null and ${isAsked}))
        and (select count(*) from ${table} r
          where r.epoch = g.epoch and r.pos > g.claimed_pos and r.pos <= g.last_pos and r.gone_since is null)
          ${list === 'parties' ? sql`=` : sql`<=`} g.rows - g.claimed_rows
        and not exists (select from ${table} r where r.epoch = g.epoch and r.pos > g.last_pos)
      returning generation_id),
    ended as (
      update mirror.runs set state = 'done', verdict = 'complete', finished_at = clock_timestamp(),
        evidence = ${evidenceJson(claim.evidence)}::jsonb
      where run_id = ${runId} and state in ('queued', 'running') and exists (select from claimed)
      returning run_id, source_url),
    proven as (
      update mirror.identity i set source_url = ended.source_url from ended
      where ended.source_url is not null and i.source_url is distinct from ended.source_url)
    select run_id from ended`.execute(tx);
  return rows.length === 1;
}
