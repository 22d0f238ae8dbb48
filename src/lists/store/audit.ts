/**
 * Compares an audit's rows with the stored ones, judges the difference, and replaces
 * the stored rows with those of the audit.
 */
import { sql, type RawBuilder } from 'kysely';
import { distrustRespelled } from '../../catalog/listed-id.ts';
import { heightOf } from '../../ledger/ids.ts';
import { evidenceJson } from '../../json/json-value.ts';
import {
  DoubtError,
  decideAudit,
  ExpiryUnproven,
  type Accepted,
  type AuditFinding,
  type AuditTotals,
  NetworkUnproven,
  NEWEST_ROWS_MISSING,
  ROW_NOT_UNDERSTOOD,
} from '../page-checks.ts';
import { builder } from '../../postgres/builder.ts';
import type { Database } from '../../postgres/database.ts';
import { execute, readRow, readRows } from '../../postgres/run-statement.ts';
import { statement } from '../../postgres/statement.ts';
import { KEYS, placeRows, TABLES, type Generation } from './generations.ts';
import type { ListSituation } from './list-state.ts';

const REMOVED_SHOWN = 20;
const ACTION = 'replace a list with an audit';

export interface AuditReport extends AuditTotals {
  readonly finding: Exclude<AuditFinding, DoubtError>;
  readonly removed: readonly string[];
}

/**
 * Replaces the stored rows with those of the audit unless a doubt forbids it, and
 * closes the doubts that the audit resolves.
 */
export async function replaceCurrent(
  tx: Database,
  runId: string,
  found: ListSituation,
  { accepted, isSameNetwork = false, isExpiryProven = false }: JudgedBy,
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
  const hasExpired =
    list === 'checkpoints' && (finding === 'gap' || totals.pruned > 0n);
  if (hasExpired && firstServed !== null && !isExpiryProven)
    return new ExpiryUnproven(list, firstServed);
  let removed: readonly string[] = [];
  const isNewNetwork = finding === 'new network';
  if (isNewNetwork) {
    // The audit is the first reading of the next epoch, so none of its rows are stored
    // yet. The sync of the other list may already have begun that epoch.
    const { isAllNewer: _, ...counts } = totals;
    const begin = builder
      .insertInto('mirror.networks')
      .values({
        epoch: epoch + 1,
        evidence: evidenceJson({ ...counts, list, runId }),
      })
      .onConflict((conflict) => conflict.doNothing());
    await execute(tx, 'begin a network', begin);
    await makeCurrent(tx, audit, epoch + 1);
  } else {
    // The audit found new rows between confirmed ones, and no doubt is open: this
    // source inserts rows out of order, and will do so again.
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
    const insert = statement()`
      insert into mirror.list_gaps (list, epoch, below_key, above_key, run_id)
      values (${list}, ${epoch}, ${lastConfirmed}, ${firstServed}, ${runId})`;
    await execute(tx, 'record a gap', insert);
  }
  await closeDoubts(tx, runId, audit, removed);
  if (isNewNetwork) await moveDoubts(tx, audit);
  return {
    epoch: isNewNetwork ? epoch + 1 : epoch,
    audit: { ...totals, finding, removed },
  };
}

/**
 * Whether a doubt is about rows that this reading could not parse, in which case it
 * stays open.
 */
function isOfAudit({ generationId }: Generation): RawBuilder<unknown> {
  return sql`(code = ${ROW_NOT_UNDERSTOOD} and seen->>'generationId' = ${`${generationId}`})`;
}

/** Closes the doubts that the audit has resolved. */
async function closeDoubts(
  tx: Database,
  runId: string,
  audit: Generation,
  removed: readonly string[],
): Promise<void> {
  const { list, epoch } = audit;
  const shown = JSON.stringify(removed.length === 0 ? {} : { removed });
  const close = statement()`
    update mirror.doubts
    set closed_at = clock_timestamp(), closed_by_run = ${runId},
      seen = seen || ${shown}::jsonb
    where subject = ${list} and epoch = ${epoch} and closed_at is null
      and not ${isOfAudit(audit)}`;
  await execute(tx, 'close the doubts of a list', close);
}

