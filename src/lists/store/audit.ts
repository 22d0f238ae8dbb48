/**
 * Compares an audit's rows with the stored ones, judges the difference, and replaces
 * the stored rows with the audit's.
 */
import { sql, type RawBuilder } from 'kysely';
import { heightOf } from '../../ledger/ids.ts';
import { evidenceJson } from '../../json/json-value.ts';
import {
  DoubtError,
  decideAudit,
  type Accepted,
  type AuditFinding,
  type AuditTotals,
  NetworkUnproven,
  NEWEST_ROWS_MISSING,
  ROW_NOT_UNDERSTOOD,
} from '../page-checks.ts';
import type { Database } from '../../postgres/database.ts';
import { readRow } from '../../postgres/transaction.ts';
import { LISTS, placeRows, type Generation } from './generations.ts';
import type { ListSituation } from './list-state.ts';

const REMOVED_SHOWN = 20;

export interface AuditReport extends AuditTotals {
  readonly finding: Exclude<AuditFinding, DoubtError>;
  readonly removed: readonly string[];
}

/**
 * Replaces the stored rows with the audit's unless a doubt forbids it, and closes the
 * doubts that the audit resolves.
 */
export async function replaceCurrent(
  tx: Database,
  runId: string,
  found: ListSituation,
  { accepted, isSameNetwork = false }: JudgedBy,
): Promise<
  DoubtError | { readonly epoch: number; readonly audit: AuditReport }
> {
  const { current, audit, epoch, gaps, doubts } = found;
  if (current === undefined || audit === undefined)
    throw new TypeError('an audit needs a current generation');
  const { list } = audit;
  const { lastConfirmed, firstServed, ...totals } = await compareAudit(
    tx,
    current,
    audit,
  );
  const finding = decideAudit(list, totals, accepted, {
    largestClaimed: current.largestRows,
    isMissingConfirmed: isMissingConfirmed(doubts, audit),
    height: audit.headHeight,
  });
  if (finding instanceof DoubtError) return finding;
  if (finding === 'gap' && !isSameNetwork) return new NetworkUnproven(list);
  let removed: readonly string[] = [];
  const isNewNetwork = finding === 'new network';
  if (isNewNetwork) {
    // The audit is the first reading of the next epoch, so none of its rows is stored
    // yet. The sync of the other list may have begun that epoch already.
    const { isAllNewer: _, ...counts } = totals;
    await sql`insert into mirror.networks (epoch, evidence)
      values (${epoch + 1}, ${evidenceJson({ ...counts, list, runId })}) on conflict do nothing`.execute(
      tx,
    );
    await makeCurrent(tx, audit, epoch + 1);
  } else {
    // New rows between confirmed rows, with no doubt open: the source inserts rows, and
    // will do so again.
    const isInserted =
      totals.missed > 0n &&
      current.isClaimed &&
      gaps.length === 0 &&
      doubts.length === 0;
    removed = await replaceWithAudit(
      tx,
      current,
      audit,
      current.isAppendOnly && !isInserted,
    );
    if (gaps.length > 0) await settleGaps(tx, runId, audit, firstServed);
  }
  if (finding === 'gap') {
    await sql`insert into mirror.list_gaps (list, epoch, below_key, above_key, run_id)
      values (${list}, ${epoch}, ${lastConfirmed}, ${firstServed}, ${runId})`.execute(
      tx,
    );
  }
  // Rows that this very reading has not understood are still a reason for doubt, so the
  // doubt stays open.
  const isOfAudit = sql`(code = ${ROW_NOT_UNDERSTOOD} and seen->>'generationId' = ${`${audit.generationId}`})`;
  await sql`update mirror.doubts set closed_at = clock_timestamp(), closed_by_run = ${runId},
      seen = seen || ${JSON.stringify(removed.length === 0 ? {} : { removed })}::jsonb
    where subject = ${list} and epoch = ${epoch} and closed_at is null and not ${isOfAudit}`.execute(
    tx,
  );
  if (isNewNetwork) {
    await sql`update mirror.doubts set epoch = ${epoch + 1}
      where subject = ${list} and epoch = ${epoch} and closed_at is null and ${isOfAudit}`.execute(
      tx,
    );
  }
  return {
    epoch: isNewNetwork ? epoch + 1 : epoch,
    audit: { ...totals, finding, removed },
  };
}

