/** The settings of a source as the tests need them: the public service's names, no rate limit that is felt. */
import type { SourceConfig } from '../../src/source/source-client.ts';

const RATE_LIFTED = 100_000;

export function sourceConfig(url: string | URL): SourceConfig {
  return {
    sourceUrl: new URL(url),
    sourceRate: RATE_LIFTED,
    sourceExportPath: '/api/v2/ledgerentry/export',
    sourceExportParamParty: 'partyId',
    sourceExportParamAsset: 'assetId',
    sourceExportParamFrom: 'dateRange.startTimestamp',
    sourceExportParamTo: 'dateRange.endTimestamp',
    sourceExportTime: 'ns',
    ambient: {},
  };
}