/** Moves the doubts of the reading to the network that begins with it. */
async function moveDoubts(tx: Database, audit: Generation): Promise<void> {
  const { list, epoch } = audit;
  const move = statement()`
    update mirror.doubts set epoch = ${epoch + 1}
    where subject = ${list} and epoch = ${epoch} and closed_at is null
      and ${isOfAudit(audit)}`;
  await execute(tx, 'keep the doubts of a new network', move);
}

/**
 * What an operator has accepted, and what the source's lists show about its network.
 */
interface JudgedBy {
  readonly accepted: Accepted;
  readonly isSameNetwork?: boolean;
  readonly isExpiryProven?: boolean;
}

/**
 * True if an earlier audit did not see the newest rows although the source has since
 * served a later block. A lagging node would have caught up by then, so the rows are
 * really gone.
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
 * Selects the rows that have a position and that are not known to be gone from the
 * source.
 */
function held({ list, epoch }: Generation): RawBuilder<unknown> {
  return sql`select ${KEYS[list]} as key, pos from ${TABLES[list]}
    where epoch = ${epoch} and pos is not null and gone_since is null`;
}

/** The block in a key; parties have none. */
const BLOCKS = {
  parties: sql`null::numeric`,
  checkpoints: sql`split_part(key, '/', 1)::numeric`,
};

function compareAudit(tx: Database, current: Generation, audit: Generation) {
  const { list, claimedPos } = current;
  const compare = statement({
    served: 'bigint',
    confirmed: 'bigint',
    common: 'bigint',
    missed: 'bigint',
    gone: 'bigint',
    pruned: 'bigint',
    goneNewest: 'bigint',
    unconfirmed: 'bigint',
    isAllNewer: 'boolean',
    lastConfirmed: 'text?',
    firstServed: 'text?',
  })`
    with held as (${held(current)}),
    served as (
      select key, pos from mirror.audit_rows where generation_id = ${audit.generationId}),
    both_sides as (
      select held.pos as held_pos, served.pos as served_pos, ${BLOCKS[list]} as block,
        held.key is not null as is_held, served.key is not null as is_served,
        coalesce(held.pos <= ${claimedPos}, false) as is_confirmed
      from held full join served using (key)),
    ends as (
      select max(served_pos) filter (where is_held) as last_common,
        min(held_pos) filter (where is_served) as first_common,
        max(held_pos) filter (where is_served) as last_common_held
      from both_sides)
    select count(*) filter (where is_served) as served,
      count(*) filter (where is_confirmed) as confirmed,
      count(*) filter (where is_confirmed and is_served) as common,
      count(*) filter (
        where is_served and not is_held and served_pos < last_common) as missed,
      count(*) filter (
        where is_confirmed and not is_served and held_pos >= first_common) as gone,
      count(*) filter (
        where is_confirmed and not is_served and held_pos < first_common) as pruned,
      count(*) filter (
        where is_confirmed and not is_served and held_pos > last_common_held) as "goneNewest",
      count(*) filter (
        where is_held and not is_served and not is_confirmed) as unconfirmed,
      coalesce(
        min(block) filter (where is_served) > max(block) filter (where is_confirmed),
        false) as "isAllNewer",
      (select key from held where pos <= ${claimedPos} order by pos desc limit 1)
        as "lastConfirmed",
      (select key from served order by pos limit 1) as "firstServed"
    from both_sides, ends`;
  return readRow(tx, 'compare an audit', compare);
}

/**
 * Replaces the current rows with those of the audit: adds missed rows, marks rows that
 * are no longer served, and removes rows that were never confirmed. Rows that keep
 * their position are not touched.
 * @returns the first of the removed rows
 */
async function replaceWithAudit(
  tx: Database,
  current: Generation,
  audit: Generation,
  isAppendOnly: boolean,
) {
  await execute(tx, ACTION, statement()`set constraints all deferred`);
  const { shift, older } = await findPlace(tx, current, audit);
  const removed = await removeUnconfirmed(tx, current, audit);
  await markGone(tx, audit, { shift, older });
  if (audit.list === 'parties') await distrustRespelled(tx, audit.generationId);
  const drop = builder
    .deleteFrom('mirror.generations')
    .where('generation_id', '=', current.generationId);
  await execute(tx, ACTION, drop);
  await makeCurrent(tx, audit, current.epoch, shift, isAppendOnly);
  // Keep earlier claims: they reveal a lagging node and a list that shrank.
  const keepClaims = statement()`
    update mirror.generations
    set head_height = greatest(head_height, ${current.headHeight}::numeric),
      largest_rows = greatest(largest_rows, ${current.largestRows}::bigint)
    where generation_id = ${audit.generationId}`;
  await execute(tx, ACTION, keepClaims);
  return removed.slice(0, REMOVED_SHOWN);
}

