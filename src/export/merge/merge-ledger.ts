/**
 * Merges closed segments of one ledger, without the source: their rows become one object, whose digest must be the sum
 * of theirs, and which is published as an answer would be, in the place of all of them.
 */
import { randomUUID } from 'node:crypto';
import { errorCode, PermanentError } from '../../core/errors.ts';
import { RowDigest } from '../../ledger/digest.ts';
import type { Layout } from '../../ledger/header.ts';
import { readManifest } from '../../ledger/objects/manifest.ts';
import { type Compression, manifestKey } from '../../ledger/objects/object-keys.ts';
import type { ObjectStore } from '../../objects/object-store.ts';
import type { ExportScope } from '../ports.ts';
import { nameObjects, NONE_LEFT_OUT, type Written } from '../publish/new-range.ts';
import { publish, recover, spoolPrefix, type PublishDeps, type Step } from '../publish/publish.ts';
import { copyStoredRows } from '../publish/stored-rows.ts';
import { RangeSpool } from '../spool/range-spool.ts';
import type { Coverage } from '../store/coverage-rows.ts';
import type { ExportStore } from '../store/export-store.ts';
import type { ExportLease } from '../store/leases.ts';
import type { Publication } from '../store/publications.ts';
import type { Spooled } from '../spool/range-spool.ts';
import { hasRows, type MergeLimits, planMerges } from './plan-merges.ts';

export interface MergeDeps {
  readonly repository: ExportStore;
  readonly objects: ObjectStore;
  readonly compression: Compression;
  readonly runId: string;
  readonly failpoint?: ((step: Step) => Promise<void> | void) | undefined;
}

/** What was merged. */
export interface Merged {
  segments: number;
  into: number;
  rows: bigint;
  /** Of plain CSV. */
  bytes: bigint;
}

/** @param sum is added to. @returns false where another works on the ledger */
export async function mergeLedger(
  scope: ExportScope,
  deps: MergeDeps,
  limits: MergeLimits,
  sum: Merged,
  stop: AbortSignal,
): Promise<boolean> {
  const lease = await deps.repository.acquire(scope);
  if (lease === undefined) return false;
  await using held = deps.repository.keep(lease, `the segments of party ${scope.partyId}`);
  const publishing: PublishDeps = {
    repository: deps.repository,
    objects: deps.objects,
    failpoint: async (step) => {
      await deps.failpoint?.(step);
      held.check();
    },
  };
  const signal = AbortSignal.any([stop, held.signal]);
  await recover(lease, publishing, signal);
  const coverage = await deps.repository.coverage(scope);
  const own = coverage.filter(({ assetId }) => assetId === scope.assetId);
  for (const group of planMerges(own, limits)) {
    const done = await mergeOne(lease, group, deps, publishing, signal);
    if (done === undefined) continue;
    sum.segments += group.filter(hasRows).length;
    sum.into += 1;
    sum.rows += BigInt(done.rows);
    sum.bytes += done.bytes;
  }
  return true;
}

/** @returns undefined where an object does not hold what was published: its range is asked for again, and nothing merged */
async function mergeOne(
  lease: ExportLease,
  group: readonly Coverage[],
  deps: MergeDeps,
  publishing: PublishDeps,
  signal: AbortSignal,
): Promise<Spooled | undefined> {
  const { objects } = deps;
  const name = `${spoolPrefix(lease)}${lease.token}.${randomUUID().slice(0, 8)}.csv`;
  const spoolFile = async () => ({ name, path: await objects.spoolPath(name) });
  const { compression } = deps;
  await using spool = new RangeSpool(-Infinity, Infinity, { compression, spoolFile });
  let layout: Layout | undefined;
  for (const row of group) {
    const { objectKey } = row;
    if (objectKey === undefined) continue;
    try {
      const found = await copyStoredRows({ ...row, objectKey }, [spool], 'merge', deps, signal);
      layout ??= found;
    } catch (error) {
      if (errorCode(error) === 'SEGMENT_UNREADABLE') return undefined;
      throw error;
    }
  }
  const spooled = await spool.finish();
  if (spooled === undefined || layout === undefined) return undefined;
  await publishing.failpoint('spooled');
  checkSums(group, spooled);
  const publication = await publicationOf(
    lease.scope,
    group,
    { leftOut: NONE_LEFT_OUT, spooled, layout },
    deps,
    signal,
  );
  await publish(lease, publication, publishing, signal);
  return spooled;
}

/** @throws PermanentError `SUMS_DIFFER` where the object that was written is not all of theirs */
function checkSums(group: readonly Coverage[], spooled: Spooled): void {
  const sum = new RowDigest();
  for (const { content, rows } of group)
    if (content !== undefined) sum.merge(RowDigest.fromHex(content.digest, Number(rows)));
  const forms = new Set(group.flatMap(({ content }) => content?.rowForm ?? []));
  const isSame = sum.rows === spooled.rows && sum.hex() === spooled.digest && forms.has(spooled.rowForm);
  if (isSame) return;
  throw new PermanentError(
    `Cannot merge segments: ${spooled.rows} rows were written of ${sum.rows}, or other ones; nothing was published, report this`,
    { code: 'SUMS_DIFFER', meta: { keys: group.flatMap(({ objectKey }) => objectKey ?? []) } },
  );
}

async function publicationOf(
  { partyId }: ExportScope,
  group: readonly Coverage[],
  written: Written,
  { repository, objects, compression, runId }: MergeDeps,
  signal: AbortSignal,
): Promise<Publication> {
  const last = group.findLast(hasRows);
  const [first, end] = [group[0], group.at(-1)];
  if (first === undefined || end === undefined || last?.objectKey === undefined)
    throw new RangeError('nothing to merge');
  const { source } = await readManifest(objects, manifestKey(last.objectKey), signal);
  const checkedAts = group.flatMap(({ checkedAt }) => checkedAt ?? []);
  const range = {
    assetId: end.assetId ?? null,
    from: first.from,
    to: end.to,
    open: false,
    sides: written.layout.sides,
    tail: end.tail,
    checkedAt: checkedAts.reduce((least, at) => (at < least ? at : least), checkedAts[0] ?? 0n),
    written,
  };
  return {
    publicationId: randomUUID(),
    runId,
    ...(await nameObjects([range], { partyId, compression, source, runId }, repository)),
    supersedes: group.map(({ coverageId }) => coverageId),
    closes: [],
    epoch: end.epoch,
  };
}
