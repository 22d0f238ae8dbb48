/**
 * Inserts rows as syncs, exports and runs leave them. Tests name the situation, and only
 * this file names the tables.
 */
import { randomUUID } from 'node:crypto';
import type { Pool } from 'pg';

/**
 * A row, keyed by the names of its columns; columns that are not named get their
 * defaults.
 */
export type Row = Readonly<Record<string, unknown>>;

const DAY_MS = 86_400_000;

export function daysAgo(days: number): Date {
  return new Date(Date.now() - days * DAY_MS);
}

/** Inserts rows that all name the same columns. */
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
 * Adds parties in the list's order. If an epoch is given, every party except the
 * network's own also gets a place in the list of that epoch.
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

/**
 * Begins a new epoch of the network. Everything listed before belongs to an earlier one.
 */
export function addEpoch(pool: Pool, epoch: number): Promise<void> {
  return add(pool, 'networks', [{ epoch }]);
}

/**
 * Adds a run.
 * @returns its id
 */
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
  /** True if the list was read to its end. */
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

/** Adds coverage; `sides` is `both` unless the row has another value. */
export function addCoverage(pool: Pool, row: Row): Promise<void> {
  return add(pool, 'coverage', [{ sides: 'both', ...row }]);
}

/**
 * Adds a segment and covers its range. Sums and sizes have arbitrary values unless the
 * row has others.
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

/** Adds entries. Their months must have partitions. */
export function addEntries(pool: Pool, rows: readonly Row[]): Promise<void> {
  return add(pool, 'ledger_entries', rows);
}

/** Adds parties without entries, as a nightly run leaves them. */
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

/** Deletes all runs, with everything that depends on them. */
export async function emptyRuns(pool: Pool): Promise<void> {
  await pool.query('truncate mirror.runs, mirror.nightly_units cascade');
}

/** Deletes all ledgers, with everything known about them, loaded or not. */
export async function emptyLedgers(pool: Pool): Promise<void> {
  await pool.query(
    `truncate mirror.publications, mirror.coverage, mirror.segments, mirror.exports, mirror.ledger_entries,
       mirror.segment_months cascade`,
  );
}

/** Deletes both lists, and every epoch except the first. */
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

/** Marks a party as an audit would if the source no longer lists it. */
export async function markPartyGone(
  pool: Pool,
  partyId: string,
): Promise<void> {
  await pool.query(
    'update mirror.parties set gone_since = clock_timestamp(), pos = null where party_id = $1',
    [partyId],
  );
}

/** Changes the id of a party, and nothing else about it. */
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

/** Falsifies the digests of closed segments with rows, for one party or for all. */
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

/** Makes a party's coverage depend on a segment whose object is lost. */
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

/** Lists parties again in a later epoch. */
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

/**
 * Sets the instant from which a schedule counts; removes the schedule if no instant is
 * given.
 */
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

/**
 * Sets when the mirror was created: only scheduled times after that count as missed.
 */
export async function setMirrorCreatedAt(
  pool: Pool,
  time: string,
): Promise<void> {
  await pool.query('update mirror.identity set created_at = $1', [time]);
}

/** Makes the database look as if a version before the first release had left it. */
export async function renameBaseline(pool: Pool): Promise<void> {
  await pool.query(
    `update mirror.migrations set name = '0001-mirror' where name like '0001-%'`,
  );
}

/** Sets what syncs and exports have learned about the source. */
export async function setSourceProfile(
  pool: Pool,
  profile: object,
): Promise<void> {
  await pool.query('update mirror.source_state set profile = $1', [profile]);
}

/** Makes the last heartbeat of one run, or of all, this many seconds old. */
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

/** Makes a run look as if it had been queued, and had ended, this many days ago. */
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

/** Sets the number of the last publication; 0 if there has been none. */
export async function setPublicationSeq(
  pool: Pool,
  seq: bigint,
): Promise<void> {
  await pool.query('update mirror.identity set publication_seq = $1', [seq]);
}

/**
 * Changes the warehouse's id, so that the objects of a store belong to another mirror, or
 * belong to this one again.
 */
export async function setWarehouseId(
  pool: Pool,
  warehouseId: string,
): Promise<void> {
  await pool.query('update mirror.identity set warehouse_id = $1', [
    warehouseId,
  ]);
}

/** Keeps registered workers alive, however long a test takes. */
export async function keepWorkersAlive(pool: Pool): Promise<void> {
  await pool.query(
    `update mirror.workers set heartbeat_at = clock_timestamp() + interval '1 hour'`,
  );
}

/** Makes registered workers look as if they had been silent for this long. */
export async function silenceWorkers(
  pool: Pool,
  silentMs: number,
): Promise<void> {
  await pool.query(
    `update mirror.workers
        set heartbeat_at = clock_timestamp() - $1 * interval '1 millisecond'`,
    [silentMs],
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

/** Makes all leases of exports expire, like those of a dead worker. */
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

/** Makes another process take over the lease of an export. */
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

/** Quarantines all segments, as if load or verify had found every object missing. */
export async function quarantineSegments(pool: Pool): Promise<void> {
  await pool.query(
    `update mirror.segments set quarantine_reason = '{"code": "OBJECT_MISSING"}'`,
  );
}

export async function markSegmentsLoaded(pool: Pool): Promise<void> {
  await pool.query('update mirror.segments set loaded_at = clock_timestamp()');
}

/** Removes the rows of all segments, which then count as not loaded. */
export async function unloadSegments(pool: Pool): Promise<void> {
  await pool.query(
    `delete from mirror.ledger_entries; delete from mirror.segment_months;
     update mirror.segments set loaded_at = null`,
  );
}

export async function supersedeSegments(pool: Pool, at: string): Promise<void> {
  await pool.query(
    `update mirror.segments set status = 'superseded', superseded_at = $1`,
    [at],
  );
}

/** Sets when closed segments were last compared with the source. */
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

/** Deletes all statements of nights, as if none had ever been written. */
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

/** Makes all ledgers look as if they had last been requested this many days ago. */
export async function setLastAsked(pool: Pool, days: number): Promise<void> {
  await pool.query('update mirror.exports set last_asked_at = $1', [
    daysAgo(days),
  ]);
}

/** Adds a checkpoint that the source once showed and has since dropped. */
export async function addPrunedCheckpoint(pool: Pool): Promise<void> {
  await pool.query(
    `insert into mirror.checkpoints (epoch, at_block, hash, block_hash, first_seen_at, gone_since)
     values (1, 1, 'aa', 'bb', now() - interval '9 days', now() - interval '3 days')`,
  );
}

/**
 * Adds a party that the source once listed and has since removed.
 * @returns its id
 */
export async function addGoneParty(pool: Pool): Promise<string> {
  const id = 'ab'.repeat(32);
  await pool.query(
    `insert into mirror.parties (party_id, first_epoch, epoch, first_seen_at, gone_since)
     values ($1, 1, 1, now() - interval '9 days', now() - interval '3 days')`,
    [id],
  );
  return id;
}
