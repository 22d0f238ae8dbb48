/** Claims a list complete: an audit takes its place, and one statement says `complete` where it is true. */
import { sql, type Transaction } from 'kysely';
import { heightOf } from '../../core/ids.ts';
import type { PermanentError } from '../../core/errors.ts';
import { evidenceJson } from '../../core/json-value.ts';
import { formatInstant, type Micros } from '../../core/time.ts';
import type { MirrorSchema } from '../../postgres/schema.ts';
import { judgeAudit, type Accepted, type AuditFinding, type AuditTotals } from '../guards.ts';
import type { ListName } from '../ports.ts';
import { beginEpoch, readAuditTotals, replaceWithAudit } from './audit.ts';
import {
  CHECKPOINT_FIELDS,
  readGenerations,
  readLastKey,
  tableOf,
  theOnly,
  type Generation,
} from './generations.ts';
import { readOpenDoubts, readOpenGaps, type KnownGap } from './list-state.ts';

type Tx = Transaction<MirrorSchema>;

/** The run that claims. */
export interface Claimant {
  readonly list: ListName;
  readonly runId: string;
}

export interface Claim {
  readonly generation: Generation;
  readonly sequence: bigint;
  /** From the newest-first page of this run. */
  readonly newestKeys: readonly string[];
  /** The source's last block when it sent that page: so far the list is read. */
  readonly height: bigint | undefined;
  readonly time: Micros | undefined;
  readonly accepted: Accepted;
  readonly evidence: (audit: AuditReport | undefined, gaps: readonly KnownGap[]) => object;
}

export interface AuditReport extends AuditTotals {
  readonly finding: AuditFinding['kind'];
  readonly removed: readonly string[];
}

export type Claimed =
  | { readonly kind: 'complete'; readonly evidence: object }
  /** The generation has gone on since: the resume point was an old one. */
  | { readonly kind: 'stale' }
  | { readonly kind: 'doubt'; readonly doubt: PermanentError }
  | {
      readonly kind: 'refused';
      readonly gaps: readonly KnownGap[];
      readonly audit: AuditReport | undefined;
      readonly isKept: boolean;
    };

/** Decides the claim, within the transaction that holds the lease. */
export async function claimList(tx: Tx, of: Claimant, claim: Claim): Promise<Claimed> {
  const { list } = of;
  const generation = (await readGenerations(tx, list, claim.generation.epoch)).find(
    ({ generationId }) => generationId === claim.generation.generationId,
  );
  if (generation === undefined || generation.sequence !== claim.sequence) return { kind: 'stale' };
  let audit: AuditReport | undefined;
  let { epoch } = generation;
  if (generation.kind === 'audit') {
    const replaced = await replaceCurrent(tx, of, generation, claim.accepted);
    if ('doubt' in replaced) return { kind: 'doubt', doubt: replaced.doubt };
    ({ audit, epoch } = replaced);
  }
  const gaps = await readOpenGaps(tx, list, epoch);
  const evidence = claim.evidence(audit, gaps);
  if (
    await sayComplete(tx, of, {
      ...claim,
      epoch,
      isReading: generation.kind === 'audit' || !generation.isClaimed,
      evidence,
    })
  ) {
    return { kind: 'complete', evidence };
  }
  // An audit that is right but unfinished keeps its rows.
  return { kind: 'refused', gaps, audit, isKept: gaps.some(({ isConfirmed }) => !isConfirmed) };
}

async function replaceCurrent(
  tx: Tx,
  of: Claimant,
  audit: Generation,
  accepted: Accepted,
): Promise<{ readonly doubt: PermanentError } | { readonly audit: AuditReport; readonly epoch: number }> {
  const { list, epoch } = audit;
  const current = theOnly((await readGenerations(tx, list, epoch)).filter(({ kind }) => kind === 'current'));
  const totals = await readAuditTotals(tx, current, audit);
  const finding = judgeAudit(list, totals, accepted);
  if (finding.kind === 'doubt') return finding;
  const doubts = await readOpenDoubts(tx, list, epoch);
  if (finding.kind === 'new network') {
    const { isAllNewer: _, ...counts } = totals;
    const next = await beginEpoch(tx, current, audit, { ...counts, list, runId: of.runId });
    await closeDoubts(tx, of, epoch, []);
    return { audit: { ...totals, finding: finding.kind, removed: [] }, epoch: next };
  }
  const below = finding.kind === 'gap' ? await readLastKey(tx, current) : undefined;
  const above = await firstAuditKey(tx, audit);
  const removed = await replaceWithAudit(tx, current, audit);
  // Rows between confirmed rows, without a doubt: the source inserts rows, and will do so again.
  if (
    totals.missed > 0n &&
    current.isClaimed &&
    doubts.length === 0 &&
    (await readOpenGaps(tx, list, epoch)).length === 0
  ) {
    await sql`update mirror.generations set is_append_only = false where generation_id = ${audit.generationId}`.execute(
      tx,
    );
  }
  await settleGaps(tx, of, epoch, above);
  if (below !== undefined && above !== undefined) {
    await sql`insert into mirror.list_gaps (list, epoch, below_key, above_key, run_id)
      values (${list}, ${epoch}, ${below}, ${above}, ${of.runId})`.execute(tx);
  }
  await closeDoubts(tx, of, epoch, removed);
  return { audit: { ...totals, finding: finding.kind, removed }, epoch };
}

