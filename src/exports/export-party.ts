/**
 * A party's ledger, whichever way its source gives it: in all assets at once, or in each
 * asset apart.
 */
import { errorCode, FencedError, PermanentError } from '../errors/errors.ts';
import { worst } from '../errors/verdict.ts';
import { exportLedger } from './run-export.ts';
import { demandsAsset } from './planning/profile.ts';
import type { SourceProfile } from './store/source-profile.ts';
import type { ExportDeps, ExportOutcome, ExportRequest } from './request.ts';

export interface PartyExportDeps extends ExportDeps {
  /** Asked for where the source demands an asset; absent or empty: those seen so far. */
  readonly assets?: readonly string[] | undefined;
}

/**
 * Like `exportLedger`. Where the source demands an asset and none was given, every
 * configured or known asset is exported, and the evidence names them: whether there are
 * others cannot be proven there.
 */
export async function exportParty(
  request: ExportRequest,
  deps: PartyExportDeps,
  signal: AbortSignal,
): Promise<ExportOutcome> {
  if (request.assetId !== undefined) return exportLedger(request, deps, signal);
  const { repository } = deps;
  const profile = await repository.profile();
  const learn = async (
    known: Pick<SourceProfile, 'assetRequired' | 'assetAskedAt'>,
  ): Promise<void> =>
    repository.learn({ ...(await repository.profile()), ...known });
  if (!demandsAsset(profile, request.clock.seen)) {
    try {
      const outcome = await exportLedger(request, deps, signal);
      // It answered without one.
      if (outcome.requests > 0 && profile.assetRequired === true)
        await learn({ assetRequired: undefined, assetAskedAt: undefined });
      return outcome;
    } catch (error) {
      if (errorCode(error) !== 'ASSET_REQUIRED') throw error;
      await learn({ assetRequired: true, assetAskedAt: request.clock.seen });
    }
  }
  return exportAssets(request, deps, signal);
}

const NO_ASSETS =
  'set SOURCE_ASSETS: the source demands an asset, and none is known';
const SEEN_ASSETS =
  'set SOURCE_ASSETS: the source demands an asset, and only those seen so far ' +
  'were asked for';

/** @throws the first error of an asset, when all have been asked for */
async function exportAssets(
  request: ExportRequest,
  deps: PartyExportDeps,
  signal: AbortSignal,
) {
  const { assets: configured = [], repository } = deps;
  const isConfigured = configured.length > 0;
  const assets = isConfigured ? configured : await repository.knownAssets();
  const known = new Set(
    (await repository.coverage(request)).map(({ assetId }) => assetId),
  );
  const outcomes: ExportOutcome[] = [];
  const failures: PermanentError[] = [];
  // What a new asset holds is asked for from the beginning: behind what is new of those
  // that are known.
  for (const assetId of assets.toSorted(
    (one, other) => Number(known.has(other)) - Number(known.has(one)),
  )) {
    try {
      outcomes.push(await exportLedger({ ...request, assetId }, deps, signal));
    } catch (error) {
      signal.throwIfAborted();
      // One that is quarantined fails every night: the others' turn comes all the same.
      if (!(error instanceof PermanentError) || error instanceof FencedError)
        throw error;
      failures.push(error);
    }
  }
  const [failure] = failures;
  if (failure !== undefined) throw failure;
  const add = (name: 'rows' | 'replacedRows' | 'bytes'): bigint =>
    outcomes.reduce((sum, outcome) => sum + outcome[name], 0n);
  return {
    verdict: worst([
      isConfigured ? 'complete' : 'incomplete',
      ...outcomes.map(({ verdict }) => verdict),
    ]),
    rows: add('rows'),
    replacedRows: add('replacedRows'),
    bytes: add('bytes'),
    requests: outcomes.reduce((sum, outcome) => sum + outcome.requests, 0),
    objectKeys: outcomes.flatMap((outcome) => outcome.objectKeys),
    evidence: {
      ...(isConfigured
        ? {}
        : { reason: assets.length === 0 ? NO_ASSETS : SEEN_ASSETS }),
      party: request.partyId,
      assets: [...assets],
      replacedRows: String(add('replacedRows')),
      assetsFrom: isConfigured ? 'SOURCE_ASSETS' : 'seen so far',
      units: outcomes.map((outcome) => outcome.evidence),
    },
  };
}
