/** Publications as Postgres keeps them: the plan as JSON, and the one transaction that makes it true. */
import { sql } from 'kysely';
import { z } from 'zod';
import { formatInstant } from '../../core/time.ts';
import { instant } from '../../ledger/json-values.ts';
import { type Manifest, manifestJson, manifestSchema } from '../../ledger/objects/manifest.ts';
import type { Database } from '../../postgres/database.ts';
import {
  coverageChanged,
  coverageRow,
  guardOverlap,
  insertCoverage,
  newCoverage,
  supersede,
  tailSum,
} from './coverage-rows.ts';
import { type ExportLease, releaseLeases } from './leases.ts';
import { segmentColumns } from './segment-rows.ts';

const bigId = z.codec(z.string(), z.bigint(), { decode: BigInt, encode: String });

/**
 * Everything that becomes visible in one COMMIT, written down before the first object is: whoever finds
 * it after a crash can finish it without the source.
 */
const plan = z.object({
  publicationId: z.uuid(),
  runId: z.uuid(),
  segments: z.array(z.object({ spoolName: z.string(), manifest: manifestSchema })),
  coverage: z.array(newCoverage),
  /** Coverage that the new one takes the place of, with its segments. */
  supersedes: z.array(bigId),
  /** Coverage that was received again and found unchanged: closed as it stands, with its segment. */
  closes: z.array(z.object({ coverageId: bigId, tail: tailSum.optional() })).default([]),
  /** Of the source's chain; absent where no list is known. */
  epoch: z.int().optional(),
  /** Second of the newest entry received. */
  lastEntryAt: instant.optional(),
});
export type Publication = Readonly<z.output<typeof plan>>;

/** @returns undefined where the stored JSON cannot be read: another version wrote it, or it is of no time there is */
export function decodePublication(json: unknown): Publication | undefined {
  return plan.safeParse(json).data;
}

/** The row of an intent; what has no objects is committed without one before. */
export function publicationRow(
  lease: ExportLease,
  publication: Publication,
): { publication_id: string; export_id: bigint; lease_token: string; plan: string } {
  return {
    publication_id: publication.publicationId,
    export_id: lease.exportId,
    lease_token: lease.token,
    plan: JSON.stringify(plan.encode(publication)),
  };
}

/**
 * Everything of a publication at once: old coverage and its segments go, the new ones come. Called with
 * the export's row locked and its token checked.
 */
export async function commitPublication(
  tx: Database,
  lease: ExportLease,
  publication: Publication,
): Promise<void> {
  const settled = await tx
    .insertInto('publications')
    .values({ ...publicationRow(lease, publication), state: 'done' })
    .onConflict((conflict) =>
      conflict
        .column('publication_id')
        .doUpdateSet({ state: 'done' })
        .where('publications.state', '=', 'intent'),
    )
    .returning('publication_id')
    .executeTakeFirst();
  // Done already: the answer to an earlier COMMIT was lost.
  if (settled === undefined) return;
  await forgetOlder(tx, lease, publication);
  const superseded = await supersede(tx, publication.supersedes, publication.runId);
  for (const row of publication.closes) await closeAsItStands(tx, publication, row);
  const segmentIds = new Map<string, bigint>();
  const manifests = publication.segments.map(({ manifest }) => manifest);
  const isOurs = ({ assetId }: Manifest): boolean => assetId === (lease.scope.assetId ?? null);
  const ours = manifests.filter((manifest) => isOurs(manifest));
  const others = manifests.filter((manifest) => !isOurs(manifest));
  // What is left of another scope's segment came with this publication, and is not counted as published by its run.
  let replacedRows = others.reduce((sum, { rows }) => sum - rows, superseded);
  for (const manifest of [...ours, ...others]) {
    segmentIds.set(manifest.objectKey, await insertSegment(tx, manifest, replacedRows));
    replacedRows = 0n;
  }
  const ranges = publication.coverage.map((range) => {
    const segmentId = range.objectKey ? segmentIds.get(range.objectKey) : undefined;
    return coverageRow(lease.scope.partyId, publication, range, segmentId);
  });
  await insertCoverage(tx, ranges);
  if (publication.lastEntryAt === undefined) return;
  await tx
    .updateTable('exports')
    .set({ last_entry_at: formatInstant(publication.lastEntryAt) })
    .where('export_id', '=', lease.exportId)
    .execute();
}

