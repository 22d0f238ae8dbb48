/**
 * Reads what a mirror contains. Tests name what they want to know, and only this file
 * names the tables.
 */
import type { Pool } from 'pg';

/**
 * Returns every party that the source has listed, in the list's order. The network's own
 * party is left out, because it has no place in the list.
 */
export async function listedParties(pool: Pool): Promise<string[]> {
  return column(
    pool,
    'select party_id from mirror.parties where pos is not null order by epoch, pos',
  );
}

export async function knownParties(pool: Pool): Promise<string[]> {
  return column(pool, 'select party_id from mirror.parties order by 1');
}

/** Returns height, hashes and number of copies of each checkpoint, in order. */
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
  readonly valuesDigest: string | null;
  readonly evidence: Readonly<Record<string, unknown>>;
  readonly isCurrent: boolean;
  readonly isLoaded: boolean;
  readonly isQuarantined: boolean;
}

/** Returns the keys of the segments that count: current, and not quarantined. */
export async function trustedKeys(pool: Pool): Promise<string[]> {
  const segments = await publishedSegments(pool);
  return segments
    .filter(({ isCurrent, isQuarantined }) => isCurrent && !isQuarantined)
    .map(({ objectKey }) => objectKey);
}

/** Returns current and superseded segments, by time. */
export async function publishedSegments(pool: Pool): Promise<HeldSegment[]> {
  const { rows } = await pool.query<HeldSegment>(
    `select party_id as "partyId", object_key as "objectKey", object_sha256 as "objectSha256", run_id as "runId", open,
       columns, rows::float8 as rows, bytes::float8 as bytes, object_bytes::float8 as "objectBytes", digest,
       values_digest as "valuesDigest", evidence,
       status = 'current' as "isCurrent", loaded_at is not null as "isLoaded",
       quarantine_reason is not null as "isQuarantined"
     from mirror.segments order by from_time, segment_id`,
  );
  return rows;
}

export async function currentSegments(pool: Pool): Promise<HeldSegment[]> {
  return (await publishedSegments(pool)).filter(({ isCurrent }) => isCurrent);
}

export interface HeldRange {
  readonly partyId: string;
  readonly assetId: string | null;
  readonly from: Date;
  readonly to: Date;
  readonly open: boolean;
  readonly isEmpty: boolean;
}

/** Returns the covered ranges of ledgers, sorted by party and time. */
export async function coveredRanges(pool: Pool): Promise<HeldRange[]> {
  const { rows } = await pool.query<HeldRange>(
    `select party_id as "partyId", asset_id as "assetId", from_time as from, to_time as to, open,
       segment_id is null as "isEmpty"
     from mirror.coverage order by party_id, from_time, asset_id`,
  );
  // Some pools return times as text.
  return rows.map((row) => ({
    ...row,
    from: new Date(row.from),
    to: new Date(row.to),
  }));
}

/** Returns the assets of the ranges that `isMeant` selects, each once. */
export async function coveredAssets(
  pool: Pool,
  isMeant: (range: HeldRange) => boolean,
): Promise<string[]> {
  const assets = (await coveredRanges(pool))
    .filter(isMeant)
    .flatMap(({ assetId }) => assetId ?? []);
  return [...new Set(assets)].toSorted();
}

/** Returns the party of each covered range, once for each range. */
export async function coveredParties(pool: Pool): Promise<string[]> {
  return (await coveredRanges(pool)).map(({ partyId }) => partyId);
}

export async function publicationStates(pool: Pool): Promise<string[]> {
  return column(pool, 'select state from mirror.publications');
}

export interface HeldExport {
  readonly partyId: string;
  readonly assetId: string | null;
  /** The number of failures since the export last succeeded. */
  readonly attempts: number;
  readonly isQuarantined: boolean;
  readonly reason: { readonly code?: string } | null;
  readonly idleNights: number;
  readonly isAsked: boolean;
  readonly isAtSource: boolean;
  /** True if the export limit has refused the export, which will be tried again. */
  readonly waitsForLimit: boolean;
  readonly leaseUntil: Date | null;
}

/** Returns all exports, by party and asset. */
export async function recordedExports(pool: Pool): Promise<HeldExport[]> {
  const { rows } = await pool.query<HeldExport>(
    `select party_id as "partyId", asset_id as "assetId", attempts, quarantined_at is not null as "isQuarantined",
       quarantine_reason as reason, idle_nights as "idleNights", last_asked_at is not null as "isAsked",
       is_at_source as "isAtSource", limit_wanted_at is not null as "waitsForLimit", lease_until as "leaseUntil"
     from mirror.exports order by party_id, asset_id`,
  );
  return rows;
}

/** Returns the codes of the reasons why exports are quarantined. */
export async function quarantineCodes(
  pool: Pool,
): Promise<(string | undefined)[]> {
  const quarantined = (await recordedExports(pool)).filter(
    ({ isQuarantined }) => isQuarantined,
  );
  return quarantined.map(({ reason }) => reason?.code);
}

