import { createHash, randomBytes } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { SpoolWriter } from '../../../src/export/spool/spool-writer.ts';
import { RowSum } from '../../../src/ledger/row-sum.ts';
import { bytesOf, TimeHistogram } from '../../../src/export/plan/time-histogram.ts';
import { plainStream } from '../../../src/ledger/objects/plain-stream.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-spool-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const HEADER = Buffer.from('a,b\n');

function sha256(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex');
}

test.each(['zstd', 'gzip', 'none'] as const)(
  'writes what it was given and sums both forms: %s',
  async (compression) => {
    const path = join(folder, compression);
    await using writer = await SpoolWriter.create(
      { name: compression, path },
      HEADER,
      compression,
      new RowSum(),
    );
    const windows = Array.from({ length: 300 }, (_, index) =>
      Buffer.from(`${index},${'x'.repeat(index * 20)}\n`),
    );
    for (const piece of windows) await writer.write(piece);
    const spooled = await writer.finish();
    const plain = Buffer.concat([HEADER, ...windows]);
    const stored = await readFile(path);
    expect(await buffer(plainStream(createReadStream(path), compression))).toEqual(plain);
    expect(spooled).toMatchObject({
      bytes: BigInt(plain.length),
      sha256: sha256(plain),
      objectBytes: BigInt(stored.length),
      objectSha256: sha256(stored),
    });
  },
);

test.each(['zstd', 'none'] as const)('a full disk is an error that may pass: %s', async (compression) => {
  await using writer = await SpoolWriter.create(
    { name: 'full', path: '/dev/full' },
    HEADER,
    compression,
    new RowSum(),
  );
  const fill = async (): Promise<void> => {
    for (let piece = 0; piece < 50; piece += 1)
      await writer.write(Buffer.alloc(100_000, Math.random().toString()));
    await writer.finish();
  };
  await expect(fill()).rejects.toThrow(expect.objectContaining({ code: 'SPOOL_ENOSPC' }));
});

test('a spool that is flushed on the way is complete at the end', async () => {
  const path = join(folder, 'flushed');
  await using writer = await SpoolWriter.create({ name: 'flushed', path }, HEADER, 'none', new RowSum());
  const piece = randomBytes(2 ** 20);
  for (let nth = 0; nth < 80; nth += 1) await writer.write(piece);
  const { objectBytes, sha256: sum } = await writer.finish();
  const plain = Buffer.concat([HEADER, ...Array.from({ length: 80 }, () => piece)]);
  expect({ objectBytes, sum }).toEqual({ objectBytes: BigInt(plain.length), sum: sha256(plain) });
  expect(plain.equals(await readFile(path))).toBe(true);
});

test('a failed flush ends the writing of a spool', async () => {
  // It takes everything, and cannot be flushed.
  const nowhere = { name: 'null', path: '/dev/null' };
  await using writer = await SpoolWriter.create(nowhere, HEADER, 'none', new RowSum());
  const piece = Buffer.alloc(2 ** 20);
  const fill = async (): Promise<void> => {
    for (let nth = 0; nth < 10_000; nth += 1) await writer.write(piece);
  };
  await expect(fill()).rejects.toThrow(expect.objectContaining({ code: 'SPOOL_EINVAL' }));
});

test('a histogram of any length stays small, and loses no byte', () => {
  const histogram = new TimeHistogram();
  for (let second = 0; second < 100_000; second += 1) histogram.add((second * 7919) % 100_000, 100);
  for (const bucketsMax of [4096, 256]) {
    const sample = histogram.sample(bucketsMax);
    expect(sample.buckets.length).toBeLessThanOrEqual(bucketsMax);
    expect(bytesOf(sample)).toBe(100_000 * 100);
  }
});

test('a histogram never divides one second', () => {
  const histogram = new TimeHistogram();
  for (let row = 0; row < 1000; row += 1) histogram.add(5, 1000);
  expect(histogram.sample(10)).toEqual({ bucketSeconds: 1, buckets: [[5, 1_000_000]] });
});
