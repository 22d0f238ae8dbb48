/**
 * Rows as syncs, exports and runs leave them: tests name what there is, and only this
 * file names the tables.
 */
import { randomUUID } from 'node:crypto';
import type { Pool } from 'pg';

/** By the names of columns; those that are not named have their defaults. */
export type Row = Readonly<Record<string, unknown>>;

const DAY_MS = 86_400_000;

export function daysAgo(days: number): Date {
  return new Date(Date.now() - days * DAY_MS);
}

/** All rows name the same columns. */
async function add(
  pool: Pool,
  table: string,
  rows: readonly Row[],
): Promise<void> {
  const columns = Object.keys(rows[0] ?? {}).join(', ');
  const json = JSON.stringify(rows, (_key, value: unknown) =>
    typeof value === 'bigint' ? String(value) : value,
  );
  await pool.query(
    `insert into mirror.${table} (${columns}) select ${columns} from jsonb_populate_recordset(null::mirror.${table}, $1)`,
    [json],
  );
}

/**
 * In the list's order. With an epoch, each has a place in that list, all but the
 * network's own party.
 */
export async function addParties(
  pool: Pool,
  ids: readonly string[],
  epoch?: number,
): Promise<void> {
  await pool.query(
    `insert into mirror.parties (party_id, first_epoch, epoch, pos)
     select id, 1, case when id <> 'network' then $2::int end, case when id <> 'network' and $2 is not null then place * 1024 end
     from unnest($1::text[]) with ordinality as listed (id, place)`,
    [ids, epoch],
  );
}

export function addCheckpoints(
  pool: Pool,
  rows: readonly Row[],
): Promise<void> {
  return add(pool, 'checkpoints', rows);
}

/** The network begins again: what was listed before is of an earlier epoch. */
export function addEpoch(pool: Pool, epoch: number): Promise<void> {
  return add(pool, 'networks', [{ epoch }]);
}

/** @returns its id */
export async function addRun(pool: Pool, row: Row): Promise<string> {
  const runId = randomUUID();
  await add(pool, 'runs', [{ run_id: runId, ...row }]);
  return typeof row['run_id'] === 'string' ? row['run_id'] : runId;
}

export interface Generation {
  readonly list: 'parties' | 'checkpoints';
  readonly epoch?: number;
  readonly kind?: 'current' | 'audit';
  readonly height: string;
  readonly time: string;
  /** The list was read to its end. */
  readonly isClaimed?: boolean;
}

export async function addGeneration(
  pool: Pool,
  generation: Generation,
): Promise<void> {
  const {
    list,
    epoch = 1,
    kind = 'current',
    height,
    time,
    isClaimed = false,
  } = generation;
  await pool.query(
    `insert into mirror.generations (list, epoch, kind, claimed_at, confirmed_at, head_height, head_time)
     values ($1, $2, $3, case when $4 then now() end, case when $4 then now() end, $5, $6)`,
    [list, epoch, kind, isClaimed, height, time],
  );
}

export function addExports(pool: Pool, rows: readonly Row[]): Promise<void> {
  return add(pool, 'exports', rows);
}

/** Over both sides of transfers, unless the row says otherwise. */
export function addCoverage(pool: Pool, row: Row): Promise<void> {
  return add(pool, 'coverage', [{ sides: 'both', ...row }]);
}

/**
 * Sums and sizes that no test looks at, unless the row says otherwise. Its range is
 * covered.
 */
export async function addSegment(pool: Pool, row: Row): Promise<void> {
  const sizes = { rows: 1, bytes: 1, object_bytes: 1, columns: [] };
  const sums = { sha256: '', object_sha256: '', digest: '', row_form: '' };
  await add(pool, 'segments', [{ ...sizes, ...sums, ...row }]);
  await pool.query(
    `insert into mirror.coverage (party_id, from_time, to_time, sides, segment_id)
     select party_id, from_time, to_time, 'both', segment_id from mirror.segments where object_key = $1`,
    [row['object_key']],
  );
}

