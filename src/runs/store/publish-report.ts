/**
 * Publishes the report of a nightly run with its verdict: what the mirror contained when
 * the run ended, as sums. Also restores runs from their reports into a database that
 * lacks them.
 */
import { sql } from 'kysely';
import { errorCode, PermanentError } from '../../errors/errors.ts';
import { type VerdictWithEvidence, worst } from '../../errors/verdict.ts';
import { version } from '../../version.ts';
import { addDigests, hashText, RowDigest } from '../../ledger/digest.ts';
import { copyLines } from '../../postgres/copy.ts';
import type { Database, Warehouse } from '../../postgres/database.ts';
import { execute, readRow, readRows } from '../../postgres/run-statement.ts';
import { statement, typed } from '../../postgres/statement.ts';
import {
  type Holding,
  type NightlyReport,
  readReport,
  reportKey,
  REPORTS_PREFIX,
  type ReportSource,
  type RowSum,
} from '../nightly-report.ts';
import {
  type Completeness,
  readCompleteness,
} from '../../status/store/completeness.ts';
import { type Run, RunStore } from './run-store.ts';

const ACTION = 'sum up what is held';
const HELD_MAX = 1_000;

/**
 * Queries for the rows that each list had at an instant. They read only columns that no
 * sync changes.
 */
const LISTS = {
  parties: 'select party_id from mirror.parties',
  checkpoints:
    'select epoch, at_block, hash, block_hash from mirror.checkpoints',
} as const;

export type ReportDeps = ReportSource & { readonly warehouse: Warehouse };
type Reading = Pick<ReportDeps, 'warehouse' | 'signal'>;

/**
 * Publishes the report of a run that is about to end. A delivery that was killed may
 * already have published one. The run's verdict is never better than what its last
 * delivery found. If that is worse than the earlier report's verdict, a second report is
 * published, with the earlier verdict in its evidence; otherwise the earlier report
 * stands.
 *
 * @returns how the run ends: the verdict, and the evidence with the report's key
 */
export async function publishReport(
  run: Run,
  ended: VerdictWithEvidence,
  deps: ReportDeps,
): Promise<VerdictWithEvidence> {
  const key = reportKey(run);
  const { report, settledAt } = await composeReport(run, ended, deps);
  if (await publishOnce(key, report, deps)) {
    await rememberReport(run, { key, heldAt: report.heldAt, settledAt }, deps);
    return {
      verdict: report.verdict,
      evidence: { ...report.evidence, report: key },
    };
  }

  const earlier = await readReport(key, deps);
  if (worst([earlier.verdict, ended.verdict]) === earlier.verdict) {
    // It is unknown what the killed delivery saw as settled, so the next report lists
    // everything that has changed since this run began.
    const settledByStart = run.startedAt ?? run.queuedAt;
    const { heldAt, verdict, evidence } = earlier;
    await rememberReport(run, { key, heldAt, settledAt: settledByStart }, deps);
    return { verdict, evidence: { ...evidence, report: key } };
  }

  const evidence = {
    ...ended.evidence,
    earlierReport: {
      report: key,
      verdict: earlier.verdict,
      heldAt: earlier.heldAt,
    },
  };
  const corrected = { ...report, evidence };
  const correctedKey = reportKey(run, run.attempts);
  await publishOnce(correctedKey, corrected, deps);
  const { heldAt } = corrected;
  await rememberReport(run, { key: correctedKey, heldAt, settledAt }, deps);
  return {
    verdict: ended.verdict,
    evidence: { ...evidence, report: correctedKey },
  };
}

async function composeReport(
  run: Run,
  { verdict, evidence }: VerdictWithEvidence,
  deps: ReportDeps,
): Promise<{ readonly report: NightlyReport; readonly settledAt: string }> {
  const { runId, subject, sourceUrl } = run;
  // The completeness that the verdict was computed from, if the run got that far.
  const read = evidence['covers'] as Completeness | undefined;
  const covers = { ...(read ?? (await readCompleteness(deps.warehouse.db))) };
  const { settledAt, ...held } = await readHoldings(deps);

  const report: NightlyReport = {
    format: 1,
    program: version(),
    runId,
    subject,
    startedAt: run.startedAt ?? run.queuedAt,
    sourceUrl,
    verdict,
    covers,
    ...held,
    evidence,
  };
  return { report, settledAt };
}

/**
 * Publishes a report.
 * @returns false if the key already has a different report
 */
async function publishOnce(
  key: string,
  report: NightlyReport,
  { objects, signal }: ReportDeps,
): Promise<boolean> {
  try {
    await objects.publishBytes(
      key,
      Buffer.from(`${JSON.stringify(report)}\n`),
      signal,
    );
    return true;
  } catch (error) {
    if (errorCode(error) !== 'OBJECT_CONFLICT') throw error;
    return false;
  }
}

/** What the next report needs to know about this one. */
interface RememberedReport {
  readonly key: string;
  readonly heldAt: string;
  /** Changes that were not committed by this time belong to the next report. */
  readonly settledAt: string;
}

async function rememberReport(
  { runId }: Run,
  report: RememberedReport,
  { warehouse }: ReportDeps,
): Promise<void> {
  await new RunStore(warehouse.db).keep(runId, { report: { ...report } });
}

/**
 * Reads what the mirror contains.
 * @returns the holdings, and `settledAt`, the start of the oldest transaction that was
 *   still open; its changes belong to the next report
 */
