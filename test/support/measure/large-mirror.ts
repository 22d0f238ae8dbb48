/**
 * Fills a mirror as years of nights would leave it, for tests of queries whose cost could
 * grow with the mirror. Only SQL statements are used. A fifth of the parties have
 * entries, the first party has a twentieth of all entries, and one nightly run is half
 * finished.
 */
import type { Pool } from 'pg';
import { ensurePartitions } from '../../../src/warehouse/store/copy-sink.ts';

export interface MirrorSize {
  readonly parties: number;
  readonly entries: number;
}

const MONTHS = ['2023-01', '2023-02', '2023-03', '2023-04', '2023-05'];
const LARGE_SEGMENTS_A_MONTH = 20;
const ID = `encode(sha256(('party ' || n)::bytea), 'hex')`;
const CLOSED_TO = `timestamptz '2023-06-01 00:00:00+00'`;
const ASSETS = ['a', 'b', 'c'].map((digit) => digit.repeat(64));

/** @returns the ids of the party with the most entries, and of one without any */
export async function fillMirror(
  pool: Pool,
  { parties, entries }: MirrorSize,
): Promise<{
  readonly busy: string;
  readonly idle: string;
  readonly runId: string;
  readonly assetId: string;
}> {
  await ensurePartitions(pool, MONTHS);
  const active = Math.max(2, Math.floor(parties / 5));
  await fillLists(pool, parties);
  await pool.query(
    `insert into mirror.exports (party_id, last_asked_at, last_entry_at, idle_nights)
     select ${ID}, clock_timestamp() - n * interval '1 millisecond',
       case when n <= ${active} then ${CLOSED_TO} - n * interval '1 minute' end, case when n <= ${active} then 0 else 9 end
     from generate_series(1, ${parties}) n`,
  );
  await fillSegments(pool, active, entries);
  await pool.query(
    `insert into mirror.coverage (party_id, from_time, to_time, sides, epoch)
     select ${ID}, 'epoch', ${CLOSED_TO}, 'both', 1 from generate_series(${active + 1}, ${parties}) n`,
  );
  await fillEntries(pool);
  const runId = await fillRuns(pool);
  await pool.query('vacuum analyze');
  const { rows } = await pool.query<{ busy: string; idle: string }>(
    `select ${ID.replaceAll('n)', '1)')} as busy, ${ID.replaceAll('n)', `${parties})`)} as idle`,
  );
  const [found] = rows;
  if (found === undefined) throw new Error('no party was made');
  return { ...found, runId, assetId: ASSETS[0] ?? '' };
}

async function fillLists(pool: Pool, parties: number): Promise<void> {
  await pool.query(
    `insert into mirror.parties (party_id, first_epoch, epoch, pos)
     select ${ID}, 1, 1, n * 1024 from generate_series(1, ${parties}) n
     union all select 'network', 1, null, null`,
  );
  await pool.query(
    `insert into mirror.checkpoints (epoch, at_block, hash, block_hash, pos)
     select 1, n * 300, ${ID}, ${ID}, n * 1024 from generate_series(1, ${parties}) n`,
  );
  for (const list of ['parties', 'checkpoints']) {
    await pool.query(
      `with run as (
         insert into mirror.runs (run_id, kind, subject, state, verdict, finished_at)
         values (gen_random_uuid(), 'sync', $1, 'done', 'complete', clock_timestamp()) returning run_id)
       insert into mirror.generations (list, epoch, kind, run_id, last_pos, rows, claimed_at, confirmed_at, audited_at, head_height, head_time)
       select $1, 1, 'current', run_id, $2::bigint * 1024, $2, now(), now(), now(), 1, ${CLOSED_TO} from run`,
      [list, parties],
    );
  }
}

