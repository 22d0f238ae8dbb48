/**
 * A segment of several frames, read in part: what is requested of the store, and that
 * the response is the same as that of a segment that is read whole.
 */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { fc } from '../../support/properties.ts';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { RangeSpool } from '../../../src/exports/download/range-spool.ts';
import { partsHolding } from '../../../src/exports/reading/stored-parts.ts';
import { openLedger } from '../../../src/exports/reading/read-ledger.ts';
import {
  encodeManifest,
  type Frame,
  type Manifest,
} from '../../../src/ledger/manifest.ts';
import { manifestKey } from '../../../src/ledger/object-keys.ts';
import type { Compression } from '../../../src/ledger/object-keys.ts';
import { openFileStore } from '../../../src/storage/file-store.ts';
import type {
  ObjectStore,
  StoredRange,
} from '../../../src/storage/object-store.ts';
import type { Micros } from '../../../src/time/time.ts';
import { HEADER_12 } from '../../ledger/csv.ts';
import { hexId, instant, NEVER_ABORTED } from '../../support/samples.ts';

const PARTY = hexId('ab');
const GOLD = hexId('c0');
const FROM = instant('2023-05-01T00:00:00Z');
const TO = instant('2023-05-02T00:00:00Z');
const HOUR_SECONDS = 3600;
let folder = '';
let store: ObjectStore;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-parts-'));
  store = openFileStore(folder);
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** The rows of a day: 2,000 for each of its hours, some 9 MB. */
const HOURS = Array.from({ length: 24 }, (_, hour) =>
  Array.from({ length: 2_000 }, (__, index) => {
    const minute = String(Math.floor(index / 34)).padStart(2, '0');
    const clock = `${String(hour).padStart(2, '0')}:${minute}:59.9`;
    const amount = String(index).padStart(20, '1');
    return `2023-05-01 ${clock}+00,${amount},TRANSFER_TYPE_DEPOSIT,\\x${GOLD},\\x,\\x${PARTY},4,\\x,\\x03,10,5,6\n`;
  }),
);

/** Publishes a segment of these hours, in this order. */
async function publishDay(
  name: string,
  hours: readonly number[],
  compression: Compression,
) {
  const objectKey = `ledger/${name}.csv${{ zstd: '.zst', gzip: '.gz', none: '' }[compression]}`;
  const path = join(folder, name);
  await using spool = new RangeSpool(-Infinity, Infinity, {
    compression,
    frameSizes: { first: 2 ** 21, next: 2 ** 20 },
    spoolFile: async () => ({ name, path }),
  });
  for (const hour of hours) {
    const from = Number(FROM / 1_000_000n) + hour * HOUR_SECONDS;
    const rows = Buffer.from(HOURS[hour]?.join('') ?? '');
    spool.add(rows, { earliest: from, latest: from + HOUR_SECONDS - 1 });
    await spool.flush(Buffer.from(`${HEADER_12}\n`));
  }
  const spooled = (await spool.finish())!;
  await store.publishBytes(objectKey, await readFile(path), NEVER_ABORTED);
  const columns = HEADER_12.split(',');
  const { rows, bytes, sha256, objectBytes, objectSha256, frames } = spooled;
  const manifest: Manifest = {
    version: 1,
    objectKey,
    warehouseId: '7f6a2a0e-5f0e-4c57-9d9e-0d0d2a4b8f11',
    seq: 1n,
    source: 'http://localhost',
    partyId: PARTY,
    assetId: null,
    from: FROM,
    to: TO,
    open: false,
    sides: 'both',
    columns,
    rows: BigInt(rows),
    bytes,
    sha256,
    compression,
    objectBytes,
    objectSha256,
    frames,
    digest: '00'.repeat(32),
    rowForm: '',
    leftOut: { party: 0n, asset: 0n, range: 0n },
    runId: '7f6a2a0e-5f0e-4c57-9d9e-0d0d2a4b8f12',
    publishedAt: TO,
  };
  await store.publishBytes(
    manifestKey(objectKey),
    encodeManifest(manifest),
    NEVER_ABORTED,
  );
  return { objectKey, manifest };
}

/** Reads a part of the segment. @returns the response, and what was read of the store */
async function readDay(
  { objectKey, manifest }: Awaited<ReturnType<typeof publishDay>>,
  from: Micros,
  to: Micros,
) {
  const reads: (StoredRange | 'manifest' | 'whole')[] = [];
  const objects: Pick<ObjectStore, 'read'> = {
    read(key, aborted, range): Promise<Readable> {
      reads.push(key === objectKey ? (range ?? 'whole') : 'manifest');
      return store.read(key, aborted, range);
    },
  };
  const { columns, digest, rowForm } = manifest;
  // As large as an object that has several frames outside of tests.
  const bytes = 2n ** 30n;
  const segment = {
    assetId: undefined,
    from: FROM,
    to: TO,
    open: false,
    coverageId: 1n,
    sides: 'both' as const,
    tail: undefined,
    objectKey,
    rows: 1n,
    content: { bytes, columns: [...columns], digest, rowForm },
  };
  const reading = await openLedger(
    {
      exports: { coverage: async () => [segment] },
      readFacts: async () => ({
        demandedAssets: [],
        newestColumns: undefined,
        now: instant('2023-07-01T00:00:00Z'),
      }),
      objects,
    },
    { partyId: PARTY, assetId: undefined, from, to },
    NEVER_ABORTED,
  );
  const chunks: Buffer[] = [];
  for await (const chunk of reading.rows()) chunks.push(chunk);
  return { text: Buffer.concat(chunks).toString(), reads };
}

