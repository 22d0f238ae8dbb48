/** Publications as Postgres keeps them: the plan as JSON, and the one transaction that makes it true. */
import { sql } from 'kysely';
import { z } from 'zod';
import { errorCode, RetryableError } from '../../core/errors.ts';
import { formatInstant, readInstant } from '../../core/time.ts';
import type { Coverage, ExportScope, NewCoverage, Publication, TailSum, ExportLease } from '../ports.ts';
import { tailSum } from '../../ledger/objects/coverage-record.ts';
import { instant } from '../../ledger/json-values.ts';
import { decodeManifest, type Manifest, manifestJson } from '../../ledger/objects/manifest.ts';
import type { Database } from '../../postgres/database.ts';
import { segmentColumns } from './segment-row.ts';

const bigId = z.codec(z.string(), z.bigint(), { decode: BigInt, encode: String });
const plan = z.object({
  publicationId: z.uuid(),
  runId: z.uuid(),
  segments: z.array(z.object({ spoolName: z.string(), manifest: z.unknown() })),
  coverage: z.array(
    z.object({
      from: instant,
      to: instant,
      open: z.boolean(),
      sides: z.enum(['from', 'both', 'unknown']),
      ofAsset: z.string().nullable().optional(),
      objectKey: z.string().optional(),
      tail: tailSum.optional(),
      checkedAt: instant.optional(),
    }),
  ),
  supersedes: z.array(bigId),
  closes: z.array(z.object({ coverageId: bigId, tail: tailSum.optional() })).default([]),
  epoch: z.int().optional(),
  lastEntryAt: instant.optional(),
});

function encodePublication(publication: Publication): Record<string, unknown> {
  const { lastEntryAt } = publication;
  return z.encode(plan, {
    publicationId: publication.publicationId,
    runId: publication.runId,
    segments: publication.segments.map(({ spoolName, manifest }) => ({
      spoolName,
      manifest: manifestJson(manifest),
    })),
    coverage: publication.coverage.map((range) => ({ ...range })),
    supersedes: [...publication.supersedes],
    closes: publication.closes.map((row) => ({ ...row })),
    epoch: publication.epoch,
    lastEntryAt,
  });
}

/** @returns undefined where the stored JSON cannot be read: another version wrote it, or it is of no time there is */
export function decodePublication(json: unknown): Publication | undefined {
  const decoded = plan.safeParse(json).data;
  if (decoded === undefined) return undefined;
  try {
    return publicationOf(decoded);
  } catch (error) {
    if (errorCode(error) === 'MANIFEST_INVALID') return undefined;
    throw error;
  }
}

function publicationOf(decoded: z.output<typeof plan>): Publication {
  return {
    ...decoded,
    segments: decoded.segments.map(({ spoolName, manifest }) => ({
      spoolName,
      manifest: decodeManifest(manifest, `of publication ${decoded.publicationId}`),
    })),
  };
}

/** This lineage of the warehouse, and how far its publications have been numbered. */
export async function readIdentity(db: Database): Promise<{ warehouseId: string; publicationSeq: bigint }> {
  const row = await db
    .selectFrom('identity')
    .select(['warehouse_id', 'publication_seq'])
    .executeTakeFirstOrThrow();
  return { warehouseId: row.warehouse_id, publicationSeq: row.publication_seq };
}

/** Known ranges of the party whose assets overlap the unit's, by time. */
export async function readCoverage(db: Database, scope: ExportScope): Promise<readonly Coverage[]> {
  let query = coverageQuery(db).where('coverage.party_id', '=', scope.partyId);
  const { assetId } = scope;
  if (assetId !== undefined) {
    query = query.where((eb) =>
      eb.or([eb('coverage.asset_id', 'is', null), eb('coverage.asset_id', '=', assetId)]),
    );
  }
  return (await query.execute()).map(coverageOf);
}

