/**
 * Merges closed segments of one ledger, without the source: their rows become one object, whose digest must be the sum
 * of theirs, and which is published as an answer would be, in the place of all of them.
 */
import { randomUUID } from 'node:crypto';
import { errorCode, PermanentError } from '../../core/errors.ts';
import { RowDigest } from '../../ledger/digest.ts';
import type { Layout } from '../../ledger/header.ts';
import { readManifest } from '../../ledger/objects/manifest.ts';
import { manifestKey } from '../../ledger/objects/object-keys.ts';
import type { ExportScope } from '../ports.ts';
import { nameObjects, NONE_LEFT_OUT, type Written } from '../publish/new-range.ts';
import {
  publish,
  type PublishContext,
  publishContext,
  type PublishDeps,
  recover,
} from '../publish/publish.ts';
import { copyStoredRows } from '../publish/stored-rows.ts';
import { RangeSpool, type Spooled } from '../spool/range-spool.ts';
import type { Coverage } from '../store/coverage-rows.ts';
import type { Publication } from '../store/publications.ts';
import { hasRows, type MergeLimits, planMerges } from './plan-merges.ts';

export interface MergeDeps extends PublishDeps {
  readonly runId: string;
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
  const context = publishContext(lease, held, deps, stop);
  await recover(context);
  const coverage = await deps.repository.coverage(scope);
  const own = coverage.filter(({ assetId }) => assetId === scope.assetId);
  for (const group of planMerges(own, limits)) {
    const done = await mergeOne(group, context, deps.runId);
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
  group: readonly Coverage[],
  context: PublishContext,
  runId: string,
): Promise<Spooled | undefined> {
  await using spool = new RangeSpool(-Infinity, Infinity, context);
  let layout: Layout | undefined;
  for (const row of group) {
    const { objectKey } = row;
    if (objectKey === undefined) continue;
    try {
      const found = await copyStoredRows({ ...row, objectKey }, [spool], 'merge', context);
      layout ??= found;
    } catch (error) {
      if (errorCode(error) === 'SEGMENT_UNREADABLE') return undefined;
      throw error;
    }
  }
  const spooled = await spool.finish();
  if (spooled === undefined || layout === undefined) return undefined;
  await context.failpoint('spooled');
  checkSums(group, spooled);
  const written = { leftOut: NONE_LEFT_OUT, spooled, layout };
  await publish(await publicationOf(group, written, context, runId), context);
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
  group: readonly Coverage[],
  written: Written,
  { lease, repository, objects, compression, signal }: PublishContext,
  runId: string,
): Promise<Publication> {
  const last = group.findLast(hasRows);
  const [first, end] = [group[0], group.at(-1)];
  if (first === undefined || end === undefined || last?.objectKey === undefined)
    throw new RangeError('nothing to merge');
  const { source } = await readManifest(objects, manifestKey(last.objectKey), signal);
  const facts = { partyId: lease.scope.partyId, compression, source, runId };
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
    ...(await nameObjects([range], facts, repository)),
    supersedes: group.map(({ coverageId }) => coverageId),
    closes: [],
    epoch: end.epoch,
  };
}
