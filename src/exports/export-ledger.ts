/**
 * Exports one scope of a ledger: checks the request, holds the scope's lease while
 * `run-export.ts` works, and counts failures.
 */
import type { Coverage } from '../catalog/coverage-rows.ts';
import type { ExportLease } from '../catalog/leases.ts';
import { waitFor } from '../concurrency/timeouts.ts';
import {
  errorCode,
  errorLine,
  FencedError,
  PermanentError,
  RetryableError,
} from '../errors/errors.ts';
import { attributeFault } from '../errors/faults.ts';
import type { ExportScope } from '../ledger/export-scope.ts';
import { isExportableParty } from '../ledger/ids.ts';
import { publishContext } from './publishing/publisher.ts';
import {
  type ExportDeps,
  type ExportOutcome,
  type ExportRequest,
  WAIT_MS,
  waitedTooLong,
} from './export-context.ts';
import { runExport } from './run-export.ts';
import type { ExportRepository } from './store/export-repository.ts';

/**
 * Number of consecutive failures after which an export is quarantined. Each nightly run
 * then tries it once.
 */
const ATTEMPTS_MAX = 5;
/**
 * Codes of failures that would only recur. The first such failure quarantines the
 * export.
 */
const HOPELESS: ReadonlySet<string> = new Set([
  'SOURCE_CANNOT_ANSWER',
  'SOURCE_OUTSIDE_RANGE',
]);

/**
 * Exports the part of the request that is not covered yet. Two workers never work on
 * the same export: the second waits, and then finds the range covered.
 * @throws PermanentError | RetryableError from the source, the checks of its response,
 *   the object store or the warehouse. No part of the failed response is then visible
 */
export async function exportLedger(
  request: ExportRequest,
  deps: ExportDeps,
  signal: AbortSignal,
): Promise<ExportOutcome> {
  checkRequest(request, deps);
  const scope = await scopeOf(request, deps.repository);
  const what = `the export of party ${scope.partyId}`;
  const waitMs = deps.waitMs ?? WAIT_MS;
  const lease = await waitFor(
    () => deps.repository.acquire(scope),
    { waitMs, signal },
    () => waitedTooLong(what, waitMs),
  );
  await using kept = deps.repository.holdLease(lease, what);
  const context = publishContext(lease, kept, deps, signal);
  try {
    const scoped = { ...request, assetId: scope.assetId };
    return await runExport({ ...deps, ...context, request: scoped });
  } catch (error) {
    const cause: unknown = kept.signal.aborted ? kept.signal.reason : error;
    if (!signal.aborted && attributeFault(cause) === 'export')
      throw await recordFailure(cause, lease, deps.repository);
    throw cause;
  }
}

function checkRequest(request: ExportRequest, { source }: ExportDeps): void {
  const { partyId } = request;
  if (!isExportableParty(partyId)) {
    throw new PermanentError(
      `Cannot export party ${partyId}: it owns the network's accounts, which have ` +
        'no ledger; leave it out',
      { code: 'PARTY_NOT_EXPORTABLE', meta: { partyId } },
    );
  }
  if (!source.hasTimes && (request.from ?? request.to) !== undefined) {
    throw new PermanentError(
      `Cannot export a range of party ${partyId}: the rows of this source have no ` +
        'times; export all of it',
      { code: 'EXPORT_QUESTION', meta: { partyId } },
    );
  }
}

/**
 * Returns the scope to lease. If coverage of all assets is open, faulty or requested
 * again, an export of one asset cannot replace it, so all assets are exported.
 */
async function scopeOf(
  request: ExportRequest,
  repository: ExportRepository,
): Promise<ExportScope> {
  const { partyId, assetId, again, from = 0n, to } = request;
  if (assetId === undefined) return { partyId };
  const coverage = await repository.coverage({ partyId, assetId });
  const isReplaced = (row: Coverage): boolean =>
    row.open ||
    row.isFaulty === true ||
    (again === true && row.to > from && (to === undefined || row.from < to));
  return coverage.some((row) => row.assetId === undefined && isReplaced(row))
    ? { partyId }
    : { partyId, assetId };
}

/**
 * Counts a failure of the export.
 * @returns the error to throw: permanent if the export is now quarantined, so that it
 *   is not retried before the next nightly run
 */
async function recordFailure(
  cause: unknown,
  lease: ExportLease,
  repository: ExportRepository,
): Promise<unknown> {
  const reason = { code: errorCode(cause), message: errorLine(cause) };
  const failuresMax = HOPELESS.has(reason.code) ? 1 : ATTEMPTS_MAX;
  let failures: number | undefined;
  try {
    failures = await repository.fail(lease, reason, failuresMax);
  } catch (error) {
    // Another worker has the export now. An error here, for example because that worker
    // cleared the spool, is not a failure of the export.
    if (error instanceof FencedError) return error;
    // Otherwise, the original error matters more than the one that kept it from being
    // recorded.
  }
  if (failures === undefined || !(cause instanceof RetryableError))
    return cause;
  return new PermanentError(
    `${reason.message}; quarantined after ${failures} failures in a row, and ` +
      'tried once by each nightly run',
    { code: reason.code, meta: cause.meta, cause },
  );
}
