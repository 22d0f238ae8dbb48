/**
 * Stores publications in Postgres: the plan as JSON, and the single transaction that
 * makes it visible.
 */
import { z } from 'zod';
import { formatInstant } from '../time/time.ts';
import { instant } from '../ledger/json-fields.ts';
import { manifestJson, manifestSchema } from '../ledger/manifest.ts';
import { tailSum } from '../ledger/tail-sum.ts';
import { builder } from '../postgres/builder.ts';
import type { Database } from '../postgres/database.ts';
import { execute, readRows } from '../postgres/run-statement.ts';
import { statement } from '../postgres/statement.ts';
import {
  type Coverage,
  coverageChanged,
  coverageRow,
  guardOverlap,
  insertCoverage,
  newCoverage,
  supersede,
} from './coverage-rows.ts';
import type { ExportLease } from './leases.ts';
import { insertSegments, segmentRow } from './segment-rows.ts';

const bigId = z.codec(z.string(), z.bigint(), {
  decode: BigInt,
  encode: String,
});

/**
 * Everything that becomes visible in one COMMIT. It is stored before the first object is
 * written, so that a publication found after a crash can be finished without the source.
 */
const plan = z.object({
  publicationId: z.uuid(),
  runId: z.uuid(),
  segments: z.array(
    z.object({ spoolName: z.string(), manifest: manifestSchema }),
  ),
  coverage: z.array(newCoverage),
  /**
   * Ids of the covered ranges that the new ranges replace, together with their segments.
   */
  supersedes: z.array(bigId),
  /**
   * Open ranges whose rows were received again and found unchanged. They become closed
   * and keep their segments.
   */
  closes: z
    .array(z.object({ coverageId: bigId, tail: tailSum.optional() }))
    .default([]),
  /** The epoch of the source's chain; absent if no checkpoint is known. */
  epoch: z.int().optional(),
  /** The time of the newest entry received, to the second. */
  lastEntryAt: instant.optional(),
});
export type Publication = Readonly<z.output<typeof plan>>;

/**
 * Decodes a stored plan.
 * @returns undefined if the plan cannot be parsed, because a different version wrote it
 *   or an instant in it is invalid
 */
export function decodePublication(json: unknown): Publication | undefined {
  return plan.safeParse(json).data;
}

/**
 * Records that a publication is intended or done. A publication without objects is
 * recorded as done immediately, without being recorded as intended first.
 * @returns false if this was already recorded, for example by a COMMIT whose response was
 *   lost
 */
export async function recordPublication(
  tx: Database,
  { exportId, token }: ExportLease,
  publication: Publication,
  state: 'intent' | 'done',
): Promise<boolean> {
  const record = statement()`
    insert into mirror.publications as recorded
      (publication_id, export_id, lease_token, plan, state)
    values (${publication.publicationId}, ${exportId}, ${token},
      ${JSON.stringify(plan.encode(publication))}, ${state})
    on conflict (publication_id) do update set state = 'done'
      where recorded.state = 'intent' and excluded.state = 'done'`;
  return (await execute(tx, 'record a publication', record)) > 0n;
}

/**
 * Makes a publication visible atomically: removes the old coverage, supersedes its
 * segments, and records the new coverage and segments. The caller must have locked the
 * export's row and checked its lease token in the same transaction.
 */
export async function commitPublication(
  tx: Database,
  lease: ExportLease,
  publication: Publication,
): Promise<void> {
  if (!(await recordPublication(tx, lease, publication, 'done'))) return;
  // Keep this publication's own record. If the response to the COMMIT is lost, the record
  // shows that it is done.
  const settled = builder
    .deleteFrom('mirror.publications')
    .where('export_id', '=', lease.exportId)
    .where('state', '<>', 'intent')
    .where('publication_id', '<>', publication.publicationId);
  await execute(tx, 'forget settled publications', settled);
  const superseded = await supersede(
    tx,
    publication.supersedes,
    publication.runId,
  );
  for (const row of publication.closes)
    await closeAsItStands(tx, publication, row);
  const manifests = publication.segments.map(({ manifest }) => manifest);
  const { partyId, assetId = null } = lease.scope;
  const ours = manifests.filter((manifest) => manifest.assetId === assetId);
  const others = manifests.filter((manifest) => manifest.assetId !== assetId);
  // A segment of a different asset is the remainder of a segment that this publication
  // cut. Its rows are unchanged, so they do not count as replaced.
  const replacedRows = others.reduce((sum, { rows }) => sum - rows, superseded);
  const segments = [...ours, ...others].map((manifest, at) => {
    const { leftOut, seq } = manifestJson(manifest);
    return segmentRow(manifest, {
      leftOut,
      seq,
      replacedRows: `${at === 0 ? replacedRows : 0n}`,
    });
  });
  const segmentIds = await guardOverlap(() => insertSegments(tx, segments));
  const ranges = publication.coverage.map((range) => {
    const segmentId = range.objectKey
      ? segmentIds.get(range.objectKey)
      : undefined;
    return coverageRow(partyId, publication, range, segmentId);
  });
  await insertCoverage(tx, ranges);
  if (publication.lastEntryAt === undefined) return;
  const update = builder
    .updateTable('mirror.exports')
    .set({ last_entry_at: formatInstant(publication.lastEntryAt) })
    .where('export_id', '=', lease.exportId);
  await execute(tx, 'record the newest entry of a ledger', update);
}