/** Known gaps in the light of an audit: closed where rows below are served again, confirmed where not. */
async function settleGaps(tx: Tx, of: Claimant, epoch: number, firstKey: string | undefined): Promise<void> {
  for (const gap of await readOpenGaps(tx, of.list, epoch)) {
    const isOlder = firstKey !== undefined && heightOf(firstKey) < heightOf(gap.aboveKey);
    const isClosed = isOlder && heightOf(firstKey) <= heightOf(gap.belowKey);
    await (
      isClosed
        ? sql`update mirror.list_gaps set closed_at = clock_timestamp() where gap_id = ${gap.gapId}`
        : sql`update mirror.list_gaps set confirmed_by_run = ${of.runId},
          above_key = ${isOlder ? firstKey : gap.aboveKey} where gap_id = ${gap.gapId}`
    ).execute(tx);
  }
}

async function closeDoubts(tx: Tx, of: Claimant, epoch: number, removed: readonly string[]): Promise<void> {
  await sql`update mirror.doubts set closed_at = clock_timestamp(), closed_by_run = ${of.runId},
      seen = seen || ${JSON.stringify(removed.length === 0 ? {} : { removed })}::jsonb
    where subject = ${of.list} and epoch = ${epoch} and closed_at is null`.execute(tx);
}

/** The one statement that says `complete`: it can only succeed where it is true. */
async function sayComplete(
  tx: Tx,
  of: Claimant,
  claim: Omit<Claim, 'evidence'> & {
    readonly epoch: number;
    readonly isReading: boolean;
    readonly evidence: object;
  },
): Promise<boolean> {
  const { generation, epoch, newestKeys, height, time } = claim;
  const isAsked =
    of.list === 'parties'
      ? sql`party_id = asked.key`
      : sql`(at_block, hash, block_hash) = (${CHECKPOINT_FIELDS})`;
  const rowsTable = tableOf(of.list);
  const { rows } = await sql`
    with claimed as (
      update mirror.generations g
      set claimed_at = clock_timestamp(), claimed_pos = last_pos, claimed_rows = rows, run_id = ${of.runId},
        audited_at = case when ${claim.isReading} then started_at else audited_at end,
        head_height = greatest(head_height, ${height ?? null}::numeric),
        head_time = greatest(head_time, ${time === undefined ? null : formatInstant(time)}::timestamptz)
      where generation_id = ${generation.generationId} and kind = 'current' and sequence = ${claim.sequence}
        and epoch = (select max(epoch) from mirror.networks)
        and not exists (select from mirror.doubts d
          where d.subject = ${of.list} and d.epoch = g.epoch and d.closed_at is null)
        and not exists (select from mirror.list_gaps gap
          where gap.list = ${of.list} and gap.epoch = g.epoch and gap.closed_at is null and gap.confirmed_by_run is null)
        and not exists (select from unnest(${[...newestKeys]}::text[]) as asked (key)
          where not exists (select from ${rowsTable} where epoch = ${epoch} and gone_since is null and ${isAsked}))
        and (select count(*) from ${rowsTable} r
          where r.epoch = g.epoch and r.pos > g.claimed_pos and r.pos <= g.last_pos and r.gone_since is null)
          ${of.list === 'parties' ? sql`=` : sql`<=`} g.rows - g.claimed_rows
        and not exists (select from ${rowsTable} r where r.epoch = g.epoch and r.pos > g.last_pos)
      returning generation_id),
    ended as (
      update mirror.runs set state = 'done', verdict = 'complete', finished_at = clock_timestamp(),
        evidence = ${evidenceJson(claim.evidence)}::jsonb
      where run_id = ${of.runId} and state in ('queued', 'running') and exists (select from claimed)
      returning run_id, source_url),
    proven as (
      update mirror.identity i set source_url = ended.source_url from ended
      where ended.source_url is not null and i.source_url is distinct from ended.source_url)
    select run_id from ended`.execute(tx);
  return rows.length === 1;
}

async function firstAuditKey(tx: Tx, { generationId }: Generation): Promise<string | undefined> {
  const { rows } = await sql<{ key: string }>`select key from mirror.audit_rows
    where generation_id = ${generationId} order by pos limit 1`.execute(tx);
  return rows[0]?.key;
}