/** Returns the ends of the leases of exports. */
export async function exportLeaseEnds(pool: Pool): Promise<Date[]> {
  return (await recordedExports(pool)).flatMap(
    ({ leaseUntil }) => leaseUntil ?? [],
  );
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

/** Returns runs, oldest first. */
export async function recordedRuns(
  pool: Pool,
  kind?: string,
): Promise<HeldRun[]> {
  const { rows } = await pool.query<HeldRun>(
    `select run_id as "runId", kind, subject, state, verdict, evidence, heartbeat_at as "heartbeatAt"
     from mirror.runs where $1::text is null or kind = $1 order by queued_at, run_id`,
    [kind ?? null],
  );
  return rows;
}

export async function unfinishedRuns(
  pool: Pool,
  kind?: string,
): Promise<HeldRun[]> {
  return (await recordedRuns(pool, kind)).filter(
    ({ state }) => state === 'queued' || state === 'running',
  );
}

export async function verdictOf(
  pool: Pool,
  runId: string,
): Promise<string | null | undefined> {
  return (await recordedRuns(pool)).find((run) => run.runId === runId)?.verdict;
}

/** Returns the outcome of each ledger of the nightly runs. */
export async function nightlyLedgers(pool: Pool): Promise<
  {
    partyId: string;
    state: string;
    outcome: Readonly<Record<string, unknown>> | null;
  }[]
> {
  const { rows } = await pool.query<{
    partyId: string;
    state: string;
    outcome: Readonly<Record<string, unknown>> | null;
  }>(
    'select party_id as "partyId", state, outcome from mirror.nightly_units order by party_id, updated_at desc',
  );
  return rows;
}

export async function loadedRowsByParty(
  pool: Pool,
): Promise<ReadonlyMap<string, number>> {
  const { rows } = await pool.query<{ party_id: string; entries: number }>(
    'select party_id, count(*)::int as entries from mirror.ledger_entries group by 1 order by 1',
  );
  return new Map(rows.map((row) => [row.party_id, row.entries]));
}

export async function loadedRows(pool: Pool): Promise<number> {
  return (await loadedRowsByParty(pool))
    .values()
    .reduce((sum, rows) => sum + rows, 0);
}

/** Returns the quantities of loaded entries, in the order of their times. */
export async function loadedQuantities(pool: Pool): Promise<string[]> {
  return column(
    pool,
    'select quantity::text from mirror.ledger_entries order by vega_time, quantity',
  );
}

/** Returns the URL of this mirror's source, once it has made a request. */
export async function recordedSourceUrl(
  pool: Pool,
): Promise<string | null | undefined> {
  return (
    await column<string | null>(pool, 'select source_url from mirror.identity')
  )[0];
}

/** Counts the rows of a table, for tests that check only its length. */
export async function countRows(pool: Pool, table: string): Promise<number> {
  return (
    (
      await column<number>(pool, `select count(*)::int from mirror.${table}`)
    )[0] ?? 0
  );
}

/** Returns the parties, except those that an audit no longer found. */
export async function presentParties(pool: Pool): Promise<string[]> {
  return (
    await column<string>(
      pool,
      'select party_id from mirror.parties where gone_since is null',
    )
  ).toSorted();
}

/**
 * Returns height, hash and block hash of each checkpoint, except those that an audit no
 * longer found.
 */
export async function presentCheckpoints(pool: Pool): Promise<string[]> {
  const rows = await column<string>(
    pool,
    `select at_block || '/' || hash || '/' || block_hash from mirror.checkpoints where gone_since is null`,
  );
  return rows.toSorted();
}

/** Returns the runs that have a recorded publication. */
export async function publishingRuns(pool: Pool): Promise<string[]> {
  return column(pool, `select plan ->> 'runId' from mirror.publications`);
}

export async function publicationSeq(pool: Pool): Promise<bigint> {
  return BigInt(
    (
      await column<string>(pool, 'select publication_seq from mirror.identity')
    )[0] ?? 0,
  );
}

/** Returns all columns of each generation, to check that nothing has changed. */
export async function recordedGenerations(
  pool: Pool,
): Promise<Record<string, unknown>[]> {
  return column(
    pool,
    'select to_jsonb(g) from mirror.generations g order by generation_id',
  );
}

/** Returns the resume point of the only list whose sync has begun. */
export async function storedResumePoint(pool: Pool): Promise<unknown> {
  return (await column(pool, 'select resume_point from mirror.generations'))[0];
}

async function column<Value>(
  pool: Pool,
  statement: string,
  values: unknown[] = [],
): Promise<Value[]> {
  const { rows } = await pool.query<[Value]>({
    text: statement,
    values,
    rowMode: 'array',
  });
  return rows.map(([value]) => value);
}
