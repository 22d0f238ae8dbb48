/**
 * Puts rows of the lists that were read back from the lake into a database that lacks
 * them. They have no place in the source's order until the source shows them again; the
 * first complete reading decides which of them it still has.
 */
import { type RawBuilder, sql } from 'kysely';
import { NETWORK_PARTY } from '../../ledger/ids.ts';
import type { Database } from '../../postgres/database.ts';
import { execute } from '../../postgres/run-statement.ts';
import { statement } from '../../postgres/statement.ts';
import type { ListName } from '../ports.ts';
import { type Generation, LISTS } from './generations.ts';

/**
 * When a restored party was last seen: nobody knows. `forgetUnlisted` recognises restored
 * parties by it; a party that is listed again has a later instant.
 */
const NOT_SEEN = '1970-01-01T00:00:00Z';
const ACTION = 'restore a list';

export interface RestoredParty {
  readonly partyId: string;
  /** RFC 3339. */
  readonly firstSeenAt: string;
  /** JSON; null if the list had no other fields. */
  readonly extra: string | null;
}

export interface RestoredCheckpoint {
  readonly epoch: number;
  /** Decimal text. */
  readonly atBlock: string;
  readonly hash: string;
  readonly blockHash: string;
  /** RFC 3339. */
  readonly firstSeenAt: string;
  /** JSON; null if the list had no other fields. */
  readonly extra: string | null;
}

/**
 * Restored parties are of the present network, and are exported until the source's list
 * turns out to lack them. Rows that are there stay.
 * @returns how many were not there
 */
export async function restoreParties(
  db: Database,
  rows: readonly RestoredParty[],
): Promise<number> {
  const insert = statement()`
    insert into mirror.parties (party_id, first_epoch, epoch, first_seen_at, last_seen_at, extra)
    select "partyId", epoch, epoch, "firstSeenAt", ${NOT_SEEN}::timestamptz, extra::jsonb
    from jsonb_to_recordset(${JSON.stringify(rows)}::jsonb)
        as given("partyId" text, "firstSeenAt" timestamptz, extra text),
      (select max(epoch) as epoch from mirror.networks) network
    on conflict (party_id) do nothing`;
  return Number(await execute(db, ACTION, insert));
}

/**
 * Restored checkpoints count as such that the source no longer has, until it shows them.
 * The epochs of the chain come back with them.
 * @returns how many were not there
 */
export async function restoreCheckpoints(
  db: Database,
  rows: readonly RestoredCheckpoint[],
): Promise<number> {
  const epochs = [...new Set(rows.map(({ epoch }) => epoch))];
  const networks = statement()`
    insert into mirror.networks (epoch) select unnest(${epochs}::int[])
    on conflict do nothing`;
  await execute(db, ACTION, networks);
  const insert = statement()`
    insert into mirror.checkpoints (epoch, at_block, hash, block_hash, first_seen_at, gone_since, extra)
    select epoch, "atBlock", hash, "blockHash", "firstSeenAt", clock_timestamp(), extra::jsonb
    from jsonb_to_recordset(${JSON.stringify(rows)}::jsonb)
      as given(epoch int, "atBlock" numeric, hash text, "blockHash" text,
        "firstSeenAt" timestamptz, extra text)
    on conflict (epoch, at_block, hash, block_hash) do nothing`;
  return Number(await execute(db, ACTION, insert));
}

/**
 * A complete reading of the parties shows which restored ones the source has removed.
 * They stay, and are no longer asked for.
 */
export async function forgetUnlisted(
  tx: Database,
  { list, epoch }: Generation,
): Promise<void> {
  if (list !== 'parties') return;
  const forget = statement()`
    update mirror.parties set gone_since = clock_timestamp()
    where epoch = ${epoch} and pos is null and gone_since is null
      and last_seen_at = ${NOT_SEEN}::timestamptz and party_id <> ${NETWORK_PARTY}`;
  await execute(tx, 'mark parties that the source removed', forget);
}

/**
 * Whether the first reading of a list `g` agrees with the rows that were restored, as a
 * second reading would: it shows all of them, and none that is new before the last of
 * them. The lost database had proven what it wrote to the lake, so such a reading needs
 * no other to confirm it.
 *
 * Only a list that has never been read in this database can have restored rows. What the
 * reading itself adds is first seen behind its start.
 */
export function agreesWithRestored(list: ListName): RawBuilder<unknown> {
  const { table } = LISTS[list];
  const isMissing = {
    parties: sql`r.pos is null and r.gone_since is null
      and r.last_seen_at = ${NOT_SEEN}::timestamptz and r.party_id <> ${NETWORK_PARTY}`,
    // The source removes the oldest checkpoints by and by.
    checkpoints: sql`r.gone_since is not null and r.at_block > (
      select min(at_block) from ${table} where epoch = g.epoch and gone_since is null)`,
  }[list];
  return sql`(not exists (select from mirror.generations o
      where o.list = g.list and o.generation_id <> g.generation_id)
    and not exists (select from ${table} r where r.epoch = g.epoch and ${isMissing})
    and exists (select from ${table} r where r.epoch = g.epoch and r.pos is not null
      and r.gone_since is null and r.first_seen_at < g.started_at)
    and not exists (select from ${table} added where added.epoch = g.epoch
      and added.first_seen_at >= g.started_at and added.pos < (
        select max(r.pos) from ${table} r where r.epoch = g.epoch
          and r.gone_since is null and r.first_seen_at < g.started_at)))`;
}