/**
 * Whether a publication neither adds nor removes rows.
 * @param coverage the coverage that the plan of the publication is based on
 */
export function movesNoRows(
  planned: Publication,
  coverage: readonly Coverage[],
): boolean {
  const { segments, closes, supersedes } = planned;
  if (segments.length > 0 || closes.length > 0) return false;
  const withRows = coverage.filter(({ objectKey }) => objectKey !== undefined);
  return !withRows.some(({ coverageId }) => supersedes.includes(coverageId));
}

/** An export that succeeded. */
export interface Success {
  readonly lease: ExportLease;
  /** The number of consecutive runs in which the source contradicted known rows. */
  readonly contradictions: number;
  /**
   * True if nothing remains to be requested; the saved plan of windows is then deleted.
   */
  readonly isDone: boolean;
  /**
   * A publication without rows, to write in the same transaction; undefined if everything
   * is already committed, or if there was nothing to request.
   */
  readonly publication: Publication | undefined;
}

/**
 * Records that exports succeeded: writes the publications that move no rows, clears
 * failures, and deletes the window plan of each finished export. The caller must have
 * locked the exports' rows and checked their leases in the same transaction.
 */
export async function finishExports(
  tx: Database,
  exports: readonly Success[],
): Promise<void> {
  const gone = exports.flatMap(
    ({ publication }) => publication?.supersedes ?? [],
  );
  await supersede(tx, gone);
  const ranges = exports.flatMap(({ lease: { scope }, publication }) =>
    publication
      ? publication.coverage.map((range) =>
          coverageRow(scope.partyId, publication, range),
        )
      : [],
  );
  await insertCoverage(tx, ranges);
  const given = exports.map(
    ({ lease, publication, contradictions, isDone }) => ({
      export_id: String(lease.exportId),
      last_entry_at:
        publication?.lastEntryAt === undefined
          ? null
          : formatInstant(publication.lastEntryAt),
      contradictions,
      is_done: isDone,
    }),
  );
  const update = statement()`
    update mirror.exports e
    set last_entry_at = coalesce(g.last_entry_at, e.last_entry_at),
      attempts = 0, quarantined_at = null, quarantine_reason = null,
      window_plan = case when g.is_done then null else e.window_plan end,
      contradictions = g.contradictions, last_asked_at = clock_timestamp()
    from jsonb_to_recordset(${JSON.stringify(given)}::jsonb)
      as g(export_id bigint, last_entry_at timestamptz, contradictions int, is_done boolean)
    where e.export_id = g.export_id`;
  await execute(tx, 'finish exports', update);
}

/**
 * Closes an open segment whose rows came back unchanged; its object and its rows stay.
 * The object store's record of ranges notes the check, because the manifest stays as it
 * is. A rebuilt database therefore need not immediately repeat every audit of the lost
 * one.
 */
async function closeAsItStands(
  tx: Database,
  publication: Publication,
  row: Publication['closes'][number],
) {
  const { runId, epoch } = publication;
  const { coverageId, tail } = row;
  const tailJson =
    tail === undefined ? null : JSON.stringify(tailSum.encode(tail));
  const close = statement({ coverageId: 'bigint' })`
    with closed as (
      update mirror.coverage set open = false, epoch = ${epoch ?? null}, run_id = ${runId},
        checked_at = clock_timestamp(), tail = coalesce(${tailJson}::jsonb, tail),
        differs_from_manifest = true
      where coverage_id = ${coverageId} returning coverage_id, segment_id),
    segment as (
      update mirror.segments s set open = false from closed
      where s.segment_id = closed.segment_id)
    select coverage_id as "coverageId" from closed`;
  const closed = await readRows(tx, 'close an open segment', close);
  if (closed.length === 0) throw coverageChanged();
}
