/** One scope of export as its owner sees it: claimed, worked on while its lease holds, its failures counted. */
import {
  errorCode,
  errorLine,
  FencedError,
  PermanentError,
  RetryableError,
} from '../errors/errors.ts';
import { isExportableParty } from '../ledger/ids.ts';
import { waitFor } from '../concurrency/timeouts.ts';
import { attributeFault } from '../errors/faults.ts';
import type { ExportScope } from '../ledger/export-scope.ts';
import { publishContext } from './publishing/publisher.ts';
import type { Coverage } from '../catalog/coverage-rows.ts';
import type { ExportRepository } from './store/export-repository.ts';
import type { ExportLease } from '../catalog/leases.ts';
import {
  type ExportDeps,
  type ExportOutcome,
  type ExportRequest,
  WAIT_MS,
  waitedTooLong,
} from './request.ts';
import { ExportRun } from './run-export.ts';

/** After so many failures an export is quarantined with its reason, and asked once more by each nightly run. */
const ATTEMPTS_MAX = 5;
/** Another attempt cannot help. */
const HOPELESS: ReadonlySet<string> = new Set([
  'SOURCE_CANNOT_ANSWER',
  'SOURCE_OUTSIDE_RANGE',
]);
/**
 * Exports what the request wants and coverage lacks. Two workers never work on the same export: the second one
 * waits, and finds the range covered.
 * @throws whatever the source, the stream's checks, the store or the warehouse say; nothing is visible then
 */
export async function exportLedger(
  request: ExportRequest,
  deps: ExportDeps,
  signal: AbortSignal,
): Promise<ExportOutcome> {
  if (!isExportableParty(request.partyId)) {
    throw new PermanentError(
      `Cannot export party ${request.partyId}: it owns the network's accounts, which have no ledger; leave it out`,
      { code: 'PARTY_NOT_EXPORTABLE', meta: { partyId: request.partyId } },
    );
  }
  if (!deps.source.hasTimes && (request.from ?? request.to) !== undefined) {
    throw new PermanentError(
      `Cannot export a range of party ${request.partyId}: the rows of this source tell no times; export all of it`,
      { code: 'EXPORT_QUESTION', meta: { partyId: request.partyId } },
    );
  }
  const scope = await scopeOf(request, deps.repository);
  const what = `the export of party ${scope.partyId}`;
  const waitMs = deps.waitMs ?? WAIT_MS;
  const lease = await waitFor(
    () => deps.repository.acquire(scope),
    { waitMs, signal },
    () => waitedTooLong(what, waitMs),
  );
  await using held = deps.repository.holdLease(lease, what);
  const context = publishContext(lease, held, deps, signal);
  try {
    const wanted = { ...request, assetId: scope.assetId };
    return await new ExportRun({ ...deps, ...context, request: wanted }).run();
  } catch (error) {
    const cause: unknown = held.signal.aborted ? held.signal.reason : error;
    if (!signal.aborted && attributeFault(cause) === 'export')
      throw await counted(cause, lease, deps.repository);
    throw cause;
  }
}

/** Records the failure. A quarantined export is not tried again before the next nightly run. */
async function counted(
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
    // Another has the export: what this worker met, such as files that the other has cleared, is no failure of it.
    if (error instanceof FencedError) return error;
    // Otherwise the first error is what matters, also where it cannot be written down.
  }
  if (failures === undefined || !(cause instanceof RetryableError)) return cause;
  return new PermanentError(
    `${reason.message}; quarantined after ${failures} failures in a row, and asked once by each nightly run`,
    { code: reason.code, meta: cause.meta, cause },
  );
}

/**
 * One asset's export cannot replace coverage of all assets that is open, faulty or asked for again: then all assets
 * are exported.
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
