/**
 * Claims a list complete: an audit replaces the current rows, and one statement records
 * `complete` if it is true.
 */
import { sql } from 'kysely';
import { evidenceJson } from '../../json/json-value.ts';
import {
  countRemoved,
  DoubtError,
  ROW_NOT_UNDERSTOOD,
  rowsNotUnderstood,
  type Accepted,
} from '../page-checks.ts';
import { builder } from '../../postgres/builder.ts';
import type { Database } from '../../postgres/database.ts';
import { execute, findRow } from '../../postgres/run-statement.ts';
import { statement, type Statement } from '../../postgres/statement.ts';
import type { ListName } from '../ports.ts';
import { replaceCurrent, type AuditReport } from './audit.ts';
import {
  IS_ASKED,
  setHead,
  TABLES,
  type Generation,
  type SourceHead,
} from './generations.ts';
import { agreesWithRestored, forgetUnlisted } from './restore-lists.ts';
import { readOpen, readSituation, type ListSituation } from './list-state.ts';

/**
 * The claim of one reading. `SourceHead` is the source's last block when it sent the
 * newest page: the list is known to be complete up to that block.
 */
export interface Claim extends SourceHead {
  readonly generation: Generation;
  readonly sequence: bigint;
  /** The keys of the newest-first page of this run. */
  readonly newestKeys: readonly string[];
  readonly accepted: Accepted;
  /**
   * Whether the source shows stored parties. If so, a list of checkpoints with no row
   * in common still belongs to the same network.
   */
  readonly isSameNetwork?: boolean;
  /**
   * Whether the source, queried several times, showed no row older than those of this
   * reading. Checkpoints that are missing at the oldest end have then expired.
   */
  readonly isExpiryProven?: boolean;
  readonly evidence: (
    standing: Omit<ListSituation, 'audit'>,
    audit: AuditReport | undefined,
  ) => object;
}

export type Claimed =
  | { readonly kind: 'complete'; readonly evidence: object }
  /** The list was read to its end, but no second consecutive reading has confirmed it. */
  | { readonly kind: 'unconfirmed'; readonly audit: AuditReport | undefined }
  /** The generation has advanced since: the resume point was outdated. */
  | { readonly kind: 'stale' }
  | { readonly kind: 'doubt'; readonly doubt: DoubtError }
  /**
   * All rows that can be parsed are claimed. Because of the others, the list is not
   * complete.
   */
  | {
      readonly kind: 'odd rows';
      readonly doubt: DoubtError;
      readonly audit: AuditReport | undefined;
    }
  | {
      readonly kind: 'refused';
      readonly audit: AuditReport | undefined;
      /**
       * Whether the claim may succeed as soon as the other list's doubt about the network
       * is settled.
       */
      readonly awaitsOtherList: boolean;
    };

const ACTION = 'claim a list complete';

/** Decides the claim, within the transaction that holds the lease. */
export async function claimList(
  tx: Database,
  runId: string,
  claim: Claim,
): Promise<Claimed> {
  const { list, generationId, epoch: epochRead } = claim.generation;
  const found = await readSituation(tx, list, epochRead);
  const generation = [found.current, found.audit].find(
    (one) => one?.generationId === generationId,
  );
  if (generation?.sequence !== claim.sequence) return { kind: 'stale' };
  await execute(tx, ACTION, statement()`savepoint unclaimed`);
  const isAudit = generation.kind === 'audit';
  const replaced = isAudit && (await replaceCurrent(tx, runId, found, claim));
  if (replaced instanceof DoubtError) return { kind: 'doubt', doubt: replaced };
  const { epoch, audit } = replaced || { epoch: epochRead, audit: undefined };
  const open = audit === undefined ? found : await readOpen(tx, list, epoch);
  const standing = { ...found, ...open, epoch, current: generation };
  const evidence = claim.evidence(standing, audit);
  const decide = decideClaim({
    runId,
    claim,
    evidence,
    epoch,
    of: generation,
    isSecond: audit !== undefined && isAgreeing(list, audit),
  });
  const claimed = await findRow(tx, ACTION, decide);
  if (claimed?.isEnded === true) {
    await forgetUnlisted(tx, { ...generation, epoch });
    return { kind: 'complete', evidence };
  }
  if (claimed?.isConfirmed === false) return { kind: 'unconfirmed', audit };
  const odd = open.doubts.find(({ code }) => code === ROW_NOT_UNDERSTOOD);
  if (claimed !== undefined && odd !== undefined)
    return {
      kind: 'odd rows',
      doubt: rowsNotUnderstood(list, odd.seen),
      audit,
    };
  // If a gap is still unconfirmed, the list is not claimed, but the audit itself is
  // right, so its rows stay.
  const isKept = open.gaps.some(({ isConfirmed }) => !isConfirmed);
  if (!isKept) {
    await execute(tx, ACTION, statement()`rollback to savepoint unclaimed`);
    if (audit !== undefined && audit.common > 0n)
      await settleNetwork(tx, runId, claim.generation);
  }
  const awaitsOtherList = found.isOtherNetwork && !isKept;
  return { kind: 'refused', audit, awaitsOtherList };
}

