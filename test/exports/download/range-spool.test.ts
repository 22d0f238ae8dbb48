import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  RangeSpool,
  type SpoolFile,
} from '../../../src/exports/download/range-spool.ts';
import {
  type Compression,
  plainStream,
} from '../../../src/ledger/object-keys.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-spool-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const HEADER = Buffer.from('a,b\n');

function spoolTo(file: SpoolFile, compression: Compression): RangeSpool {
  return new RangeSpool(-Infinity, Infinity, {
    compression,
    spoolFile: async () => file,
  });
}

async function write(spool: RangeSpool, rows: Buffer): Promise<void> {
  spool.add(rows);
  await spool.flush(HEADER);
}

function sha256(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex');
}

test.each(['zstd', 'gzip', 'none'] as const)(
  'writes what it was given and sums both forms: %s',
  async (compression) => {
    const path = join(folder, compression);
    await using spool = spoolTo({ name: compression, path }, compression);
    const windows = Array.from({ length: 300 }, (_, index) =>
      Buffer.from(`${index},${'x'.repeat(index * 20)}\n`),
    );
    for (const piece of windows) await write(spool, piece);
    const spooled = await spool.finish();
    const plain = Buffer.concat([HEADER, ...windows]);
    const stored = await readFile(path);
    expect(
      await buffer(plainStream(createReadStream(path), compression)),
    ).toEqual(plain);
    expect(spooled).toMatchObject({
      bytes: BigInt(plain.length),
      sha256: sha256(plain),
      objectBytes: BigInt(stored.length),
      objectSha256: sha256(stored),
    });
  },
);

test.each(['zstd', 'none'] as const)(
  'a full disk is an error that may pass: %s',
  async (compression) => {
    await using spool = spoolTo(
      { name: 'full', path: '/dev/full' },
      compression,
    );
    const fill = async (): Promise<void> => {
      for (let piece = 0; piece < 50; piece += 1)
        await write(spool, Buffer.alloc(100_000, Math.random().toString()));
      await spool.finish();
    };
    await expect(fill()).rejects.toThrow(
      expect.objectContaining({ code: 'SPOOL_ENOSPC' }),
    );
  },
);

test('a file that cannot be flushed is an error', async () => {
  // It takes everything, and cannot be flushed.
  const nowhere = { name: 'null', path: '/dev/null' };
  await using spool = spoolTo(nowhere, 'none');
  await write(spool, Buffer.alloc(2 ** 20));
  await expect(spool.finish()).rejects.toThrow(
    expect.objectContaining({ code: 'SPOOL_EINVAL' }),
  );
});
