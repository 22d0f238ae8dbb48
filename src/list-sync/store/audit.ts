/** An audit's rows, compared with what is held, and put in its place. */
import { sql, type RawBuilder } from 'kysely';
import { evidenceJson } from '../../core/json-value.ts';
import type { AuditTotals } from '../guards.ts';
import type { Database } from '../../postgres/database.ts';
import { LISTS, placeRows, theOnly, type Generation } from './generations.ts';

const REMOVED_SHOWN = 20;

/** Rows with a place that are served, as far as is known. */
function held({ list, epoch }: Generation): RawBuilder<unknown> {
  const { table, key } = LISTS[list];
  return sql`select ${key} as key, pos from ${table}
    where epoch = ${epoch} and pos is not null and gone_since is null`;
}

export interface AuditComparison extends AuditTotals {
  readonly lastHeld: string | null;
  readonly firstServed: string | null;
}

export async function compareAudit(
  tx: Database,
  current: Generation,
  audit: Generation,
): Promise<AuditComparison> {
  const height = current.list === 'checkpoints' ? sql`split_part(key, '/', 1)::numeric` : sql`null::numeric`;
  const { rows } = await sql<AuditComparison>`
    with held as (${held(current)}),
    served as (select key, pos from mirror.audit_rows where generation_id = ${audit.generationId}),
    both_sides as (select held.pos as held_pos, served.pos as served_pos, ${height} as block, held.key is not null as is_held, served.key is not null as is_served,
        coalesce(held.pos <= ${current.claimedPos}, false) as is_confirmed
      from held full join served using (key)),
    ends as (select max(served_pos) filter (where is_held) as last_common, min(held_pos) filter (where is_served) as first_common
      from both_sides)
    select count(*) filter (where is_served) as served, count(*) filter (where is_confirmed) as confirmed,
      count(*) filter (where is_confirmed and is_served) as common,
      count(*) filter (where is_served and not is_held and served_pos < last_common) as missed,
      count(*) filter (where is_confirmed and not is_served and held_pos >= first_common) as gone,
      count(*) filter (where is_confirmed and not is_served and held_pos < first_common) as pruned,
      count(*) filter (where is_held and not is_served and not is_confirmed) as unconfirmed,
      coalesce(min(block) filter (where is_served) > max(block) filter (where is_confirmed), false) as "isAllNewer",
      (select key from held order by pos desc limit 1) as "lastHeld",
      (select key from served order by pos limit 1) as "firstServed"
    from both_sides, ends`.execute(tx);
  return theOnly(rows);
}

/**
 * Puts the audit's rows in the place of the current ones: missed rows are in, rows that are served no longer
 * are marked, rows that were never confirmed are removed. Rows that keep their place are not touched.
 * @returns the first of the removed rows
 */
export async function replaceWithAudit(
  tx: Database,
  current: Generation,
  audit: Generation,
  isAppendOnly: boolean,
): Promise<readonly string[]> {
  const { list, epoch } = current;
  const { table, key } = LISTS[list];
  await sql`set constraints all deferred`.execute(tx);
  const { rows: shifts } = await sql<{ shift: bigint | null; older: bigint | null }>`
    with held as (${held(current)})
    select held.pos - served.pos as shift, served.pos - 1 as older from mirror.audit_rows served join held using (key)
    where generation_id = ${audit.generationId} order by served.pos limit 1`.execute(tx);
  // Where nothing is in common, the new rows follow the held ones.
  const shift = shifts[0]?.shift ?? current.lastPos;
  const older = shifts[0]?.older ?? 0n;
  const isServed = sql`exists (select from mirror.audit_rows served where generation_id = ${audit.generationId} and key = ${key})`;
  const removed = await sql<{ key: string }>`
    delete from ${table} where epoch = ${epoch} and pos > ${current.claimedPos} and gone_since is null and not ${isServed}
    returning ${key} as key`.execute(tx);
  // Rows older than everything served keep their places below it, if there is room.
  await sql`update ${table} set gone_since = coalesce(gone_since, clock_timestamp()),
      pos = case when pos <= ${shift} and ${older}::bigint = 0 then pos end
    where epoch = ${epoch} and pos is not null and not ${isServed}
      and (gone_since is null or pos > ${shift} or ${older}::bigint > 0)`.execute(tx);
  await sql`delete from mirror.generations where generation_id = ${current.generationId}`.execute(tx);
  await makeCurrent(tx, audit, { epoch, shift, isAppendOnly });
  return removed.rows.slice(0, REMOVED_SHOWN).map((row) => row.key);
}

/** Moves the audit into the next epoch, as its first reading: nothing of it was ever held. */
export async function beginEpoch(tx: Database, audit: Generation, evidence: object): Promise<number> {
  const epoch = audit.epoch + 1;
  // The sync of the other list may have seen it first.
  await sql`insert into mirror.networks (epoch, evidence) values (${epoch}, ${evidenceJson(evidence)})
    on conflict do nothing`.execute(tx);
  await makeCurrent(tx, audit, { epoch, shift: 0n, isAppendOnly: true });
  return epoch;
}

/** @param as its rows' places are shifted, where older rows are held before them */
async function makeCurrent(
  tx: Database,
  { list, generationId }: Generation,
  as: { readonly epoch: number; readonly shift: bigint; readonly isAppendOnly: boolean },
): Promise<void> {
  const rows = sql`select key, copies, pos + ${as.shift}::bigint as pos, extra from mirror.audit_rows
    where generation_id = ${generationId}`;
  await placeRows(list, as.epoch, rows).execute(tx);
  await sql`update mirror.generations
    set kind = 'current', epoch = ${as.epoch}, last_pos = last_pos + ${as.shift}::bigint, is_append_only = ${as.isAppendOnly}
    where generation_id = ${generationId}`.execute(tx);
  await sql`delete from mirror.audit_rows where generation_id = ${generationId}`.execute(tx);
}
