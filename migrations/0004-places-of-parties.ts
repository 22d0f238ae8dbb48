/**
 * A party's place becomes part of its row: a walk stores one row and keeps one index of random ids for each
 * party, not two. Places of earlier epochs, which nobody is asked for page by page, move to a side table.
 */
import { type Kysely, sql } from 'kysely';

const STATEMENTS = [
  `alter table mirror.parties
     add column epoch int,
     add column pos bigint,
     add column last_seen_walk bigint,
     add column gone_since timestamptz,
     add constraint parties_place_check check ((epoch is null) = (pos is null))`,
  `create table mirror.former_places (
     epoch int not null,
     party_id text not null,
     pos bigint not null,
     last_seen_walk bigint,
     gone_since timestamptz,
     primary key (epoch, party_id))`,
  `insert into mirror.parties as party (party_id, first_epoch, epoch, pos, last_seen_walk, gone_since)
     select distinct on (party_id) party_id, epoch, epoch, pos, last_seen_walk, gone_since
     from mirror.places order by party_id, epoch desc
     on conflict (party_id) do update set epoch = excluded.epoch, pos = excluded.pos,
       last_seen_walk = excluded.last_seen_walk, gone_since = excluded.gone_since`,
  `insert into mirror.former_places (epoch, party_id, pos, last_seen_walk, gone_since)
     select place.epoch, place.party_id, place.pos, place.last_seen_walk, place.gone_since
     from mirror.places place join mirror.parties party using (party_id) where place.epoch < party.epoch`,
  'drop table mirror.places',
  // Deferrable: where there is no room between two rows, their neighbours are moved in one transaction.
  `alter table mirror.parties
     add constraint parties_epoch_pos_key unique (epoch, pos) deferrable initially immediate`,
  // Every place in every epoch. Which chain it belongs to follows from pos alone.
  `create view mirror.places as
     select epoch, party_id, pos, last_seen_walk, gone_since from mirror.parties where epoch is not null
     union all
     select epoch, party_id, pos, last_seen_walk, gone_since from mirror.former_places`,
];

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}
