/** One scope of export as its owner sees it: claimed, worked on while its lease holds, its failures counted. */
import {
  errorCode,
  errorLine,
  FencedError,
  PermanentError,
  RetryableError,
  UnreachableError,
} from '../core/errors.ts';
import { isExportableParty } from '../core/ids.ts';
import { keepLease, LEASE_MS, waitFor } from './lease.ts';
import type { ExportRepository, ExportScope, Quarantine, ExportLease } from './ports.ts';
import { type ExportDeps, type ExportOutcome, type ExportRequest, WAIT_MS } from './request.ts';
import { ExportRun } from './export-run.ts';

/** After so many failures a scope is quarantined with its reason, and asked once more by each nightly run. */
const ATTEMPTS_MAX = 5;
/** Another attempt is known to be in vain. */
const HOPELESS: ReadonlySet<string> = new Set(['SOURCE_CANNOT_ANSWER']);
/** Says nothing about the scope itself. */
const NOT_ITS_FAULT = new Set([
  'ASSET_REQUIRED',
  'WAITED_TOO_LONG',
  'LEASE_LOST',
  'COVERAGE_CHANGED',
  'OBJECT_CLEARED',
]);

/**
 * Asks for what of the request is not covered yet and publishes it. Two workers never do the same scope:
 * the second waits, and finds it covered.
 * @throws whatever the source, the stream's checks, the store or the warehouse say; nothing is visible then
 */
export async function exportLedger(
  request: ExportRequest,
  deps: ExportDeps,
  signal: AbortSignal,
): Promise<ExportOutcome> {
  if (!isExportableParty(request.partyId)) {
    throw new PermanentError(
      `Cannot export party ${request.partyId}: the source exports only parties whose id is 64 hex digits`,
      { code: 'PARTY_NOT_EXPORTABLE', meta: { partyId: request.partyId } },
    );
  }
  const scope = await unitOf(request, deps.repository);
  let takenAtMs = performance.now();
  const claim = await waitFor(
    `the export of party ${scope.partyId}`,
    () => {
      takenAtMs = performance.now();
      return deps.repository.claim(scope, LEASE_MS);
    },
    { waitMs: deps.waitMs ?? WAIT_MS, signal },
  );
  await using lease = keepLease({
    what: `the export of party ${scope.partyId}`,
    takenAtMs,
    renew: () => deps.repository.renew(claim, LEASE_MS),
    release: () => deps.repository.release(claim),
  });
  const guarded = AbortSignal.any([signal, lease.signal]);
  const work = new ExportRun(claim, { ...request, assetId: scope.assetId }, deps, lease.check, guarded);
  try {
    return await work.run();
  } catch (error) {
    const cause: unknown = lease.signal.aborted ? lease.signal.reason : error;
    if (!signal.aborted && isItsFault(cause)) throw await counted(cause, claim, deps.repository);
    throw cause;
  }
}

/** The failure, written down. One that sets the scope aside is not tried again before the next nightly run. */
async function counted(cause: unknown, claim: ExportLease, repository: ExportRepository): Promise<unknown> {
  const reason = { code: errorCode(cause), message: errorLine(cause) };
  const failuresMax = HOPELESS.has(reason.code) ? 1 : ATTEMPTS_MAX;
  let counts: Quarantine | undefined;
  try {
    counts = await repository.fail(claim, reason, failuresMax);
  } catch (error) {
    // Another has the scope: what this worker met, such as files that the other has cleared, is no failure of it.
    if (error instanceof FencedError) return error;
    // Otherwise the first error is what matters, also where it cannot be written down.
  }
  if (counts?.isQuarantined !== true || !(cause instanceof RetryableError)) return cause;
  return new PermanentError(
    `${reason.message}; quarantined after ${counts.attempts} failures in a row, and asked once by each nightly run`,
    { code: reason.code, meta: cause.meta, cause },
  );
}

/**
 * Where the party's present is exported in every asset already, one asset alone cannot replace that open
 * segment: all are asked for, which holds the one.
 */
async function unitOf(request: ExportRequest, repository: ExportRepository): Promise<ExportScope> {
  const { partyId, assetId } = request;
  if (assetId === undefined) return { partyId };
  const coverage = await repository.coverage({ partyId, assetId });
  return coverage.some((row) => row.open && row.assetId === undefined) ? { partyId } : { partyId, assetId };
}

function isItsFault(error: unknown): boolean {
  if (error instanceof FencedError || error instanceof UnreachableError) return false;
  return !NOT_ITS_FAULT.has(errorCode(error)) && !errorCode(error).startsWith('DATABASE_');
}
