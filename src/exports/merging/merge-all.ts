/**
 * Merges closed segments in a nightly run, ledger by ledger, until the run has reached
 * its write limit. The source is not involved: one new object replaces several
 * segments, and its digest must be the sum of theirs.
 */
import { randomUUID } from 'node:crypto';
import {
  errorCode,
  errorLine,
  PermanentError,
  UnreachableError,
} from '../../errors/errors.ts';
import type { Log } from '../../logging/log.ts';
import { isLossOfStore, lossOfStore } from '../../catalog/missing-objects.ts';
import { monthStart } from '../../time/time.ts';
import { RowDigest } from '../../ledger/digest.ts';
import type { Layout } from '../../ledger/header.ts';
import { readManifest } from '../../ledger/manifest.ts';
import { manifestKey } from '../../ledger/object-keys.ts';
import { earlier } from '../../ledger/ranges.ts';
import type { ExportScope } from '../../ledger/export-scope.ts';
import {
  type ManifestFacts,
  nameObjects,
  type NewRange,
  NONE_LEFT_OUT,
  publish,
  publishContext,
  recover,
} from '../publishing/publisher.ts';
import type { PublishContext, PublishDeps } from '../export-context.ts';
import {
  copyStoredRows,
  type MissingObject,
  type StoredRowsContext,
} from '../publishing/stored-rows.ts';
import { RangeSpool, type Spooled } from '../download/range-spool.ts';
import type { Coverage } from '../../catalog/coverage-rows.ts';
import type { ExportArchiveStore } from '../store/export-archive.ts';
import { hasRows, type MergeLimits, planMerges } from './plan-merges.ts';

/**
 * Maximum size of the plain CSV that one run writes, in bytes. Writing that much takes
 * minutes, and reloading it takes minutes more.
 */
const NIGHT_BYTES_MAX = 4n * 2n ** 30n;
const NIGHT_LEDGERS_MAX = 5_000;

export interface MergeAllDeps extends PublishDeps {
  readonly runId: string;
  readonly archive: Pick<ExportArchiveStore, 'closedTo' | 'mergeable'>;
  readonly log: Log;
  /** `EXPORT_SEGMENT_MAX`: maximum size of a merged segment in bytes of plain CSV. */
  readonly segmentBytesMax: number;
  /** Maximum number of bytes of plain CSV that this run writes; 4 GiB by default. */
  readonly nightBytesMax?: bigint | undefined;
}

/** The results of one run's merges. */
export interface MergeReport {
  /** The number of ledgers that were processed. */
  ledgers: number;
  /** The number of segments that were replaced. */
  segments: number;
  /** The number of merged segments that replaced them. */
  into: number;
  rows: bigint;
  /** Size of the plain CSV that was written, in bytes. */
  bytes: bigint;
  /**
   * The number of ledgers left for the next night, because another worker had leased
   * them or this run had reached its write limit.
   */
  left: number;
  failed: number;
}

/**
 * Merges all segments that can be merged. If a ledger fails, its segments are left
 * unchanged, and the other ledgers are still merged.
 * @throws UnreachableError if a service cannot be reached
 */
export async function mergeAll(
  deps: MergeAllDeps,
  signal: AbortSignal,
): Promise<MergeReport> {
  const { archive, log, nightBytesMax = NIGHT_BYTES_MAX } = deps;
  const report: MergeReport = {
    ledgers: 0,
    segments: 0,
    into: 0,
    rows: 0n,
    bytes: 0n,
    left: 0,
    failed: 0,
  };
  const closedTo = await archive.closedTo();
  if (closedTo === undefined) return report;
  const bytesMax = BigInt(deps.segmentBytesMax);
  const limits: MergeLimits = { before: monthStart(closedTo), bytesMax };
  const merging: Merging = { limits, report, missing: [] };

  for (const scope of await archive.mergeable(limits, NIGHT_LEDGERS_MAX)) {
    signal.throwIfAborted();
    if (report.bytes >= nightBytesMax) {
      report.left += 1;
      continue;
    }
    try {
      const isMerged = await mergeLedger(scope, merging, deps, signal);
      report[isMerged ? 'ledgers' : 'left'] += 1;
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof UnreachableError) throw error;
      report.failed += 1;
      const reason = { code: errorCode(error), reason: errorLine(error) };
      log.warn(
        { partyId: scope.partyId, ...reason },
        'Segments could not be merged',
      );
    }
  }
  await settleMissing(merging, deps);
  return report;
}

/** One run of merges: its limits and its results. */
interface Merging {
  readonly limits: MergeLimits;
  readonly report: MergeReport;
  readonly missing: MissingObject[];
}

/**
 * Quarantines the segments whose objects are missing, unless so many are missing that
 * the store itself seems to be lost.
 */
