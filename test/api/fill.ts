/** Brings a sandbox network's lists into a warehouse without a sync: what a whole mirror of it holds. */
import type { Pool } from 'pg';
import type { Sandbox } from '../support/sandbox.ts';

export async function fillLists(pool: Pool, sandbox: Sandbox): Promise<void> {
  const ids = [...sandbox.truth.parties()].map(({ id }) => id);
  await pool.query(
    `insert into mirror.parties (party_id, first_epoch, epoch, pos)
     select id, 1, 1, place * 1024 from unnest($1::text[]) with ordinality as listed (id, place)
     union all select 'network', 1, null, null`,
    [ids],
  );
  const rows = [...sandbox.truth.checkpoints()];
  await pool.query(
    `insert into mirror.checkpoints (epoch, at_block, hash, block_hash, copies)
     select 1, at_block, hash, block_hash, count(*)
     from unnest($1::numeric[], $2::text[], $3::text[]) as listed (at_block, hash, block_hash)
     group by at_block, hash, block_hash`,
    [rows.map((row) => `${row.atBlock}`), rows.map((row) => row.hash), rows.map((row) => row.blockHash)],
  );
  const { headers } = await fetch(`${sandbox.url}/api/v2/parties?pagination.first=2`);
  await pool.query(
    `insert into mirror.generations (epoch, list, kind, claimed_at, head_height, head_time)
     select 1, list, 'current', now(), $1, to_timestamp($2::numeric / 1000000000)
     from unnest(array['parties', 'checkpoints']) as read (list)`,
    [headers.get('x-block-height'), headers.get('x-block-timestamp')],
  );
}