/** Their months must have partitions. */
export function addEntries(pool: Pool, rows: readonly Row[]): Promise<void> {
  return add(pool, 'ledger_entries', rows);
}

/** As a nightly run leaves parties without entries. */
export async function addIdleLedgers(
  pool: Pool,
  ids: readonly string[],
): Promise<void> {
  await addParties(pool, ids);
  await pool.query(
    `with exports as (
       insert into mirror.exports (party_id) select unnest($1::text[]) returning party_id)
     insert into mirror.coverage (party_id, from_time, to_time, sides)
     select party_id, '1970-01-01Z', '2020-01-01Z', 'both' from exports`,
    [ids],
  );
}

/** Runs with all that hangs on them. */
export async function emptyRuns(pool: Pool): Promise<void> {
  await pool.query('truncate mirror.runs, mirror.nightly_units cascade');
}

/** Ledgers with all that is known of them, loaded or not. */
export async function emptyLedgers(pool: Pool): Promise<void> {
  await pool.query(
    `truncate mirror.publications, mirror.coverage, mirror.segments, mirror.exports, mirror.ledger_entries,
       mirror.segment_months cascade`,
  );
}

/** Both lists, and every epoch but the first. */
export async function emptyLists(pool: Pool): Promise<void> {
  await pool.query(
    `truncate mirror.parties, mirror.checkpoints, mirror.generations cascade;
     delete from mirror.networks where epoch > 1`,
  );
}

export async function emptyCoverage(pool: Pool): Promise<void> {
  await pool.query('delete from mirror.coverage');
}

export async function removeParty(pool: Pool, partyId: string): Promise<void> {
  await pool.query('delete from mirror.parties where party_id = $1', [partyId]);
}

/** An audit found that the source lists the party no more. */
export async function markPartyGone(
  pool: Pool,
  partyId: string,
): Promise<void> {
  await pool.query(
    'update mirror.parties set gone_since = clock_timestamp(), pos = null where party_id = $1',
    [partyId],
  );
}

/** Known since the same moment, by another id. */
export async function renameParty(
  pool: Pool,
  partyId: string,
  newId: string,
): Promise<void> {
  await pool.query(
    'update mirror.parties set party_id = $2 where party_id = $1',
    [partyId, newId],
  );
}

export async function removeSegmentsOf(
  pool: Pool,
  partyId: string,
): Promise<void> {
  await pool.query('delete from mirror.segments where party_id = $1', [
    partyId,
  ]);
}

/** Of closed segments with rows: of one party, or of all. */
export async function falsifyDigests(
  pool: Pool,
  partyId?: string,
): Promise<void> {
  await pool.query(
    `update mirror.segments set digest = repeat('0', 64)
     where status = 'current' and not open and rows > 0 and ($1::text is null or party_id = $1)`,
    [partyId],
  );
}

/** What is covered of this party rests on a segment whose object is lost. */
export async function quarantineLedger(
  pool: Pool,
  partyId: string,
): Promise<void> {
  await pool.query(
    `with lost as (
       insert into mirror.segments (party_id, from_time, to_time, object_key, rows, bytes, sha256, object_bytes,
         object_sha256, digest, row_form, columns, quarantine_reason)
       select party_id, from_time, to_time, 'lost', 1, 1, '', 1, '', '', '', '{}', '{"code": "OBJECT_MISSING"}'
       from mirror.coverage where party_id = $1
       returning segment_id, party_id)
     update mirror.coverage c set segment_id = lost.segment_id from lost where c.party_id = lost.party_id`,
    [partyId],
  );
}

/** The list of a later epoch names these parties too. */
export async function listAgain(
  pool: Pool,
  ids: readonly string[],
  epoch: number,
): Promise<void> {
  await pool.query(
    'update mirror.parties set epoch = $2 where party_id = any ($1)',
    [ids, epoch],
  );
}

