/** A source as the tests of the walk need it: lists only, no pace. */
import type { SourceConfig } from '../../src/source/source.ts';

const RATE_LIFTED = 100_000;

export function sourceConfig(url: string): SourceConfig {
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