interface Decision {
  readonly runId: string;
  readonly claim: Claim;
  /** Recorded with the verdict `complete`. */
  readonly evidence: object;
  /** The network to which the rows belong, if they are claimed. */
  readonly epoch: number;
  readonly of: Generation;
  /** Whether this complete reading agrees with the previous one. */
  readonly isSecond: boolean;
}

/**
 * Makes the one statement that claims a list, and records `complete` with the claim if
 * two readings agree on it. A list is claimed only if the source serves the current
 * network, no doubt is open, every gap is confirmed, the rows of the newest page are
 * stored, and each position has its row. Rows that cannot be parsed do not prevent the
 * claim, because the other rows are mirrored, but they do prevent `complete`. The first
 * complete claim at a new address also records that address.
 */
function decideClaim({
  runId,
  claim,
  evidence,
  epoch,
  of: { list, generationId, kind, isClaimed },
  isSecond,
}: Decision): Statement<{
  readonly isConfirmed: boolean;
  readonly isEnded: boolean;
}> {
  const isAudit = kind === 'audit';
  const isWhole = isAudit || !isClaimed;
  const isShrunkAccepted = claim.accepted.acceptShrunk === true;
  const table = TABLES[list];
  // An incremental reading does not change whether the rest of the list is confirmed.
  const standingAt = isClaimed
    ? sql`confirmed_at`
    : sql`case when ${agreesWithRestored(list)} then clock_timestamp() end`;
  const confirmedAt = isAudit
    ? sql`case when ${isSecond} then clock_timestamp() end`
    : standingAt;
  // A checkpoint that is listed several times has one row but counts several times.
  const rowsMatch = list === 'parties' ? sql`=` : sql`<=`;
  return statement({ isConfirmed: 'boolean', isEnded: 'boolean' })`
    with claimed as (
      update mirror.generations g
      set claimed_at = clock_timestamp(), claimed_pos = last_pos, claimed_rows = rows,
        run_id = ${runId},
        largest_rows = case
          when ${isShrunkAccepted} then rows else greatest(largest_rows, rows) end,
        audited_at = case when ${isWhole} then started_at else audited_at end,
        confirmed_at = ${confirmedAt}, ${setHead(claim)}
      where generation_id = ${generationId} and kind = 'current'
        and sequence = ${claim.sequence}
        and epoch = (select max(epoch) from mirror.networks)
        and not exists (
          select from mirror.doubts d
          where (d.subject = ${list} or d.code = 'OTHER_NETWORK') and d.epoch = g.epoch
            and d.closed_at is null and d.code <> ${ROW_NOT_UNDERSTOOD})
        and not exists (
          select from mirror.list_gaps gap
          where gap.list = ${list} and gap.epoch = g.epoch and gap.closed_at is null
            and gap.confirmed_by_run is null)
        and not exists (
          select from unnest(${[...claim.newestKeys]}::text[]) as asked (key)
          where not exists (
            select from ${table} held
            where epoch = ${epoch} and gone_since is null and ${IS_ASKED[list]}))
        and (
          select count(*) from ${table} r
          where r.epoch = g.epoch and r.pos > g.claimed_pos and r.pos <= g.last_pos
            and r.gone_since is null) ${rowsMatch} g.rows - g.claimed_rows
        and not exists (
          select from ${table} r where r.epoch = g.epoch and r.pos > g.last_pos)
      returning generation_id, confirmed_at is not null as is_confirmed),
    ended as (
      update mirror.runs
      set state = 'done', verdict = 'complete', finished_at = clock_timestamp(),
        evidence = ${evidenceJson(evidence)}::jsonb
      where run_id = ${runId} and state in ('queued', 'running')
        and exists (select from claimed where is_confirmed)
        and not exists (
          select from mirror.doubts
          where subject = ${list} and epoch = ${epoch} and closed_at is null)
      returning run_id, source_url),
    proven as (
      update mirror.identity i set source_url = ended.source_url from ended
      where ended.source_url is not null
        and i.source_url is distinct from ended.source_url)
    select is_confirmed as "isConfirmed", exists (select from ended) as "isEnded"
    from claimed
    where exists (
      select from mirror.runs where run_id = ${runId} and state in ('queued', 'running'))`;
}

/**
 * Whether a complete reading has all rows of the previous reading, and no new row between
 * them. Rows that have expired at the oldest end are proven in another way.
 */
function isAgreeing(list: ListName, audit: AuditReport): boolean {
  const { finding, missed, common, served } = audit;
  const isSame = missed === 0n && countRemoved(list, audit) === 0n;
  return finding === 'same' && isSame && (common > 0n || served === 0n);
}

/**
 * Closes this list's doubt about the network: a complete reading that shows stored rows
 * is from the same network. The other list's doubt may still prevent the claim. This
 * list's doubt is closed all the same, because otherwise each list would wait for the
 * other.
 */
async function settleNetwork(
  tx: Database,
  runId: string,
  { list, epoch }: Generation,
): Promise<void> {
  const settle = builder
    .updateTable('mirror.doubts')
    .set({ closed_at: sql`clock_timestamp()`, closed_by_run: runId })
    .where('subject', '=', list)
    .where('epoch', '=', epoch)
    .where('code', '=', 'OTHER_NETWORK')
    .where('closed_at', 'is', null);
  await execute(tx, 'settle which network it is', settle);
}