/** As old as a mirror must be for a scheduled time to count as missed. */
/** Makes a schedule count from an instant on; removes it if no instant is given. */
export async function setScheduleSince(
  pool: Pool,
  name: string,
  schedule: { readonly pattern: string; readonly tz: string },
  at?: string,
): Promise<void> {
  await pool.query('delete from mirror.schedules where name = $1', [name]);
  if (at === undefined) return;
  await pool.query(
    'insert into mirror.schedules (name, pattern, tz, set_at) values ($1, $2, $3, $4)',
    [name, schedule.pattern, schedule.tz, at],
  );
}

export async function setMirrorCreatedAt(
  pool: Pool,
  time: string,
): Promise<void> {
  await pool.query('update mirror.identity set created_at = $1', [time]);
}

/** Makes the database one that a version before the first release has left. */
export async function renameBaseline(pool: Pool): Promise<void> {
  await pool.query(
    `update mirror.migrations set name = '0001-mirror' where name like '0001-%'`,
  );
}

/** What syncs and exports have learned of the source. */
export async function setSourceProfile(
  pool: Pool,
  profile: object,
): Promise<void> {
  await pool.query('update mirror.source_state set profile = $1', [profile]);
}

/** Their process has said nothing for so long: that of one run, or of all. */
export async function silenceRuns(
  pool: Pool,
  seconds: number,
  runId?: string,
): Promise<void> {
  await pool.query(
    `update mirror.runs set heartbeat_at = clock_timestamp() - make_interval(secs => $1)
     where $2::uuid is null or run_id = $2`,
    [seconds, runId],
  );
}

export async function startRunBefore(
  pool: Pool,
  runId: string,
  seconds: number,
): Promise<void> {
  await pool.query(
    'update mirror.runs set started_at = clock_timestamp() - make_interval(secs => $2) where run_id = $1',
    [runId, seconds],
  );
}

/** It was queued, and ended, so many days ago. */
export async function ageFinishedRun(
  pool: Pool,
  runId: string,
  days: number,
): Promise<void> {
  await pool.query(
    'update mirror.runs set finished_at = $2, queued_at = $2 where run_id = $1',
    [runId, daysAgo(days)],
  );
}

export async function removeRuns(
  pool: Pool,
  runIds: readonly string[],
): Promise<void> {
  await pool.query('delete from mirror.runs where run_id = any ($1)', [runIds]);
}

export async function removeQueuedRuns(pool: Pool): Promise<void> {
  await pool.query(`delete from mirror.runs where state = 'queued'`);
}

/** The next statement would be this many publications after the mirror was made. */
export async function setPublicationSeq(
  pool: Pool,
  seq: bigint,
): Promise<void> {
  await pool.query('update mirror.identity set publication_seq = $1', [seq]);
}

/** Another id: the objects of a store are another mirror's, or one's own again. */
export async function setWarehouseId(
  pool: Pool,
  warehouseId: string,
): Promise<void> {
  await pool.query('update mirror.identity set warehouse_id = $1', [
    warehouseId,
  ]);
}

/** Workers that signed on stay alive, however long a test takes to look at them. */
export async function keepWorkersAlive(pool: Pool): Promise<void> {
  await pool.query(
    `update mirror.workers set heartbeat_at = clock_timestamp() + interval '1 hour'`,
  );
}

export async function forgetWorkers(pool: Pool): Promise<void> {
  await pool.query('delete from mirror.workers');
}

export async function emptySegments(pool: Pool): Promise<void> {
  await pool.query('truncate mirror.segments cascade');
}

export async function emptyLake(pool: Pool): Promise<void> {
  await pool.query(
    `truncate mirror.lake_tables, mirror.lake_commits, mirror.lake_proofs cascade;
     alter sequence mirror.lake_builds restart`,
  );
}

/** A dead worker's leases, as they are once they have run out. */
export async function endExportLeases(pool: Pool): Promise<void> {
  await pool.query(
    `update mirror.exports set lease_until = '2000-01-01' where lease_until is not null`,
  );
}

