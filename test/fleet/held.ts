/** What a mirror holds, in the words of the oracle. */
import type { Pool } from 'pg';
import { parseInstant, type Micros } from '../../src/time/time.ts';

interface HeldList {
  /** Keys of the present rows of the current epoch. */
  readonly keys: ReadonlySet<string>;
  /** The block that the list is called proven up to; -1 before that. */
  readonly asOfBlock: bigint;
}

export interface HeldByMirror {
  readonly parties: HeldList;
  readonly checkpoints: HeldList;
  /** How far the ledger of each party is covered from the beginning. */
  readonly closedTo: ReadonlyMap<string, Micros>;
  /** Numbers of the loaded entries by party. */
  readonly entries: ReadonlyMap<string, ReadonlySet<string>>;
}

const EPOCH = '(select max(epoch) from mirror.networks)';

export async function readHeld(pool: Pool): Promise<HeldByMirror> {
  const { rows: heads } = await pool.query<{ list: string; height: string }>(
    `select list, head_height::text as height from mirror.generations
     where kind = 'current' and claimed_at is not null and epoch = ${EPOCH}`,
  );
  const headOf = (list: string): bigint =>
    BigInt(heads.find((head) => head.list === list)?.height ?? -1);
  const parties = await column(
    pool,
    `select party_id from mirror.parties
     where epoch = ${EPOCH} and pos is not null and party_id <> 'network'`,
  );
  // What fell out of the source's retention keeps its place, and is served on.
  const checkpoints = await column(
    pool,
    `select at_block || '/' || hash from mirror.checkpoints
     where epoch = ${EPOCH} and pos is not null`,
  );
  const { rows: covered } = await pool.query<{ party: string; until: string }>(
    `select party_id as party, to_char(max(to_time) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as until
     from mirror.coverage where not open group by party_id
     having min(from_time) <= 'epoch'`,
  );
  const { rows: entries } = await pool.query<{ party: string; number: string }>(
    'select party_id as party, quantity::text as number from mirror.ledger_entries',
  );
  const numbers = new Map<string, Set<string>>();
  for (const { party, number } of entries) {
    const known = numbers.get(party) ?? new Set();
    numbers.set(party, known.add(number));
  }
  return {
    parties: { keys: new Set(parties), asOfBlock: headOf('parties') },
    checkpoints: {
      keys: new Set(checkpoints),
      asOfBlock: headOf('checkpoints'),
    },
    closedTo: new Map(
      covered.map(({ party, until }) => [party, parseInstant(until) ?? 0n]),
    ),
    entries: numbers,
  };
}

async function column(pool: Pool, text: string): Promise<string[]> {
  const { rows } = await pool.query<string[]>({ text, rowMode: 'array' });
  return rows.map(([value = '']) => value);
}

/**
 * Returns what the mirror knows of each listed ledger that it has not covered from the
 * beginning without a gap, as JSON: for the story of a failure.
 */
export async function uncoveredLedgers(pool: Pool): Promise<readonly string[]> {
  return column(
    pool,
    `select jsonb_build_object('party', p.party_id,
       'export', (
         select jsonb_agg(jsonb_build_object('asked', last_asked_at, 'tried', last_tried_at,
           'idleNights', idle_nights, 'attempts', attempts, 'quarantined', quarantined_at))
         from mirror.exports e where e.party_id = p.party_id),
       'ranges', (
         select jsonb_agg(jsonb_build_array(from_time, to_time, open, segment_id) order by from_time)
         from mirror.coverage c where c.party_id = p.party_id),
       'segments', (
         select jsonb_agg(jsonb_build_array(segment_id, from_time, to_time, open, rows))
         from mirror.segments s where s.party_id = p.party_id and status = 'current'))::text
     from mirror.parties p
     where epoch = ${EPOCH} and gone_since is null and party_id <> 'network'
       and not coalesce((
         select min(from_time) <= 'epoch'
           and sum(to_time - from_time) = max(to_time) - min(from_time)
         from mirror.coverage c where c.party_id = p.party_id and not open), false)
     order by party_id`,
  );
}