/** Known ranges of parties, in every asset, by time; parties of which nothing is known are left out. */
export async function readCoverages(
  db: Database,
  partyIds: readonly string[],
): Promise<ReadonlyMap<string, readonly Coverage[]>> {
  const rows = await coverageQuery(db)
    .where(sql<boolean>`coverage.party_id = any(${[...partyIds]}::text[])`)
    .execute();
  const byParty = Map.groupBy(rows, (row) => row.party_id);
  return new Map([...byParty].map(([partyId, ranges]) => [partyId, ranges.map(coverageOf)]));
}

// The row's type is the query's own.
function coverageQuery(db: Database) {
  return db
    .selectFrom('coverage')
    .leftJoin('segments', 'segments.segment_id', 'coverage.segment_id')
    .select([
      'coverage.party_id',
      'coverage.coverage_id',
      'coverage.asset_id',
      'coverage.from_time',
      'coverage.to_time',
      'coverage.open',
      'coverage.sides',
      'coverage.tail',
      'coverage.run_id',
      'coverage.epoch',
      'coverage.checked_at',
      'segments.quarantine_reason',
      'segments.loaded_at',
      'segments.object_key',
      'segments.rows',
      'segments.bytes',
      'segments.digest',
      'segments.row_form',
    ])
    .orderBy('coverage.from_time');
}

function coverageOf(row: Awaited<ReturnType<ReturnType<typeof coverageQuery>['execute']>>[number]): Coverage {
  return {
    coverageId: row.coverage_id,
    assetId: row.asset_id ?? undefined,
    from: readInstant(row.from_time),
    to: readInstant(row.to_time),
    open: row.open,
    sides: row.sides,
    objectKey: row.object_key ?? undefined,
    rows: row.rows ?? 0n,
    tail: row.tail === null ? undefined : tailSum.parse(row.tail),
    runId: row.run_id ?? undefined,
    epoch: row.epoch ?? undefined,
    checkedAt: readInstant(row.checked_at),
    isFaulty: row.quarantine_reason !== null,
    isLoaded: row.loaded_at !== null,
    content:
      row.bytes === null || row.digest === null || row.row_form === null
        ? undefined
        : { bytes: row.bytes, digest: row.digest, rowForm: row.row_form },
  };
}

/**
 * Everything of a publication at once: old coverage and its segments go, the new ones come. Called with
 * the unit's row locked and its token checked.
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
  await supersede(tx, publication.supersedes);
  for (const row of publication.closes) await closeAsItStands(tx, publication, row);
  const segmentIds = new Map<string, bigint>();
  for (const { manifest } of publication.segments) {
    segmentIds.set(manifest.objectKey, await insertSegment(tx, manifest));
  }
  const ranges = publication.coverage.map((range) => {
    const segmentId = range.objectKey === undefined ? undefined : segmentIds.get(range.objectKey);
    return coverageRow(lease.scope, publication, range, segmentId);
  });
  await insertCoverage(tx, ranges);
  await tx
    .updateTable('exports')
    .set((eb) => ({
      coverage_seq: eb('coverage_seq', '+', 1n),
      ...(publication.lastEntryAt === undefined
        ? {}
        : { last_entry_at: formatInstant(publication.lastEntryAt) }),
    }))
    .where('export_id', '=', lease.exportId)
    .execute();
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
    plan: JSON.stringify(encodePublication(publication)),
  };
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

export async function supersede(tx: Database, coverageIds: readonly bigint[]): Promise<void> {
  if (coverageIds.length === 0) return;
  const removed = await tx
    .deleteFrom('coverage')
    .where('coverage_id', 'in', coverageIds)
    .returning('segment_id')
    .execute();
  if (removed.length !== coverageIds.length) throw changed();
  const segmentIds = removed.flatMap((row) => (row.segment_id === null ? [] : [row.segment_id]));
  if (segmentIds.length === 0) return;
  await tx
    .updateTable('segments')
    .set({ status: 'superseded', superseded_at: sql`clock_timestamp()` })
    .where('segment_id', 'in', segmentIds)
    .execute();
}

/** A segment of which everything came again, and nothing else: its object and its rows stay. */
async function closeAsItStands(
  tx: Database,
  { runId, epoch }: Publication,
  { coverageId, tail: sum }: Publication['closes'][number],
): Promise<void> {
  const closed = await tx
    .updateTable('coverage')
    .set({
      open: false,
      ...(sum === undefined ? {} : { tail: JSON.stringify(encodeTail(sum)) }),
      epoch: epoch ?? null,
      run_id: runId,
      checked_at: sql`clock_timestamp()`,
    })
    .where('coverage_id', '=', coverageId)
    .returning('segment_id')
    .executeTakeFirst();
  if (closed === undefined) throw changed();
  await tx.updateTable('segments').set({ open: false }).where('segment_id', '=', closed.segment_id).execute();
}