async function readHoldings(reading: Reading) {
  const { db } = reading.warehouse;
  // Open doubts about the lists, and their known gaps.
  const open = (
    table: 'doubts' | 'list_gaps',
  ) => sql`(select coalesce(jsonb_agg(to_jsonb(t)), '[]') from
    (select * from ${sql.id('mirror', table)} where closed_at is null limit ${HELD_MAX}) t)`;
  const holdings = statement({
    heldAt: 'instant',
    warehouseId: 'uuid',
    previous: 'text?',
    since: 'text?',
    settledAt: 'instant',
    openDoubts: typed<NightlyReport['openDoubts']>('json'),
    knownGaps: typed<NightlyReport['knownGaps']>('json'),
  })`
    select clock_timestamp() as "heldAt", warehouse_id as "warehouseId",
      r.key as previous, r.since,
      (select least(min(xact_start), clock_timestamp()) from pg_stat_activity
        where datname = current_database() and backend_type = 'client backend')
        as "settledAt",
      ${open('doubts')} as "openDoubts", ${open('list_gaps')} as "knownGaps"
    from mirror.identity left join lateral (
      select params->'report'->>'key' as key, params->'report'->>'settledAt' as since
      from mirror.runs
      where kind = 'nightly' and params ? 'report'
      order by params->'report'->>'heldAt' desc limit 1) r on true`;
  const { since, ...told } = await readRow(db, ACTION, holdings);
  const sumOf = (list: keyof typeof LISTS) =>
    sumList(list, told.heldAt, reading);
  return {
    ...told,
    lists: {
      parties: await sumOf('parties'),
      checkpoints: await sumOf('checkpoints'),
    },
    ledgers: await sumLedgers(reading),
    changed: await readChanged(db, since),
  };
}

/** Sums the rows that a list had at an instant. */
export async function sumList(
  list: keyof typeof LISTS,
  heldAt: string,
  { warehouse, signal }: Reading,
): Promise<RowSum> {
  const digest = new RowDigest();
  const at = new Date(heldAt).toISOString();
  // The instant is truncated to milliseconds, so rows later in the same millisecond are
  // not counted.
  const text = `copy (${LISTS[list]} where first_seen_at <= '${at}') to stdout`;
  const copy = { statement: text, action: ACTION, signal };
  for await (const lines of copyLines(warehouse.pool, copy))
    for (const line of lines) digest.add(hashText(line));
  return { rows: String(digest.rows), sum: digest.hex() };
}

/** Sums all current segments, including open ones. */
export async function sumLedgers({
  warehouse,
  signal,
}: Reading): Promise<NightlyReport['ledgers']> {
  const digest = new RowDigest();
  let segments = 0;
  let rows = 0n;
  const text = `copy (select rows, digest from mirror.segments where status = 'current') to stdout`;
  const copy = { statement: text, action: ACTION, signal };
  for await (const lines of copyLines(warehouse.pool, copy)) {
    segments += lines.length;
    for (const line of lines) {
      const [count = '0', hex = ''] = line.split('\t');
      digest.merge(RowDigest.fromHex(hex, 0));
      rows += BigInt(count);
    }
  }
  return {
    segments: String(segments),
    rows: rows.toString(),
    sum: digest.hex(),
  };
}

async function readChanged(
  db: Database,
  since: string | null,
): Promise<Holding[]> {
  const changed = statement({
    partyId: 'text',
    assetId: 'text?',
    closedTo: 'instant',
    rows: 'text',
    digests: 'text[]',
  })`
    with changed as (
      select distinct s.party_id, s.asset_id
      from mirror.segments s left join mirror.coverage c on c.segment_id = s.segment_id
      where ${since}::timestamptz is null
        or greatest(c.checked_at, s.superseded_at) > ${since}::timestamptz)
    select s.party_id as "partyId", s.asset_id as "assetId",
      max(s.to_time) as "closedTo", sum(s.rows)::text as rows,
      array_agg(s.digest) as digests
    from mirror.segments s
    join changed c
      on c.party_id = s.party_id and c.asset_id is not distinct from s.asset_id
    where s.status = 'current' and not s.open
    group by s.party_id, s.asset_id order by s.party_id, s.asset_id`;
  const rows = await readRows(db, ACTION, changed);
  return rows.map(({ digests, ...holding }) => ({
    ...holding,
    sum: addDigests(digests),
  }));
}

/**
 * Restores the runs whose reports are in the store.
 * @returns the number of runs that were not in the database
 */
export async function restoreReports(
  deps: ReportDeps,
  onProblem: (key: string, error: PermanentError) => void,
): Promise<number> {
  let restored = 0;
  for await (const { key } of deps.objects.list(REPORTS_PREFIX, deps.signal)) {
    try {
      restored += await restoreRun(
        await readReport(key, deps),
        key,
        deps.warehouse.db,
      );
    } catch (error) {
      if (!(error instanceof PermanentError)) throw error;
      onProblem(key, error);
    }
  }
  return restored;
}

/** Restores one run. A run that is already in the database is left unchanged. */
async function restoreRun(
  report: NightlyReport,
  key: string,
  db: Database,
): Promise<number> {
  const { runId, subject, sourceUrl, verdict, startedAt, heldAt } = report;
  const params = JSON.stringify({ report: { key, heldAt }, restored: true });
  const evidence = JSON.stringify({ ...report.evidence, report: key });
  const restoration = statement()`
    insert into mirror.runs (run_id, kind, subject, source_url, params, state,
      verdict, evidence, queued_at, started_at, finished_at)
    values (${runId}, 'nightly', ${subject}, ${sourceUrl}, ${params}::jsonb, 'done',
      ${verdict}, ${evidence}::jsonb, ${startedAt}, ${startedAt}, ${heldAt})
    on conflict (run_id) do nothing`;
  return Number(
    await execute(db, 'restore a run from its report', restoration),
  );
}