interface Place {
  /** How far the audit's positions are shifted. */
  readonly shift: bigint;
  /** How many of the audit's rows come before the oldest row that is also stored. */
  readonly older: bigint;
}

/**
 * Finds out where the audit's rows belong among the stored ones. Even if the source
 * serves rows older than the oldest stored one, positions begin at 1, because a claim
 * counts no row below that. If there is no common row, the new rows follow the stored
 * ones.
 */
async function findPlace(
  tx: Database,
  current: Generation,
  audit: Generation,
): Promise<Place> {
  const find = statement({ shift: 'bigint', older: 'bigint' })`
    with held as (${held(current)})
    select greatest(held.pos - served.pos, 0) as shift, served.pos - 1 as older
    from mirror.audit_rows served join held using (key)
    where generation_id = ${audit.generationId} order by served.pos limit 1`;
  const [place = { shift: current.lastPos, older: 0n }] = await readRows(
    tx,
    ACTION,
    find,
  );
  return place;
}

/** Whether the audit contains the given row of the list's table. */
function isServed({ list, generationId }: Generation): RawBuilder<unknown> {
  return sql`exists (select from mirror.audit_rows served
    where generation_id = ${generationId} and key = ${KEYS[list]})`;
}

/**
 * @returns the keys of the removed rows, which were never confirmed and are not served
 */
async function removeUnconfirmed(
  tx: Database,
  { list, epoch, claimedPos }: Generation,
  audit: Generation,
): Promise<readonly string[]> {
  const remove = statement({ key: 'text' })`
    delete from ${TABLES[list]}
    where epoch = ${epoch} and pos > ${claimedPos} and gone_since is null
      and not ${isServed(audit)}
    returning ${KEYS[list]} as key`;
  const rows = await readRows(tx, ACTION, remove);
  return rows.map(({ key }) => key);
}

/**
 * Marks the rows that the source no longer serves. Checkpoints that are older than
 * every served row have expired from the source. They keep their positions below the
 * served rows if there is room, and this mirror still serves them. A party that is no
 * longer listed has been removed.
 */
async function markGone(
  tx: Database,
  audit: Generation,
  { shift, older }: Place,
): Promise<void> {
  const { list, epoch } = audit;
  const hasRoom = list === 'checkpoints' && older === 0n;
  const mark = statement()`
    update ${TABLES[list]}
    set gone_since = coalesce(gone_since, clock_timestamp()),
      pos = case when ${hasRoom} and pos <= ${shift} then pos end
    where epoch = ${epoch} and pos is not null and not ${isServed(audit)}
      and (gone_since is null or not (${hasRoom} and pos <= ${shift}))`;
  await execute(tx, ACTION, mark);
}

/** @param shift how far the audit's positions are shifted */
async function makeCurrent(
  tx: Database,
  { list, generationId }: Generation,
  epoch: number,
  shift = 0n,
  isAppendOnly = true,
) {
  const shown = { kind: 'audit', generationId, shift } as const;
  await execute(tx, ACTION, placeRows(list, epoch, shown));
  const advance = statement()`
    update mirror.generations
    set kind = 'current', epoch = ${epoch}, last_pos = last_pos + ${shift}::bigint,
      is_append_only = ${isAppendOnly}
    where generation_id = ${generationId}`;
  await execute(tx, ACTION, advance);
  const clear = builder
    .deleteFrom('mirror.audit_rows')
    .where('generation_id', '=', generationId);
  await execute(tx, ACTION, clear);
}

/**
 * Updates the known gaps after an audit: a gap is closed if the rows below it are
 * served again, and confirmed otherwise.
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
  const settle = statement()`
    update mirror.list_gaps
    set closed_at = case when ${isClosed} then clock_timestamp() end,
      confirmed_by_run = case when ${isClosed} then confirmed_by_run else ${runId}::uuid end,
      above_key = case
        when ${served} > ${below} and ${served} < ${above} then ${firstServed}
        else above_key end
    where list = ${list} and epoch = ${epoch} and closed_at is null`;
  await execute(tx, 'settle the gaps of a list', settle);
}