/**
 * What an operator has accepted, and what the source's lists show about its network.
 */
interface JudgedBy {
  readonly accepted: Accepted;
  readonly isSameNetwork?: boolean;
}

/**
 * Whether an earlier audit lacked the newest rows, and the source has shown a later
 * block since: a lagging node would have caught up.
 */
function isMissingConfirmed(
  doubts: ListSituation['doubts'],
  { headHeight }: Generation,
): boolean {
  const before = doubts.find(({ code }) => code === NEWEST_ROWS_MISSING);
  const height = before?.seen['height'];
  if (typeof height !== 'string' || headHeight === null) return false;
  return BigInt(headHeight) > BigInt(height);
}

/**
 * Selects the rows that have a position and that the source, as far as is known, still
 * serves.
 */
function held({ list, epoch }: Generation): RawBuilder<unknown> {
  const { table, key } = LISTS[list];
  return sql`select ${key} as key, pos from ${table}
    where epoch = ${epoch} and pos is not null and gone_since is null`;
}

async function compareAudit(
  tx: Database,
  current: Generation,
  audit: Generation,
) {
  const height =
    current.list === 'checkpoints'
      ? sql`split_part(key, '/', 1)::numeric`
      : sql`null::numeric`;
  const statement = sql<
    AuditTotals & {
      readonly lastConfirmed: string | null;
      readonly firstServed: string | null;
    }
  >`
    with held as (${held(current)}),
    served as (select key, pos from mirror.audit_rows where generation_id = ${audit.generationId}),
    both_sides as (select held.pos as held_pos, served.pos as served_pos, ${height} as block, held.key is not null as is_held, served.key is not null as is_served,
        coalesce(held.pos <= ${current.claimedPos}, false) as is_confirmed
      from held full join served using (key)),
    ends as (select max(served_pos) filter (where is_held) as last_common, min(held_pos) filter (where is_served) as first_common,
        max(held_pos) filter (where is_served) as last_common_held
      from both_sides)
    select count(*) filter (where is_served) as served, count(*) filter (where is_confirmed) as confirmed,
      count(*) filter (where is_confirmed and is_served) as common,
      count(*) filter (where is_served and not is_held and served_pos < last_common) as missed,
      count(*) filter (where is_confirmed and not is_served and held_pos >= first_common) as gone,
      count(*) filter (where is_confirmed and not is_served and held_pos < first_common) as pruned,
      count(*) filter (where is_confirmed and not is_served and held_pos > last_common_held) as "goneNewest",
      count(*) filter (where is_held and not is_served and not is_confirmed) as unconfirmed,
      coalesce(min(block) filter (where is_served) > max(block) filter (where is_confirmed), false) as "isAllNewer",
      (select key from held where pos <= ${current.claimedPos} order by pos desc limit 1) as "lastConfirmed",
      (select key from served order by pos limit 1) as "firstServed"
    from both_sides, ends`;
  return readRow(tx, 'compare an audit', statement);
}

/**
 * Replaces the current rows with the audit's: adds missed rows, marks rows that are no
 * longer served, and removes rows that were never confirmed. Rows that keep their
 * position are not touched.
 * @returns the first of the removed rows
 */
