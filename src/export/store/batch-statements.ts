/** Statements about many parties' exports at once, where each alone would take one of its own. */
import { sql } from 'kysely';
import { formatInstant } from '../../core/time.ts';
import type { Database } from '../../postgres/database.ts';
import { inTransaction } from '../../postgres/transaction.ts';
import { type Coverage, coverageRow, insertCoverage, readCoverages, supersede } from './coverage-rows.ts';
import { type ExportLease, takeLeases } from './leases.ts';
import type { Publication } from './publications.ts';

/** What is known of a party when its lease was taken. */
export interface Leased {
  readonly lease: ExportLease;
  readonly coverage: readonly Coverage[];
}

/** How an export ended. */
export interface Success {
  readonly lease: ExportLease;
  /** In how many runs in a row the source contradicted what is known. */
  readonly contradictions: number;
  /** Nothing is left to ask: the plan goes. */
  readonly isDone: boolean;
}

/** How a party's export ended that brought no rows. */
export interface EmptyExport extends Success {
  /** Without segments; absent where nothing was left to ask. */
  readonly publication?: Publication | undefined;
}

/** Takes the leases of all assets of those parties that nobody works on, and reads what is known of them. */
export async function leaseParties(
  db: Database,
  partyIds: readonly string[],
  holder: number | undefined,
): Promise<ReadonlyMap<string, Leased>> {
  return inTransaction(db, { action: `lease the exports of ${partyIds.length} parties` }, async (tx) => {
    const leases = await takeLeases(tx, partyIds, undefined, holder);
    const coverage = await readCoverages(
      tx,
      leases.map(({ scope }) => scope.partyId),
    );
    return new Map(
      leases.map((lease) => {
        const { partyId } = lease.scope;
        return [partyId, { lease, coverage: coverage.get(partyId) ?? [] }];
      }),
    );
  });
}

/**
 * Everything of many exports without rows in one transaction, and their leases given back.
 * @param asking its request is under way, counted at the source from now on
 * @returns those that were written; the others' leases are no longer ours
 * @throws RetryableError `COVERAGE_CHANGED` where that of one is no longer what was planned on: nothing is written
 */
export async function commitEmpty(
  db: Database,
  exports: readonly EmptyExport[],
  asking: ExportLease | undefined,
): Promise<readonly EmptyExport[]> {
  return inTransaction(db, { action: `record ${exports.length} exports without entries` }, async (tx) => {
    const fenced = await sql<{ export_id: bigint; lease_token: string }>`
      select export_id, lease_token from mirror.exports
      where export_id = any(${exports.map(({ lease }) => String(lease.exportId))}::bigint[])
        and lease_until > clock_timestamp()
      order by export_id for update`.execute(tx);
    const held = new Set(fenced.rows.map((row) => row.lease_token));
    const ours = exports.filter(({ lease }) => held.has(lease.token));
    if (ours.length === 0) return ours;
    await supersede(
      tx,
      ours.flatMap(({ publication }) => publication?.supersedes ?? []),
    );
    const ranges = ours.flatMap(
      ({ lease, publication }) =>
        publication?.coverage.map((range) => coverageRow(lease.scope, publication, range)) ?? [],
    );
    await insertCoverage(tx, ranges);
    await recordSuccess(tx, ours, { isReleased: true });
    if (asking !== undefined)
      await sql`update mirror.exports set is_at_source = true
        where export_id = ${asking.exportId} and lease_token = ${asking.token}`.execute(tx);
    return ours;
  });
}

/** @param isReleased their leases are given back with it */
export async function recordSuccess(
  tx: Database,
  exports: readonly EmptyExport[],
  { isReleased }: { readonly isReleased: boolean },
): Promise<void> {
  const given = exports.map(({ lease, publication, contradictions, isDone }) => ({
    export_id: String(lease.exportId),
    published: publication === undefined ? 0 : 1,
    last_entry_at: publication?.lastEntryAt === undefined ? null : formatInstant(publication.lastEntryAt),
    contradictions,
    is_done: isDone,
  }));
  await sql`
    update mirror.exports e
    set coverage_seq = e.coverage_seq + g.published, last_entry_at = coalesce(g.last_entry_at, e.last_entry_at),
      attempts = 0, quarantined_at = null, quarantine_reason = null,
      window_plan = case when g.is_done then null else e.window_plan end,
      contradictions = g.contradictions, last_asked_at = clock_timestamp()
      ${isReleased ? sql`, lease_token = null, lease_until = null, is_at_source = false` : sql``}
    from jsonb_to_recordset(${JSON.stringify(given)}::jsonb) as g(export_id bigint, published int,
      last_entry_at timestamptz, contradictions int, is_done boolean)
    where e.export_id = g.export_id`.execute(tx);
}