async function settleMissing(
  { missing, report }: Merging,
  { repository, objects, log }: MergeAllDeps,
): Promise<void> {
  const read = report.segments + missing.length;
  if (isLossOfStore(missing.length, read)) {
    const { code, message } = lossOfStore(objects.url, missing.length, read);
    log.warn({ code, reason: message }, 'Segments could not be merged');
    return;
  }
  for (const { objectKey, reason } of missing) {
    await repository.quarantineSegment(objectKey, reason);
  }
}

type MergeContext = PublishContext & Pick<StoredRowsContext, 'noteMissing'>;

/**
 * Merges the segments of one ledger, and adds the result to the report.
 * @returns false if another worker has leased the ledger
 */
async function mergeLedger(
  scope: ExportScope,
  { limits, report, missing }: Merging,
  deps: MergeAllDeps,
  signal: AbortSignal,
): Promise<boolean> {
  const { repository, runId } = deps;
  const lease = await repository.acquire(scope);
  if (lease === undefined) return false;
  const what = `the segments of party ${scope.partyId}`;
  await using kept = repository.holdLease(lease, what);
  const context = {
    ...publishContext(lease, kept, deps, signal),
    noteMissing: (object: MissingObject) => void missing.push(object),
  };
  await recover(context);

  const coverage = await repository.coverage(scope);
  const own = coverage.filter(({ assetId }) => assetId === scope.assetId);
  for (const group of planMerges(own, limits)) {
    const merged = await mergeGroup(group, context, runId);
    if (merged === undefined) continue;
    report.segments += group.filter(hasRows).length;
    report.into += 1;
    report.rows += BigInt(merged.rows);
    report.bytes += merged.bytes;
  }
  return true;
}

/**
 * Merges one group of segments.
 * @returns the merged segment; undefined if an object no longer has its published
 *   content. Nothing is merged then, and the object's range is requested again
 */
async function mergeGroup(
  group: readonly Coverage[],
  context: MergeContext,
  runId: string,
): Promise<Spooled | undefined> {
  const { lease, repository, objects, compression, signal } = context;
  await using spool = new RangeSpool(-Infinity, Infinity, context);
  const layout = await copyGroup(group, spool, context);
  const spooled = await spool.finish();
  const first = group[0];
  const last = group.at(-1);
  const lastSegment = group.findLast(hasRows);
  if (!spooled || !layout || !first || !last || !lastSegment) return undefined;
  await context.failpoint('spooled');
  checkSums(group, spooled);

  const newest = await readManifest(
    objects,
    manifestKey(lastSegment.objectKey),
    signal,
  );
  const { epoch } = last;
  const facts: ManifestFacts = {
    partyId: lease.scope.partyId,
    compression,
    source: newest.source,
    runId,
    epoch,
    release: newest.release,
  };
  const checkedAts = group.flatMap(({ checkedAt }) => checkedAt ?? []);
  const range: NewRange = {
    assetId: last.assetId ?? null,
    from: first.from,
    to: last.to,
    open: false,
    sides: layout.sides,
    tail: last.tail,
    checkedAt: checkedAts.reduce(earlier, checkedAts[0] ?? 0n),
    written: { leftOut: NONE_LEFT_OUT, spooled, layout },
  };
  const named = await nameObjects([range], facts, repository);
  const supersedes = group.map(({ coverageId }) => coverageId);
  const publicationId = randomUUID();
  await publish(
    { publicationId, runId, ...named, supersedes, closes: [], epoch },
    context,
  );
  return spooled;
}

/**
 * Copies the rows of all segments into the spool.
 * @returns the first segment's layout; undefined if an object no longer has its
 *   published content
 */
async function copyGroup(
  group: readonly Coverage[],
  spool: RangeSpool,
  context: MergeContext,
): Promise<Layout | undefined> {
  let first: Layout | undefined;
  try {
    for (const row of group.filter(hasRows)) {
      const layout = await copyStoredRows(row, [spool], 'merge', context);
      first ??= layout;
    }
    return first;
  } catch (error) {
    if (errorCode(error) === 'SEGMENT_UNREADABLE') return undefined;
    throw error;
  }
}

/**
 * Checks that the written object has exactly the rows of the group.
 * @throws PermanentError `SUMS_DIFFER` if it does not
 */
function checkSums(group: readonly Coverage[], spooled: Spooled): void {
  const sum = new RowDigest();
  for (const { content, rows } of group)
    if (content !== undefined)
      sum.merge(RowDigest.fromHex(content.digest, Number(rows)));
  const rowForms = new Set(
    group.flatMap(({ content }) => content?.rowForm ?? []),
  );
  const isSame =
    sum.rows === spooled.rows &&
    sum.hex() === spooled.digest &&
    rowForms.has(spooled.rowForm);
  if (isSame) return;
  throw new PermanentError(
    `Cannot merge segments: ${spooled.rows} rows were written where ${sum.rows} ` +
      'were expected, or other rows; ' +
      'nothing was published; this is a bug, report it',
    {
      code: 'SUMS_DIFFER',
      meta: { keys: group.flatMap(({ objectKey }) => objectKey ?? []) },
    },
  );
}
