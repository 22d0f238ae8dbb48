/** A party's ledger, whichever way its source gives it: in all assets at once, or in each asset apart. */
import { errorCode, FencedError, PermanentError } from '../core/errors.ts';
import { worst } from '../core/verdict.ts';
import { exportLedger } from './export-ledger.ts';
import { demandsAsset } from './plan/profile.ts';
import type { ExportDeps, ExportOutcome, ExportRequest } from './request.ts';

export interface PartyExportDeps extends ExportDeps {
  /** Asked for where the source demands an asset; absent or empty: those seen so far. */
  readonly assets?: readonly string[] | undefined;
}

/**
 * Like `exportLedger`. Where the source demands an asset and none was given, every configured or known
 * asset is exported, and the evidence names them: whether there are others cannot be proven there.
 */
export async function exportParty(
  request: ExportRequest,
  deps: PartyExportDeps,
  signal: AbortSignal,
): Promise<ExportOutcome> {
  if (request.assetId !== undefined) return exportLedger(request, deps, signal);
  const profile = await deps.repository.profile();
  if (!demandsAsset(profile, request.seenTime)) {
    try {
      const outcome = await exportLedger(request, deps, signal);
      if (outcome.requests > 0) await unlearnDemand(deps);
      return outcome;
    } catch (error) {
      if (errorCode(error) !== 'ASSET_REQUIRED') throw error;
      const known = await deps.repository.profile();
      await deps.repository.learn({ ...known, assetRequired: true, assetAskedAt: request.seenTime });
    }
  }
  return exportAssets(request, deps, signal);
}

/** It answered without one. */
async function unlearnDemand({ repository }: PartyExportDeps): Promise<void> {
  const profile = await repository.profile();
  if (profile.assetRequired !== true) return;
  await repository.learn({ ...profile, assetRequired: undefined, assetAskedAt: undefined });
}

/** What a new asset holds is asked for from the beginning: behind what is new of those that are known. */
async function knownFirst(
  assets: readonly string[],
  partyId: string,
  { repository }: PartyExportDeps,
): Promise<readonly string[]> {
  const known = new Set((await repository.coverage({ partyId })).map(({ assetId }) => assetId));
  return assets.toSorted((one, other) => Number(known.has(other)) - Number(known.has(one)));
}

const NO_ASSETS = 'set SOURCE_ASSETS: the source demands an asset, and none is known';
const SEEN_ASSETS =
  'set SOURCE_ASSETS: the source demands an asset, and only those seen so far were asked for';

/** @throws the first error of an asset, when all have been asked for */
async function exportAssets(
  request: ExportRequest,
  deps: PartyExportDeps,
  signal: AbortSignal,
): Promise<ExportOutcome> {
  const configured = deps.assets ?? [];
  const assets = configured.length > 0 ? configured : await deps.repository.knownAssets();
  const outcomes: ExportOutcome[] = [];
  const failures: PermanentError[] = [];
  for (const assetId of await knownFirst(assets, request.partyId, deps)) {
    try {
      outcomes.push(await exportLedger({ ...request, assetId }, deps, signal));
    } catch (error) {
      signal.throwIfAborted();
      // One that is quarantined fails every night: the others' turn comes all the same.
      if (!(error instanceof PermanentError) || error instanceof FencedError) throw error;
      failures.push(error);
    }
  }
  const [failure] = failures;
  if (failure !== undefined) throw failure;
  const isNone = assets.length === 0;
  const replacedRows = outcomes.reduce((sum, outcome) => sum + outcome.replacedRows, 0n);
  return {
    verdict: worst([
      configured.length === 0 ? 'incomplete' : 'complete',
      ...outcomes.map((outcome) => outcome.verdict),
    ]),
    rows: outcomes.reduce((sum, outcome) => sum + outcome.rows, 0n),
    replacedRows,
    bytes: outcomes.reduce((sum, outcome) => sum + outcome.bytes, 0n),
    requests: outcomes.reduce((sum, outcome) => sum + outcome.requests, 0),
    objectKeys: outcomes.flatMap((outcome) => outcome.objectKeys),
    evidence: {
      ...(configured.length > 0 ? {} : { reason: isNone ? NO_ASSETS : SEEN_ASSETS }),
      party: request.partyId,
      assets: [...assets],
      replacedRows: String(replacedRows),
      assetsFrom: configured.length > 0 ? 'SOURCE_ASSETS' : 'seen so far',
      units: outcomes.map((outcome) => outcome.evidence),
    },
  };
}
