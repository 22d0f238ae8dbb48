/** The id by which a party is requested from the source. */
import { sql, type RawBuilder } from 'kysely';
import type { Database } from '../postgres/database.ts';
import { execute } from '../postgres/run-statement.ts';
import { statement } from '../postgres/statement.ts';

/**
 * SQL for the spelling in which the source last listed a party's id; null if that matches
 * the stored id, or if the source has not listed the party. A full reading of the list
 * takes precedence over the stored row even before it is claimed. The source may no
 * longer know an earlier spelling, and would respond as if the ledger had no entries.
 * @param partyId the stored id
 */
export function listedAs(partyId: RawBuilder<unknown>): RawBuilder<unknown> {
  return sql`(select shown.extra->>'id' from (
      select 1 as turn, audited.extra from mirror.audit_rows audited
      join mirror.generations using (generation_id)
      where list = 'parties' and key = ${partyId}
      union all
      select 2, held.extra from mirror.parties held where held.party_id = ${partyId}
      order by turn limit 1) shown)`;
}

/**
 * SQL for whether the last reading of the list of parties ended without a claim and did
 * not show this party. Its id may be spelled differently by now, so a response without
 * entries proves nothing. If a reading opened a doubt, its rows are dropped, and it
 * counts as if it had shown no party.
 *
 * This is false while the list is being read, because the party may still appear. It is
 * also false if the reading failed, for example because the source does not serve the
 * list. The id that was shown last is then used as before. If a later reading shows a
 * different spelling, `distrustRespelled` applies.
 * @param partyId the stored id
 */
export function isUnlisted(partyId: RawBuilder<unknown>): RawBuilder<unknown> {
  return sql`((
      exists (
        select from mirror.generations where list = 'parties' and kind = 'audit')
      or exists (
        select from mirror.doubts
        where subject = 'parties' and closed_at is null and code <> 'ROW_NOT_UNDERSTOOD'
          and epoch = (select max(epoch) from mirror.networks)))
    and not exists (
      select from mirror.audit_rows shown join mirror.generations using (generation_id)
      where list = 'parties' and shown.key = ${partyId})
    and coalesce((
      select verdict <> 'failed' from mirror.runs
      where kind = 'sync' and subject = 'parties' and state = 'done'
      order by finished_at desc limit 1), true)
    and not exists (
      select from mirror.list_leases reading
      where reading.list = 'parties'
        and mirror.is_leased(reading.lease_until, reading.lease_holder)))`;
}

/**
 * The `checked_at` of a range that no response has covered since the party's id was
 * respelled. It is not a flag: no reader looks for this instant. It is a time before
 * every other, so the readers of `checked_at` (the choice of audits, the oldest
 * comparison that the status shows, a rebuild that chooses between overlapping ranges)
 * treat such a range like any other whose last comparison is too old. The record of
 * ranges in the store keeps it, so it also survives the loss of the database.
 */
const NEVER_CHECKED = sql`to_timestamp(0)`;

/**
 * If an audit spells a party's id differently from the stored list, makes the next
 * exports request again every range of that party that has no entries. A source that no
 * longer knows the earlier spelling may have responded as if the ledgers were empty. The
 * ranges after a ledger's newest entry need no mark: every overlap check includes them.
 */
export async function distrustRespelled(
  tx: Database,
  generationId: bigint,
): Promise<void> {
  const distrust = statement()`
    update mirror.coverage c
    set checked_at = ${NEVER_CHECKED}
    from mirror.audit_rows shown join mirror.parties held on held.party_id = shown.key
    where shown.generation_id = ${generationId}
      and coalesce(shown.extra->>'id', shown.key)
        <> coalesce(held.extra->>'id', held.party_id)
      and c.party_id = held.party_id and c.segment_id is null
      and c.to_time <= (
        select max(from_time) from mirror.segments s
        where s.party_id = c.party_id and s.status = 'current' and s.rows > 0)`;
  await execute(tx, 'distrust the empty ranges of respelled parties', distrust);
}