/** How an export ended. */
export interface Success {
  readonly lease: ExportLease;
  /** In how many runs in a row the source contradicted what is known. */
  readonly contradictions: number;
  /** Nothing is left to ask: the plan goes. */
  readonly isDone: boolean;
  /** To be written with it; absent where it is committed, or nothing was left to ask. */
  readonly publication?: Publication | undefined;
}

/** Everything of many exports without rows, and their leases are given back. Called with all of them fenced. */
export async function commitEmpty(tx: Database, exports: readonly Success[]): Promise<void> {
  await supersede(
    tx,
    exports.flatMap(({ publication }) => publication?.supersedes ?? []),
  );
  const ranges = exports.flatMap(
    ({ lease, publication }) =>
      publication?.coverage.map((range) => coverageRow(lease.scope.partyId, publication, range)) ?? [],
  );
  await insertCoverage(tx, ranges);
  await recordSuccess(tx, exports);
  await releaseLeases(
    tx,
    exports.map(({ lease }) => lease),
  );
}

export async function recordSuccess(tx: Database, exports: readonly Success[]): Promise<void> {
  const given = exports.map(({ lease, publication, contradictions, isDone }) => ({
    export_id: String(lease.exportId),
    last_entry_at: publication?.lastEntryAt === undefined ? null : formatInstant(publication.lastEntryAt),
    contradictions,
    is_done: isDone,
  }));
  await sql`
    update mirror.exports e
    set last_entry_at = coalesce(g.last_entry_at, e.last_entry_at),
      attempts = 0, quarantined_at = null, quarantine_reason = null,
      window_plan = case when g.is_done then null else e.window_plan end,
      contradictions = g.contradictions, last_asked_at = clock_timestamp()
    from jsonb_to_recordset(${JSON.stringify(given)}::jsonb) as g(export_id bigint, last_entry_at timestamptz,
      contradictions int, is_done boolean)
    where e.export_id = g.export_id`.execute(tx);
}

/** One settled publication of a scope is kept, for a COMMIT whose answer was lost. */
async function forgetOlder(tx: Database, lease: ExportLease, publication: Publication): Promise<void> {
  await tx
    .deleteFrom('publications')
    .where('export_id', '=', lease.exportId)
    .where('state', '<>', 'intent')
    .where('publication_id', '<>', publication.publicationId)
    .execute();
}

/** A segment of which everything came again, and nothing else: its object and its rows stay. */
async function closeAsItStands(
  tx: Database,
  { runId, epoch }: Publication,
  { coverageId, tail }: Publication['closes'][number],
): Promise<void> {
  const closed = await tx
    .updateTable('coverage')
    .set({
      open: false,
      ...(tail === undefined ? {} : { tail: JSON.stringify(tailSum.encode(tail)) }),
      epoch: epoch ?? null,
      run_id: runId,
      checked_at: sql`clock_timestamp()`,
    })
    .where('coverage_id', '=', coverageId)
    .returning('segment_id')
    .executeTakeFirst();
  if (closed === undefined) throw coverageChanged();
  await tx.updateTable('segments').set({ open: false }).where('segment_id', '=', closed.segment_id).execute();
}

/** The same object may come back: what was superseded by it, or before, is current again. */
async function insertSegment(tx: Database, manifest: Manifest, replacedRows: bigint): Promise<bigint> {
  const evidence = { leftOut: manifestJson(manifest).leftOut, seq: String(manifest.seq) };
  const row = {
    ...segmentColumns(manifest),
    evidence: JSON.stringify({ ...evidence, replacedRows: String(replacedRows) }),
  };
  // loaded_at stays: it says whether its rows are in the warehouse, and only a load moves rows.
  const revived = {
    status: 'current' as const,
    superseded_at: null,
    removed_at: null,
    quarantine_reason: null,
    open: row.open,
    run_id: row.run_id,
    evidence: sql<string>`segments.evidence || jsonb_build_object('replacedRows', ${String(replacedRows)}::text)`,
  };
  const inserted = await guardOverlap(() =>
    tx
      .insertInto('segments')
      .values(row)
      .onConflict((conflict) => conflict.column('object_key').doUpdateSet(revived))
      .returning('segment_id')
      .executeTakeFirstOrThrow(),
  );
  return inserted.segment_id;
}