const ASCENDING = HOURS.keys().toArray();
/** Every fourth hour first, as a source writes that sorts by something else. */
const SHUFFLED = ASCENDING.toSorted(
  (one, other) => (one % 4) - (other % 4) || one - other,
);

describe('an hour of a segment of several frames', () => {
  test.each(['zstd', 'gzip', 'none'] as const)(
    'is read from the frames that hold it, in any order of rows: %s',
    async (compression) => {
      for (const [order, hours] of Object.entries({ ASCENDING, SHUFFLED })) {
        const day = await publishDay(
          `${order}-${compression}`,
          hours,
          compression,
        );
        for (const hour of [0, 9, 23]) {
          const from = FROM + BigInt(hour * HOUR_SECONDS) * 1_000_000n;
          const to = from + BigInt(HOUR_SECONDS) * 1_000_000n;
          const { text, reads } = await readDay(day, from, to);
          expect(text).toBe(`${HEADER_12}\n${HOURS[hour]?.join('') ?? ''}`);
          expect(reads[0]).toBe('manifest');
          expect(reads).not.toContain('whole');
        }
      }
    },
  );

  test('costs one request for the manifest and one for its frames', async () => {
    const day = await publishDay('one', ASCENDING, 'zstd');
    const from = instant('2023-05-01T12:00:00Z');
    const { reads } = await readDay(day, from, instant('2023-05-01T12:30:00Z'));
    expect(reads).toEqual(['manifest', expect.any(Object)]);
    const { start, end } = reads[1] as StoredRange;
    expect(end - start).toBeLessThan(day.manifest.objectBytes);
  });

  test('is read from the whole object if its manifest is lost or damaged', async () => {
    const day = await publishDay('bare', ASCENDING, 'zstd');
    const path = join(folder, manifestKey(day.objectKey));
    const from = instant('2023-05-01T12:00:00Z');
    const to = instant('2023-05-01T13:00:00Z');
    const good = await readDay(day, from, to);
    await writeFile(path, '{}');
    const damaged = await readDay(day, from, to);
    await rm(path);
    const lost = await readDay(day, from, to);
    expect(damaged.text).toBe(good.text);
    expect(damaged.reads).toEqual(['manifest', 'whole']);
    expect(lost).toEqual(damaged);
  });

  test('is read from the whole object if the frames do not cover it', async () => {
    const day = await publishDay('gap', ASCENDING, 'zstd');
    const frames = day.manifest.frames?.slice(1);
    await writeFile(
      join(folder, manifestKey(day.objectKey)),
      encodeManifest({ ...day.manifest, frames }),
    );
    const from = instant('2023-05-01T12:00:00Z');
    const { reads } = await readDay(day, from, instant('2023-05-01T13:00:00Z'));
    expect(reads).toEqual(['manifest', 'whole']);
  });

  test('is read without the manifest if the segment lies in the range', async () => {
    const day = await publishDay('all', ASCENDING, 'zstd');
    const { reads } = await readDay(day, FROM, TO);
    expect(reads).toEqual(['whole']);
  });
});

const arbitraryFrames = fc
  .array(
    fc.record({
      bytes: fc.bigInt({ min: 1n, max: 3_000_000n }),
      earliest: fc.integer({ min: 0, max: 1_000 }),
      lasts: fc.integer({ min: 0, max: 300 }),
    }),
    { minLength: 1, maxLength: 20 },
  )
  .map((made) => {
    let offset = 0n;
    return made.map(({ bytes, earliest, lasts }): Frame => {
      const frame = {
        offset,
        bytes,
        earliest: BigInt(earliest) * 1_000_000n,
        latest: BigInt(earliest + lasts) * 1_000_000n,
      };
      offset += bytes;
      return frame;
    });
  });

test('the parts to read have every frame that can hold the range, and end with one', () => {
  fc.assert(
    fc.property(
      arbitraryFrames,
      fc.bigInt({ min: 0n, max: 1_500_000_000n }),
      fc.bigInt({ min: 1n, max: 500_000_000n }),
      (frames, from, length) => {
        const to = from + length;
        const parts = partsHolding(frames, { from, to });
        const holding = frames.filter(
          ({ earliest, latest }) => earliest < to && latest + 999_999n >= from,
        );
        for (const { offset, bytes } of holding)
          expect(
            parts.some(
              ({ start, end }) => start <= offset && offset + bytes <= end,
            ),
          ).toBe(true);
        for (const { start, end } of parts) {
          expect(holding.map(({ offset }) => offset)).toContain(start);
          expect(holding.map(({ offset, bytes }) => offset + bytes)).toContain(
            end,
          );
        }
      },
    ),
  );
});
