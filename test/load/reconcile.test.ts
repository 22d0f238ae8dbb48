/** What manifests and recorded coverage say together. */
import { expect, test } from 'vitest';
import type { Manifest } from '../../src/ledger/objects/manifest.ts';
import type { RecordedRange } from '../../src/ledger/objects/coverage-record.ts';
import { reconcile } from '../../src/load/reconcile.ts';
import { fc } from '../support/properties.ts';

const PARTY = 'a'.repeat(64);
const ASSETS = [null, 'b'.repeat(64), 'c'.repeat(64)];

interface Place {
  readonly seq: bigint;
  readonly asset?: string | null;
  readonly from: bigint;
  readonly to: bigint;
  readonly open?: boolean;
}

function manifest({ seq, asset = null, from, to, open = false }: Place): Manifest {
  return {
    version: 1,
    objectKey: `ledger/${seq}.${from}_${to}`,
    warehouseId: '00000000-0000-4000-8000-000000000000',
    seq,
    source: 'http://source',
    partyId: PARTY,
    assetId: asset,
    from,
    to,
    open,
    sides: 'from',
    columns: [],
    rows: 1n,
    bytes: 1n,
    sha256: '0'.repeat(64),
    compression: 'zstd',
    objectBytes: 1n,
    objectSha256: '0'.repeat(64),
    digest: '0'.repeat(64),
    rowForm: 'form',
    leftOut: { party: 0n, asset: 0n, range: 0n },
    contentType: null,
    extensions: [],
    runId: '00000000-0000-4000-8000-000000000001',
    publishedAt: 0n,
  };
}

function range(place: Omit<Place, 'seq'>, objectKey: string | null = null): RecordedRange {
  const { asset = null, from, to, open = false } = place;
  const tail = open ? null : { from, rows: 1, digest: '0'.repeat(64), rowForm: 'form' };
  return { assetId: asset, from, to, open, sides: 'from', objectKey, tail, runId: null, checkedAt: 0n };
}

function recorded(seq: bigint, coverage: RecordedRange[]): Parameters<typeof reconcile>[2] {
  return { partyId: PARTY, seq, coverage };
}

test('reconciled coverage has unchanged closed segments closed and ranges without entries covered', () => {
  const [first, stood] = [
    manifest({ seq: 1n, from: 0n, to: 100n }),
    manifest({ seq: 1n, from: 100n, to: 110n, open: true }),
  ];
  const coverage = [
    range({ from: 0n, to: 100n }, first.objectKey),
    range({ from: 100n, to: 110n }, stood.objectKey),
    range({ from: 110n, to: 200n }),
  ];
  const found = reconcile(PARTY, [first, stood], recorded(2n, coverage));
  expect(found.coverage).toEqual(coverage);
  expect(found.current.map(({ open }) => open)).toEqual([false, false]);
  expect(found.superseded).toEqual([]);
});

test('reconciled coverage includes segments published after the record, which replace what they overlap', () => {
  const [old, open, newer] = [
    manifest({ seq: 1n, from: 0n, to: 100n }),
    manifest({ seq: 1n, from: 100n, to: 105n, open: true }),
    manifest({ seq: 3n, from: 100n, to: 200n }),
  ];
  const coverage = [
    range({ from: 0n, to: 100n }, old.objectKey),
    range({ from: 100n, to: 105n, open: true }, open.objectKey),
  ];
  const found = reconcile(PARTY, [old, open, newer], recorded(2n, coverage));
  expect(found.current.map(({ objectKey }) => objectKey).toSorted()).toEqual(
    [old.objectKey, newer.objectKey].toSorted(),
  );
  expect(found.superseded).toEqual([open]);
});

test('reconciled coverage leaves out a recorded range whose object is gone', () => {
  const found = reconcile(PARTY, [], recorded(2n, [range({ from: 0n, to: 100n }, 'ledger/gone')]));
  expect(found).toMatchObject({ current: [], coverage: [] });
});

const place = fc
  .record({
    seq: fc.bigInt(1n, 20n),
    asset: fc.constantFrom(...ASSETS),
    from: fc.bigInt(0n, 50n),
    length: fc.bigInt(1n, 20n),
    open: fc.boolean(),
  })
  .map(({ length, ...rest }) => ({ ...rest, to: rest.from + length }));

test('reconciled coverage covers no instant twice, nothing unclaimed, and uses every manifest', () => {
  fc.assert(
    fc.property(fc.array(place, { maxLength: 12 }), fc.array(place, { maxLength: 6 }), (made, claimed) => {
      const manifests = [...new Map(made.map((each) => [manifest(each).objectKey, manifest(each)])).values()];
      const held: RecordedRange[] = [];
      for (const [index, claim] of claimed.entries()) {
        const own = manifests[index];
        const claims =
          index % 2 === 0 || own === undefined ? range(claim) : range(placeOf(own), own.objectKey);
        if (!held.some((other) => isOverlap(other, claims))) held.push(claims);
      }
      const { current, superseded, coverage } = reconcile(PARTY, manifests, recorded(10n, held));
      for (const [index, one] of coverage.entries()) {
        expect(coverage.slice(index + 1).some((other) => isOverlap(one, other))).toBe(false);
        const isRecorded = held.includes(one);
        const own = manifests.find(({ objectKey }) => objectKey === one.objectKey);
        expect(isRecorded || (own?.from === one.from && own.to === one.to)).toBe(true);
      }
      expect([...current, ...superseded].map(({ objectKey }) => objectKey).toSorted()).toEqual(
        manifests.map(({ objectKey }) => objectKey).toSorted(),
      );
      expect(current.map(({ objectKey }) => objectKey)).toEqual(
        coverage.flatMap(({ objectKey }) => (objectKey === null ? [] : [objectKey])),
      );
    }),
  );
});

function placeOf({ assetId, from, to, open }: Manifest): Omit<Place, 'seq'> {
  return { asset: assetId, from, to, open };
}

function isOverlap(a: RecordedRange, b: RecordedRange): boolean {
  const isSameAsset = a.assetId === null || b.assetId === null || a.assetId === b.assetId;
  return isSameAsset && a.from < b.to && b.from < a.to;
}
