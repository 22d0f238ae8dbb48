/** What a mirror holds, asked in words: tests name what they want to know, and only this file names the tables. */
import type { Pool } from 'pg';

/** Everybody the source has listed, in the list's order; the network's own party has no place in it. */
export async function listedParties(pool: Pool): Promise<string[]> {
  return column(pool, 'select party_id from mirror.parties where pos is not null order by epoch, pos');
}

export async function knownParties(pool: Pool): Promise<string[]> {
  return column(pool, 'select party_id from mirror.parties order by 1');
}

/** Height, hashes and how often, in order. */
export async function heldCheckpoints(pool: Pool): Promise<string[]> {
  return column(
    pool,
    `select at_block || ' ' || hash || ' ' || block_hash || ' ' || copies from mirror.checkpoints
     order by epoch, at_block, hash, block_hash`,
  );
}

export interface HeldSegment {
  readonly partyId: string;
  readonly objectKey: string;
  readonly objectSha256: string;
  readonly runId: string;
  readonly open: boolean;
  readonly columns: string[];
  readonly rows: number;
  readonly bytes: number;
  readonly objectBytes: number;
  readonly digest: string;
}

/** Current and superseded ones, by time. */
export async function publishedSegments(pool: Pool): Promise<HeldSegment[]> {
  return segmentsWhere(pool, 'true');
}

export async function currentSegments(pool: Pool): Promise<HeldSegment[]> {
  return segmentsWhere(pool, `status = 'current'`);
}

async function segmentsWhere(pool: Pool, condition: string): Promise<HeldSegment[]> {
  const { rows } = await pool.query<HeldSegment>(
    `select party_id as "partyId", object_key as "objectKey", object_sha256 as "objectSha256", run_id as "runId", open,
       columns, rows::float8 as rows, bytes::float8 as bytes, object_bytes::float8 as "objectBytes", digest
     from mirror.segments where ${condition} order by from_time, segment_id`,
  );
  return rows;
}

/** Assets of which a range is known that lasts beyond then. */
export async function coveredAssets(pool: Pool, partyId: string, beyond: Date): Promise<string[]> {
  return column(
    pool,
    'select distinct asset_id from mirror.coverage where party_id = $1 and to_time > $2::timestamptz order by 1',
    [partyId, beyond],
  );
}

/** Parties of which a range is known, one line for each range. */
export async function coveredParties(pool: Pool): Promise<string[]> {
  return column(pool, 'select party_id from mirror.coverage order by 1');
}

export async function publicationStates(pool: Pool): Promise<string[]> {
  return column(pool, 'select state from mirror.publications');
}

/** How often each export has failed since it last succeeded. */
export async function failedAttempts(pool: Pool): Promise<number[]> {
  return column(pool, 'select attempts from mirror.exports order by party_id');
}

/** Why exports are quarantined: the code of each. */
export async function quarantineCodes(pool: Pool): Promise<string[]> {
  return column(
    pool,
    `select quarantine_reason->>'code' from mirror.exports where quarantined_at is not null order by party_id`,
  );
}

export async function idleNights(pool: Pool): Promise<number[]> {
  return column(pool, 'select idle_nights from mirror.exports order by party_id');
}

/** Until when exports are leased. */
export async function exportLeaseEnds(pool: Pool): Promise<Date[]> {
  return column(pool, 'select lease_until from mirror.exports where lease_until is not null');
}

export interface HeldRun {
  readonly runId: string;
  readonly kind: string;
  readonly subject: string;
  readonly state: string;
  readonly verdict: string | null;
  readonly evidence: Readonly<Record<string, unknown>>;
  readonly heartbeatAt: Date | null;
}

/** Oldest first. */
export async function recordedRuns(pool: Pool, kind?: string): Promise<HeldRun[]> {
  const { rows } = await pool.query<HeldRun>(
    `select run_id as "runId", kind, subject, state, verdict, evidence, heartbeat_at as "heartbeatAt"
     from mirror.runs where $1::text is null or kind = $1 order by queued_at, run_id`,
    [kind ?? null],
  );
  return rows;
}

export async function unfinishedRuns(pool: Pool, kind?: string): Promise<HeldRun[]> {
  return (await recordedRuns(pool, kind)).filter(({ state }) => state === 'queued' || state === 'running');
}

export async function verdictOf(pool: Pool, runId: string): Promise<string | null | undefined> {
  return (await recordedRuns(pool)).find((run) => run.runId === runId)?.verdict;
}

/** What became of each ledger of the nightly runs. */
export async function nightlyLedgers(
  pool: Pool,
): Promise<{ partyId: string; state: string; outcome: Readonly<Record<string, unknown>> | null }[]> {
  const { rows } = await pool.query<{
    partyId: string;
    state: string;
    outcome: Readonly<Record<string, unknown>> | null;
  }>(
    'select party_id as "partyId", state, outcome from mirror.nightly_units order by party_id, updated_at desc',
  );
  return rows;
}

export async function loadedRowsByParty(pool: Pool): Promise<ReadonlyMap<string, number>> {
  const { rows } = await pool.query<{ party_id: string; entries: number }>(
    'select party_id, count(*)::int as entries from mirror.ledger_entries group by 1 order by 1',
  );
  return new Map(rows.map((row) => [row.party_id, row.entries]));
}

export async function loadedRows(pool: Pool): Promise<number> {
  return (await loadedRowsByParty(pool)).values().reduce((sum, rows) => sum + rows, 0);
}

/** In the order of their times. */
export async function loadedQuantities(pool: Pool): Promise<string[]> {
  return column(pool, 'select quantity::text from mirror.ledger_entries order by vega_time, quantity');
}

async function column<Value>(pool: Pool, statement: string, values: unknown[] = []): Promise<Value[]> {
  const { rows } = await pool.query<[Value]>({ text: statement, values, rowMode: 'array' });
  return rows.map(([value]) => value);
}
