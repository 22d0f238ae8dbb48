/**
 * Inserts list rows that were read back from the lake into a database that lacks them.
 * They have no position in the source's order until the source shows them again. The
 * first complete reading decides which of them the source still has.
 */
import { type RawBuilder, sql } from 'kysely';
import { NETWORK_PARTY } from '../../ledger/ids.ts';
import type { Database } from '../../postgres/database.ts';
import { execute } from '../../postgres/run-statement.ts';
import { statement } from '../../postgres/statement.ts';
import type { ListName } from '../ports.ts';
import { type Generation, TABLES } from './generations.ts';

const ACTION = 'restore a list';

export interface RestoredParty {
  readonly partyId: string;
  /** When the mirror first saw the party, as RFC 3339. */
  readonly firstSeenAt: string;
  /** The other fields of the list's row, as JSON; null if there were none. */
  readonly extra: string | null;
}

export interface RestoredCheckpoint {
  readonly epoch: number;
  /** The block height as a decimal string. */
  readonly atBlock: string;
  readonly hash: string;
  readonly blockHash: string;
  /** When the mirror first saw the checkpoint, as RFC 3339. */
  readonly firstSeenAt: string;
  /** The other fields of the list's row, as JSON; null if there were none. */
  readonly extra: string | null;
}

/**
 * Restores parties into the current network. They are exported until the source's list
 * turns out to lack them. Existing rows are left unchanged. The time when a party was
 * last seen is lost, so the time when it was first seen is used instead.
 * @returns how many parties were added
 */
export async function restoreParties(
  db: Database,
  rows: readonly RestoredParty[],
): Promise<number> {
  const insert = statement()`
    insert into mirror.parties
      (party_id, first_epoch, epoch, first_seen_at, last_seen_at, restored_at, extra)
    select "partyId", epoch, epoch, "firstSeenAt", "firstSeenAt", clock_timestamp(), extra::jsonb
    from jsonb_to_recordset(${JSON.stringify(rows)}::jsonb)
        as given("partyId" text, "firstSeenAt" timestamptz, extra text),
      (select max(epoch) as epoch from mirror.networks) network
    on conflict (party_id) do nothing`;
  return Number(await execute(db, ACTION, insert));
}

/**
 * Restores checkpoints. They are recorded as no longer served until the source shows
 * them again. The epochs of the chain are restored with them.
 * @returns how many checkpoints were added
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
 * Marks the restored parties that a complete reading did not show, because the source
 * has removed them. They stay stored, but are no longer exported.
 */
export async function forgetUnlisted(
  tx: Database,
  { list, epoch }: Generation,
): Promise<void> {
  if (list !== 'parties') return;
  const forget = statement()`
    update mirror.parties set gone_since = clock_timestamp()
    where epoch = ${epoch} and pos is null and gone_since is null
      and restored_at is not null and party_id <> ${NETWORK_PARTY}`;
  await execute(tx, 'mark parties that the source removed', forget);
}

/** True if the source did not show the restored row `r` of the list `g`. */
const IS_MISSING = {
  parties: sql`r.pos is null and r.gone_since is null
    and r.restored_at is not null and r.party_id <> ${NETWORK_PARTY}`,
  // The source gradually removes its oldest checkpoints.
  checkpoints: sql`r.gone_since is not null and r.at_block > (
    select min(at_block) from mirror.checkpoints where epoch = g.epoch and gone_since is null)`,
};

/**
 * Whether `g`, the first reading of a list, confirms the restored rows: it must show
 * all of them, and no new row before the last of them. Such a reading needs no second
 * one to confirm it, because the lost database had proven the rows that it wrote to the
 * lake.
 *
 * Only a list that has never been read in this database can have restored rows. Rows
 * that the reading itself adds are first seen after its start.
 */
export function agreesWithRestored(list: ListName): RawBuilder<unknown> {
  const table = TABLES[list];
  return sql`(not exists (select from mirror.generations o
      where o.list = g.list and o.generation_id <> g.generation_id)
    and not exists (select from ${table} r where r.epoch = g.epoch and ${IS_MISSING[list]})
    and exists (select from ${table} r where r.epoch = g.epoch and r.pos is not null
      and r.gone_since is null and r.first_seen_at < g.started_at)
    and not exists (select from ${table} added where added.epoch = g.epoch
      and added.first_seen_at >= g.started_at and added.pos < (
        select max(r.pos) from ${table} r where r.epoch = g.epoch
          and r.gone_since is null and r.first_seen_at < g.started_at)))`;
}
