/**
 * What a night merges: ledger by ledger, until it has written as much as a night may. Closed segments become one,
 * without the source: their rows become one object, whose digest must be the sum of theirs, and which is published as
 * an answer would be, in the place of all of them.
 */
import { randomUUID } from 'node:crypto';
import {
  errorCode,
  errorLine,
  PermanentError,
  UnreachableError,
} from '../../errors/errors.ts';
import type { Log } from '../../logging/log.ts';
import { monthStart } from '../../time/time.ts';
import { RowDigest } from '../../ledger/digest.ts';
import type { Layout } from '../../ledger/header.ts';
import { readManifest } from '../../ledger/manifest.ts';
import { manifestKey } from '../../ledger/object-keys.ts';
import { earlier } from '../../ledger/ranges.ts';
import type { ExportScope } from '../../ledger/export-scope.ts';
import {
  nameObjects,
  NONE_LEFT_OUT,
  publish,
  publishContext,
  recover,
} from '../publishing/publisher.ts';
import type { PublishContext, PublishDeps } from '../request.ts';
import { copyStoredRows } from '../publishing/stored-rows.ts';
import { RangeSpool, type Spooled } from '../download/range-spool.ts';
import type { Coverage } from '../../catalog/coverage-rows.ts';
import type { ExportArchiveStore } from '../store/export-archive.ts';
import { hasRows, planMerges } from './plan-merges.ts';

/** Of plain CSV: minutes to read and write, and as many to load again. */
const NIGHT_BYTES_MAX = 4n * 2n ** 30n;
const NIGHT_LEDGERS_MAX = 5_000;

export interface MergeAllDeps extends PublishDeps {
  readonly runId: string;
  readonly archive: Pick<ExportArchiveStore, 'closedTo' | 'mergeable'>;
  readonly log: Log;
  /** `EXPORT_SEGMENT_MAX`. */
  readonly segmentBytesMax: number;
  readonly nightBytesMax?: bigint | undefined;
}

function nothingMerged() {
  return {
    ledgers: 0,
    segments: 0,
    into: 0,
    rows: 0n,
    /** Of plain CSV. */
    bytes: 0n,
    /** Ledgers left to the next night: others worked on them, or this night had written enough. */
    left: 0,
    failed: 0,
  };
}

export type MergeReport = ReturnType<typeof nothingMerged>;

/** A ledger that cannot be merged does not stop the others, and stays as it is. @throws UnreachableError */
export async function mergeAll(
  deps: MergeAllDeps,
  signal: AbortSignal,
): Promise<MergeReport> {
  const {
    archive,
    log,
    repository,
    runId,
    segmentBytesMax,
    nightBytesMax = NIGHT_BYTES_MAX,
  } = deps;
  const report = nothingMerged();
  const closedTo = await archive.closedTo();
  if (closedTo === undefined) return report;
  const limits = { before: monthStart(closedTo), bytesMax: BigInt(segmentBytesMax) };

  /** @returns false where another works on the ledger */
  async function mergeLedger(scope: ExportScope) {
    const lease = await repository.acquire(scope);
    if (lease === undefined) return false;
    await using held = repository.holdLease(
      lease,
      `the segments of party ${scope.partyId}`,
    );
    const context = publishContext(lease, held, deps, signal);
    await recover(context);
    const own = (await repository.coverage(scope)).filter(
      ({ assetId }) => assetId === scope.assetId,
    );
    for (const group of planMerges(own, limits)) {
      const done = await mergeGroup(group, context, runId);
      if (done === undefined) continue;
      report.segments += group.filter(hasRows).length;
      report.into += 1;
      report.rows += BigInt(done.rows);
      report.bytes += done.bytes;
    }
    return true;
  }

  for (const scope of await archive.mergeable(limits, NIGHT_LEDGERS_MAX)) {
    signal.throwIfAborted();
    try {
      const isMerged = report.bytes < nightBytesMax && (await mergeLedger(scope));
      report[isMerged ? 'ledgers' : 'left'] += 1;
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof UnreachableError) throw error;
      report.failed += 1;
      const reason = { code: errorCode(error), reason: errorLine(error) };
      log.warn({ partyId: scope.partyId, ...reason }, 'Segments could not be merged');
    }
  }
  return report;
}

/** @returns undefined where an object does not hold what was published: its range is asked for again, and nothing merged */
async function mergeGroup(
  group: readonly Coverage[],
  context: PublishContext,
  runId: string,
) {
  const { lease, repository, objects, compression, signal } = context;
  await using spool = new RangeSpool(-Infinity, Infinity, context);
  const segments = group.filter(hasRows);
  const layouts: Layout[] = [];
  try {
    for (const row of segments)
      layouts.push(await copyStoredRows(row, [spool], 'merge', context));
  } catch (error) {
    if (errorCode(error) === 'SEGMENT_UNREADABLE') return undefined;
    throw error;
  }
  const spooled = await spool.finish();
  const layout = layouts[0];
  const first = group[0];
  const end = group.at(-1);
  const last = segments.at(-1);
  if (!spooled || !layout || !first || !end || !last) return undefined;
  await context.failpoint('spooled');
  checkSums(group, spooled);
  const { source, release } = await readManifest(
    objects,
    manifestKey(last.objectKey),
    signal,
  );
  const checkedAts = group.flatMap(({ checkedAt }) => checkedAt ?? []);
  const { assetId = null, to, tail, epoch } = end;
  const { partyId } = lease.scope;
  const facts = { partyId, compression, source, runId, epoch, release };
  const checkedAt = checkedAts.reduce(earlier, checkedAts[0] ?? 0n);
  const written = { leftOut: NONE_LEFT_OUT, spooled, layout };
  const range = {
    assetId,
    from: first.from,
    to,
    open: false,
    sides: layout.sides,
    tail,
    checkedAt,
    written,
  };
  const named = await nameObjects([range], facts, repository);
  const supersedes = group.map(({ coverageId }) => coverageId);
  await publish(
    { publicationId: randomUUID(), runId, ...named, supersedes, closes: [], epoch },
    context,
  );
  return spooled;
}

/** @throws PermanentError `SUMS_DIFFER` where the object that was written is not all of theirs */
function checkSums(group: readonly Coverage[], spooled: Spooled): void {
  const sum = new RowDigest();
  for (const { content, rows } of group)
    if (content !== undefined) sum.merge(RowDigest.fromHex(content.digest, Number(rows)));
  const forms = new Set(group.flatMap(({ content }) => content?.rowForm ?? []));
  const isSame =
    sum.rows === spooled.rows &&
    sum.hex() === spooled.digest &&
    forms.has(spooled.rowForm);
  if (isSame) return;
  throw new PermanentError(
    `Cannot merge segments: ${spooled.rows} rows were written of ${sum.rows}, or other ones; nothing was published, report this`,
    {
      code: 'SUMS_DIFFER',
      meta: { keys: group.flatMap(({ objectKey }) => objectKey ?? []) },
    },
  );
}
