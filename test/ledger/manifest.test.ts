/**
 * The manifest of an object: its JSON, the counts it may hold, and how much of one is
 * read.
 */
import { Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import {
  decodeManifest,
  encodeManifest,
  MANIFEST_BYTES_MAX,
  type Manifest,
  readManifest,
} from '../../src/ledger/manifest.ts';
import { hexId, NEVER_ABORTED } from '../support/samples.ts';

const SUM = hexId('ab');
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

describe('decodeManifest', () => {
  test('reads what encodeManifest wrote, with counts as large as the database holds', () => {
    expect(decodeManifest(encodeManifest(MANIFEST), 'here')).toEqual(MANIFEST);
  });

  test('reads the tail, the epoch and the release that encodeManifest wrote', () => {
    const complete: Manifest = {
      ...MANIFEST,
      tail: {
        from: MANIFEST.from,
        rows: 3,
        digest: SUM,
        rowForm: MANIFEST.rowForm,
      },
      epoch: 2,
      release: {
        bounds: 'right',
        sides: 'both',
        header: 'vega_time',
        evidence: 'an entry came back',
        decidedAt: MANIFEST.from,
      },
    };
    expect(decodeManifest(encodeManifest(complete), 'here')).toEqual(complete);
  });

  test.each([
    '1000000000000000000',
    '9999999999999999999',
    '-1',
    '1.5',
    '',
    '1e3',
  ])(
    'refuses and names a manifest with the count %j, which the database cannot hold',
    (count) => {
      const text = encodeManifest(MANIFEST)
        .toString()
        .replace('"999999999999999999"', JSON.stringify(count));
      expect(() => decodeManifest(Buffer.from(text), 'here')).toThrow(
        expect.objectContaining({
          code: 'MANIFEST_INVALID',
          meta: { where: 'here' },
        }),
      );
    },
  );
});

describe('readManifest', () => {
  test('reads a manifest that comes in pieces', async () => {
    const bytes = encodeManifest(MANIFEST);
    const stored = Readable.from([bytes.subarray(0, 7), bytes.subarray(7)]);
    const objects = { read: async () => stored };
    expect(await readManifest(objects, 'key', NEVER_ABORTED)).toEqual(MANIFEST);
  });

  test('stops reading a manifest that is larger than the limit, and refuses it', async () => {
    const piece = Buffer.alloc(2 ** 20, ' ');
    const pieces = 64;
    let read = 0;
    function* endless() {
      // Valid JSON in the end, so that only its size speaks against it.
      yield encodeManifest(MANIFEST);
      for (; read < pieces; read += 1) yield piece;
    }
    const stored = Readable.from(endless());
    await expect(
      readManifest({ read: async () => stored }, 'key', NEVER_ABORTED),
    ).rejects.toMatchObject({
      code: 'MANIFEST_INVALID',
      meta: { where: 'key' },
    });
    expect(stored.destroyed).toBe(true);
    expect(read * piece.length).toBeLessThan(8 * MANIFEST_BYTES_MAX);
  });
});
