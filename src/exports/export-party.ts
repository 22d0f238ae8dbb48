/**
 * Exports a party's ledger as the source allows: all assets at once, or one at a time.
 */
import { errorCode, FencedError, PermanentError } from '../errors/errors.ts';
import { worst } from '../errors/verdict.ts';
import { exportLedger } from './export-ledger.ts';
import { demandsAsset, type SourceProfile } from './planning/profile.ts';
import type {
  ExportDeps,
  ExportOutcome,
  ExportRequest,
} from './export-context.ts';

export interface PartyExportDeps extends ExportDeps {
  /**
   * The assets to export if the source requires an asset. If absent or empty, all
   * assets seen so far are exported.
   */
  readonly assets?: readonly string[] | undefined;
}

/**
 * Like `exportLedger`. If the source requires an asset and the request specifies none,
 * every configured or known asset is exported. The evidence lists these assets, because
 * the party may also have entries in assets that neither the configuration nor the
 * mirror knows.
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
      // The source accepted a request without an asset, so it no longer requires one.
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
  'set SOURCE_ASSETS: the source requires an asset, and none is known';
const SEEN_ASSETS =
  'set SOURCE_ASSETS: the source demands an asset, and only those seen ' +
  'so far were requested';

/**
 * Exports one asset after another.
 * @throws the first permanent error after every asset has been tried; any other error
 *   immediately
 */
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
  // Known assets come first, because only their new entries are requested. A new asset
  // is requested from the beginning.
  for (const assetId of assets.toSorted(
    (one, other) => Number(known.has(other)) - Number(known.has(one)),
  )) {
    try {
      outcomes.push(await exportLedger({ ...request, assetId }, deps, signal));
    } catch (error) {
      signal.throwIfAborted();
      // A quarantined asset fails every night, and must not block the export of the
      // others.
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