async function replaceWithAudit(
  tx: Database,
  current: Generation,
  audit: Generation,
  isAppendOnly: boolean,
) {
  const { list, epoch } = current;
  const { table, key } = LISTS[list];
  await sql`set constraints all deferred`.execute(tx);
  const { rows: shifts } = await sql<{ shift: bigint; older: bigint }>`
    with held as (${held(current)})
    select greatest(held.pos - served.pos, 0) as shift, served.pos - 1 as older from mirror.audit_rows served join held using (key)
    where generation_id = ${audit.generationId} order by served.pos limit 1`.execute(
    tx,
  );
  // The source may serve rows that are older than the oldest stored one. Positions
  // still begin at 1, because a claim counts no row below that. If no row is in common,
  // the new rows follow the stored ones.
  const [{ shift, older } = { shift: current.lastPos, older: 0n }] = shifts;
  const isServed = sql`exists (select from mirror.audit_rows served where generation_id = ${audit.generationId} and key = ${key})`;
  const removed = await sql<{ key: string }>`
    delete from ${table} where epoch = ${epoch} and pos > ${current.claimedPos} and gone_since is null and not ${isServed}
    returning ${key} as key`.execute(tx);
  // Checkpoints that are older than every served row have dropped out of the source's
  // retention. They keep their positions below the served rows if there is room, and
  // this mirror still serves them. A party that is no longer listed has been removed.
  const keepsPlace =
    list === 'checkpoints' && older === 0n ? sql`pos <= ${shift}` : sql`false`;
  await sql`update ${table} set gone_since = coalesce(gone_since, clock_timestamp()),
      pos = case when ${keepsPlace} then pos end
    where epoch = ${epoch} and pos is not null and not ${isServed}
      and (gone_since is null or not ${keepsPlace})`.execute(tx);
  await sql`delete from mirror.generations where generation_id = ${current.generationId}`.execute(
    tx,
  );
  await makeCurrent(tx, audit, epoch, shift, isAppendOnly);
  // Earlier claims still count: they reveal a node that lags, and a list that shrank.
  await sql`update mirror.generations
    set head_height = greatest(head_height, ${current.headHeight}::numeric),
      largest_rows = greatest(largest_rows, ${current.largestRows}::bigint)
    where generation_id = ${audit.generationId}`.execute(tx);
  return removed.rows.slice(0, REMOVED_SHOWN).map((row) => row.key);
}

/**
 * @param shift how far the audit's positions move, if older rows are stored before them
 */
async function makeCurrent(
  tx: Database,
  audit: Generation,
  epoch: number,
  shift = 0n,
  isAppendOnly = true,
) {
  const { list, generationId } = audit;
  const rows = sql`select key, copies, pos + ${shift}::bigint as pos, extra from mirror.audit_rows
    where generation_id = ${generationId}`;
  await placeRows(list, epoch, rows).execute(tx);
  await sql`update mirror.generations
    set kind = 'current', epoch = ${epoch}, last_pos = last_pos + ${shift}::bigint, is_append_only = ${isAppendOnly}
    where generation_id = ${generationId}`.execute(tx);
  await sql`delete from mirror.audit_rows where generation_id = ${generationId}`.execute(
    tx,
  );
}

/**
 * Updates the known gaps after an audit: closes a gap if the rows below it are served
 * again, and confirms it otherwise.
 */
async function settleGaps(
  tx: Database,
  runId: string,
  { list, epoch }: Generation,
  firstServed: string | null,
) {
  const served = sql`${firstServed === null ? null : heightOf(firstServed)}::numeric`;
  const below = sql`split_part(below_key, '/', 1)::numeric`;
  const above = sql`split_part(above_key, '/', 1)::numeric`;
  const isClosed = sql`${served} < ${above} and ${served} <= ${below}`;
  await sql`update mirror.list_gaps
    set closed_at = case when ${isClosed} then clock_timestamp() end,
      confirmed_by_run = case when ${isClosed} then confirmed_by_run else ${runId}::uuid end,
      above_key = case when ${served} > ${below} and ${served} < ${above} then ${firstServed} else above_key end
    where list = ${list} and epoch = ${epoch} and closed_at is null`.execute(
    tx,
  );
}