export async function endListLeases(pool: Pool): Promise<void> {
  await pool.query(
    `update mirror.list_leases set lease_until = now() - interval '1 second'`,
  );
}

/** Another process has taken the lease. */
export async function takeOverExport(
  pool: Pool,
  partyId: string,
): Promise<void> {
  await pool.query(
    'update mirror.exports set lease_token = gen_random_uuid() where party_id = $1',
    [partyId],
  );
}

export async function quarantineExport(
  pool: Pool,
  partyId: string,
  reason: object,
): Promise<void> {
  await pool.query(
    'update mirror.exports set quarantined_at = now(), attempts = 5, quarantine_reason = $2 where party_id = $1',
    [partyId, reason],
  );
}

export async function changePublications(
  pool: Pool,
  from: string,
  to: string,
): Promise<void> {
  await pool.query(
    'update mirror.publications set state = $2 where state = $1',
    [from, to],
  );
}

export async function replacePublicationPlans(
  pool: Pool,
  plan: object,
): Promise<void> {
  await pool.query('update mirror.publications set plan = $1', [plan]);
}

/** As if load or verify had found every object missing. */
export async function quarantineSegments(pool: Pool): Promise<void> {
  await pool.query(
    `update mirror.segments set quarantine_reason = '{"code": "OBJECT_MISSING"}'`,
  );
}

export async function markSegmentsLoaded(pool: Pool): Promise<void> {
  await pool.query('update mirror.segments set loaded_at = clock_timestamp()');
}

/** Their rows are gone from the table, and they count as not loaded. */
export async function unloadSegments(pool: Pool): Promise<void> {
  await pool.query(
    'delete from mirror.ledger_entries; update mirror.segments set loaded_at = null',
  );
}

export async function supersedeSegments(pool: Pool, at: string): Promise<void> {
  await pool.query(
    `update mirror.segments set status = 'superseded', superseded_at = $1`,
    [at],
  );
}

/** When closed segments were last compared with the source. */
export async function setCoverageCheckedAt(
  pool: Pool,
  at: string,
): Promise<void> {
  await pool.query('update mirror.coverage set checked_at = $1', [at]);
}

export async function ageCoverageChecks(
  pool: Pool,
  days: number,
): Promise<void> {
  await pool.query(
    'update mirror.coverage set checked_at = checked_at - make_interval(days => $1)',
    [days],
  );
}

/** As if no statement of a night had ever been written. */
export async function forgetProofs(pool: Pool): Promise<void> {
  await pool.query(
    'truncate mirror.proof_log, mirror.proof_ledgers, mirror.proof_pages',
  );
}

export async function removeCoverageOf(
  pool: Pool,
  partyId: string,
): Promise<void> {
  await pool.query('delete from mirror.coverage where party_id = $1', [
    partyId,
  ]);
}

/** As if all ledgers had been asked for so many days ago. */
export async function setLastAsked(pool: Pool, days: number): Promise<void> {
  await pool.query('update mirror.exports set last_asked_at = $1', [
    daysAgo(days),
  ]);
}

/** A checkpoint that the source showed once, and has dropped since. */
export async function addPrunedCheckpoint(pool: Pool): Promise<void> {
  await pool.query(
    `insert into mirror.checkpoints (epoch, at_block, hash, block_hash, first_seen_at, gone_since)
     values (1, 1, 'aa', 'bb', now() - interval '9 days', now() - interval '3 days')`,
  );
}

/** A party that the source listed once, and has removed since. @returns its id */
export async function addGoneParty(pool: Pool): Promise<string> {
  const id = 'ab'.repeat(32);
  await pool.query(
    `insert into mirror.parties (party_id, first_epoch, epoch, first_seen_at, gone_since)
     values ($1, 1, 1, now() - interval '9 days', now() - interval '3 days')`,
    [id],
  );
  return id;
}