/** The same object may come back: what was superseded by it, or before, is current again. */
async function insertSegment(tx: Database, manifest: Manifest): Promise<bigint> {
  const row = {
    ...segmentColumns(manifest),
    evidence: JSON.stringify({ leftOut: manifestJson(manifest).leftOut, seq: String(manifest.seq) }),
  };
  // loaded_at stays: it says whether its rows are in the warehouse, and only a load moves rows.
  const revived = {
    status: 'current' as const,
    superseded_at: null,
    removed_at: null,
    quarantine_reason: null,
    open: row.open,
    run_id: row.run_id,
  };
  const inserted = await guardConstraint(() =>
    tx
      .insertInto('segments')
      .values(row)
      .onConflict((conflict) => conflict.column('object_key').doUpdateSet(revived))
      .returning('segment_id')
      .executeTakeFirstOrThrow(),
  );
  return inserted.segment_id;
}

/** The row of a range that becomes known. @param segmentId of the object that holds its entries, where it has any */
export function coverageRow(
  { partyId, assetId }: ExportScope,
  { runId, epoch }: Publication,
  range: NewCoverage,
  segmentId?: bigint,
): object {
  return {
    party_id: partyId,
    asset_id: range.ofAsset === undefined ? (assetId ?? null) : range.ofAsset,
    epoch: epoch ?? null,
    from_time: formatInstant(range.from),
    to_time: formatInstant(range.to),
    open: range.open,
    sides: range.sides,
    segment_id: segmentId === undefined ? null : String(segmentId),
    tail: range.tail === undefined ? null : encodeTail(range.tail),
    run_id: runId,
    checked_at: range.checkedAt === undefined ? null : formatInstant(range.checkedAt),
  };
}

export async function insertCoverage(tx: Database, rows: readonly object[]): Promise<void> {
  if (rows.length === 0) return;
  await guardConstraint(() =>
    sql`
      insert into mirror.coverage (party_id, asset_id, epoch, from_time, to_time, open, sides, segment_id, tail, run_id,
        checked_at)
      select party_id, asset_id, epoch, from_time, to_time, open, sides, segment_id, tail, run_id,
        coalesce(checked_at, clock_timestamp())
      from jsonb_to_recordset(${JSON.stringify(rows)}::jsonb) as t(party_id text, asset_id text, epoch int,
        from_time timestamptz, to_time timestamptz, open boolean, sides text, segment_id bigint, tail jsonb,
        run_id uuid, checked_at timestamptz)`.execute(tx),
  );
}

function encodeTail(sum: TailSum): Record<string, unknown> {
  return z.encode(tailSum, { ...sum });
}

const EXCLUSION_VIOLATION = '23P01';

/** The constraint is what makes double coverage impossible; meeting it means that the plan is outdated. */
async function guardConstraint<Result>(work: () => Promise<Result>): Promise<Result> {
  try {
    return await work();
  } catch (error) {
    const isOverlap = error instanceof Error && 'code' in error && error.code === EXCLUSION_VIOLATION;
    throw isOverlap ? changed(error) : error;
  }
}

function changed(cause?: unknown): RetryableError {
  return new RetryableError(
    'Cannot publish: the coverage of the ledger has changed since it was planned on; it is planned again',
    { code: 'COVERAGE_CHANGED', ...(cause === undefined ? {} : { cause }) },
  );
}