async function fillSegments(
  pool: Pool,
  active: number,
  entries: number,
): Promise<void> {
  const large = Math.ceil(
    entries / 20 / MONTHS.length / LARGE_SEGMENTS_A_MONTH,
  );
  const small = Math.ceil((entries * 0.95) / MONTHS.length / (active - 1));
  await pool.query(
    `with months as (
       select month, (month || '-01 00:00:00+00')::timestamptz as at, m from unnest($1::text[]) with ordinality u(month, m)),
     made as (
       select n, m, part, case when m = 1 and part = 1 then 'epoch' else at + (part - 1) * step end as from_time,
         case when part = parts then at + interval '1 month' else at + part * step end as to_time, rows
       from generate_series(1, ${active}) n
       cross join months
       cross join lateral (
         select case when n = 1 then ${LARGE_SEGMENTS_A_MONTH} else 1 end as parts, case when n = 1 then ${large} else ${small} end as rows) sized
       cross join lateral (select interval '28 days' / parts as step) stepped
       cross join lateral generate_series(1, parts) part),
     segments as (
       insert into mirror.segments (party_id, from_time, to_time, object_key, rows, bytes, sha256, object_bytes, object_sha256,
         digest, row_form, values_digest, columns, published_at, loaded_at)
       select ${ID}, from_time, to_time, format('ledger/%s/%s-%s', ${ID}, m, part), rows, rows * 277, ${ID}, rows * 60, ${ID},
         ${ID}, 'bench', ${ID}, '{vega_time,quantity}', to_time + interval '3 hours', to_time + interval '4 hours'
       from made returning segment_id, party_id, from_time, to_time, rows, values_digest, loaded_at),
     months_of as (
       insert into mirror.segment_months (segment_id, month, rows, values_digest)
       select segment_id, date_trunc('month', to_time - interval '1 second')::date, rows, values_digest from segments),
     covered as (
       insert into mirror.coverage (party_id, from_time, to_time, sides, segment_id, epoch)
       select party_id, from_time, to_time, 'both', segment_id, 1 from segments)
     select count(*) from segments`,
    [MONTHS],
  );
  await pool.query(
    `insert into mirror.segment_proofs (segment_id) select segment_id from mirror.segments`,
  );
}

async function fillEntries(pool: Pool): Promise<void> {
  await pool.query(
    `insert into mirror.ledger_entries (party_id, vega_time, quantity, effect, transfer_type, asset_id,
       account_from_market_id, account_from_party_id, account_from_account_type, account_from_balance,
       account_to_market_id, account_to_party_id, account_to_account_type, account_to_balance, segment_id)
     select party_id, to_time - (rows - k + 1) * least(to_time - greatest(from_time, '2023-01-01'), interval '20 days') / (rows + 1), k * 7919 % 1000007, k * 7919 % 1000007,
       (array['MTM_LOSS','MARGIN_LOW','MAKER_FEE_PAY','WITHDRAW'])[(k % 4 + 1)::int], ($1::text[])[(k % 3 + 1)::int],
       null, other, 'MARGIN', 1000007 * k, null, party_id, 'GENERAL', 10000000000 + k, segment_id
     from (select *, lead(party_id, 1, party_id) over (order by segment_id) as other from mirror.segments order by to_time) s
     cross join lateral generate_series(1, s.rows) k`,
    [ASSETS],
  );
}

/**
 * Adds a year of nights with their runs; the last one is half finished.
 * @returns the unfinished run
 */
async function fillRuns(pool: Pool): Promise<string> {
  await pool.query(
    `with nights as (
       insert into mirror.runs (run_id, kind, subject, state, verdict, queued_at, started_at, finished_at, evidence)
       select gen_random_uuid(), 'nightly', 'scheduled', 'done', 'complete', at, at, at + interval '1 hour',
         '{"exports": {"secondsPerExport": 0.01, "newRows": "0"}}'
       from generate_series(1, 365) n, lateral (select clock_timestamp() - n * interval '1 day' as at) a
       returning run_id, queued_at)
     insert into mirror.runs (run_id, parent_run_id, kind, subject, state, verdict, queued_at, started_at, finished_at)
     select gen_random_uuid(), run_id, kind, subject, 'done', 'complete', queued_at, queued_at, queued_at + interval '1 minute'
     from nights, (values ('sync', 'parties'), ('sync', 'checkpoints'), ('load', 'warehouse and lake')) s(kind, subject)`,
  );
  const { rows } = await pool.query<{ run_id: string }>(
    `insert into mirror.runs (run_id, kind, subject, state, started_at, heartbeat_at, params)
     select gen_random_uuid(), 'nightly', 'scheduled', 'running', now(), now(),
       jsonb_build_object('plan', jsonb_build_object('asked', (select count(*) from mirror.exports), 'deferred', 0))
     returning run_id`,
  );
  const runId = rows[0]?.run_id ?? '';
  const partition = `mirror.nightly_units_${runId.replaceAll('-', '')}`;
  await pool.query(
    `create table ${partition} (like mirror.nightly_units including all)`,
  );
  await pool.query(
    `insert into ${partition} (run_id, party_id, priority, is_idle, state, outcome)
     select $1, party_id, n, true, case when n % 2 = 0 then 'done' else 'due' end,
       case when n % 2 = 0 then '{"rows": "0", "bytes": "0", "verdict": "complete"}'::jsonb end
     from (select party_id, row_number() over (order by party_id) as n from mirror.exports) p`,
    [runId],
  );
  await pool.query(
    `alter table mirror.nightly_units attach partition ${partition} for values in ('${runId}')`,
  );
  return runId;
}
