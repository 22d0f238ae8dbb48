import { describe, expect, test } from 'vitest';
import {
  decodeManifest,
  encodeManifest,
  type Manifest,
} from '../../src/ledger/manifest.ts';

const SUM = 'ab'.repeat(32);
const MANIFEST: Manifest = {
  version: 1,
  objectKey: `ledger/party=${SUM}/asset=all/20230501T000000Z_20230502T000000Z.abababababab.csv`,
  warehouseId: '2f9d3c1e-6f0a-4c5e-9a55-0d1f6a1b2c3d',
  seq: 10n ** 18n - 1n,
  source: 'http://source.test/',
  partyId: SUM,
  assetId: null,
  from: 1_682_899_200_000_000n,
  to: 1_682_985_600_000_000n,
  open: false,
  sides: 'both',
  columns: ['vega_time'],
  rows: 0n,
  bytes: 0n,
  sha256: SUM,
  compression: 'none',
  objectBytes: 0n,
  objectSha256: SUM,
  digest: SUM,
  rowForm: 'sha256sum-v1/none/none',
  leftOut: { party: 0n, asset: 0n, range: 0n },
  runId: '2f9d3c1e-6f0a-4c5e-9a55-0d1f6a1b2c3e',
  publishedAt: 1_682_985_600_000_000n,
};

describe('a manifest', () => {
  test('is read as it was written, with counts as large as the database holds', () => {
    expect(decodeManifest(encodeManifest(MANIFEST), 'here')).toEqual(MANIFEST);
  });

  test.each(['1000000000000000000', '9999999999999999999', '-1', '1.5', '', '1e3'])(
    'with a count that the database cannot hold is refused, and named: %j',
    (count) => {
      const text = encodeManifest(MANIFEST)
        .toString()
        .replace('"999999999999999999"', JSON.stringify(count));
      expect(() => decodeManifest(Buffer.from(text), 'here')).toThrow(
        expect.objectContaining({ code: 'MANIFEST_INVALID', meta: { where: 'here' } }),
      );
    },
  );
});
