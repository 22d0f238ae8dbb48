/** A party's entries, newest first, filtered and paged by time: no page costs more than the first. */
import type { EntriesPage, EntriesQuestion, EntryRow } from '../console-ports.ts';
import type { Rows } from './console-ledgers.ts';

/** What is equal is told apart by nothing: within an instant a page goes on after so many rows. */
const ENTRIES = `
  select to_char(vega_time at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at, transfer_type as "transferType",
    asset_id as "assetId", quantity::text as quantity,
    account_from_party_id as "fromParty", account_from_account_type as "fromAccount", account_from_balance::text as "fromBalance",
    account_to_party_id as "toParty", account_to_account_type as "toAccount", account_to_balance::text as "toBalance"
  from mirror.ledger_entries
  where party_id = $1 and ($2::text is null or asset_id = $2) and ($3::text is null or transfer_type = $3)
    and vega_time >= coalesce($4::date::timestamp at time zone 'UTC', '-infinity')
    and vega_time < coalesce(($5::date + 1)::timestamp at time zone 'UTC', 'infinity')
    and vega_time <= coalesce($6::timestamptz, 'infinity')
  order by vega_time desc, segment_id, tableoid, ctid offset $7::int limit $8::int`;

export async function readEntries(rows: Rows, question: EntriesQuestion): Promise<EntriesPage> {
  const { partyId, assetId, transferType, since, until, after, rowsMax } = question;
  const found = await rows<EntryRow>("list a party's entries", ENTRIES, [
    partyId,
    assetId ?? null,
    transferType ?? null,
    since ?? null,
    until ?? null,
    after?.at ?? null,
    after?.seen ?? 0,
    rowsMax + 1,
  ]);
  const entries = found.slice(0, rowsMax);
  const last = entries.at(-1);
  if (found.length <= rowsMax || last === undefined) return { entries, next: null };
  const seen = entries.filter(({ at }) => at === last.at).length;
  // A page that is all of one instant goes on within it.
  const before = after !== undefined && entries[0]?.at === last.at && after.at === last.at ? after.seen : 0;
  return { entries, next: `${last.at}~${before + seen}` };
}
