import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
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

const MIB = 2 ** 20;
const HEADER = Buffer.from('a,b\n');

function spoolTo(file: SpoolFile, compression: Compression): RangeSpool {
  return new RangeSpool(-Infinity, Infinity, {
    compression,
    frameSizes: { first: 4 * MIB, next: 2 * MIB },
    spoolFile: async () => file,
  });
}

async function write(spool: RangeSpool, rows: Buffer): Promise<void> {
  spool.add(rows, { earliest: 0, latest: 0 });
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

describe('an object of more than one frame', () => {
  const COMPRESSIONS = ['zstd', 'gzip', 'none'] as const;
  const PIECE_ROWS = 50_000;
  /** Rows of one second for each piece, with seconds that do not ascend. */
  const PIECES = [7, 3, 5, 9, 8, 2, 4].map((second) => ({
    second,
    rows: Buffer.from(`${second},${'x'.repeat(30)}\n`.repeat(PIECE_ROWS)),
  }));

  async function spoolPieces(name: string, compression: Compression) {
    const path = join(folder, name);
    await using spool = spoolTo({ name, path }, compression);
    // As an export does, which takes the next block while the last one is written.
    const flushed = PIECES.map(({ second, rows }) => {
      spool.add(rows, { earliest: second, latest: second });
      return spool.flush(HEADER);
    });
    await Promise.all(flushed);
    const spooled = await spool.finish();
    return { stored: await readFile(path), spooled };
  }

  test.each(COMPRESSIONS)(
    'has frames that follow each other to its end: %s',
    async (compression) => {
      const { stored, spooled } = await spoolPieces(
        `all-${compression}`,
        compression,
      );
      const plain = Buffer.concat([HEADER, ...PIECES.map(({ rows }) => rows)]);
      const read = await buffer(
        plainStream(Readable.from([stored]), compression),
      );
      expect(read.equals(plain)).toBe(true);
      expect(spooled).toMatchObject({
        bytes: BigInt(plain.length),
        sha256: sha256(plain),
        objectBytes: BigInt(stored.length),
        objectSha256: sha256(stored),
      });
      let end = 0n;
      for (const { offset, bytes } of spooled?.frames ?? []) {
        expect(offset).toBe(end);
        end += bytes;
      }
      expect(end).toBe(BigInt(stored.length));
    },
  );

  test.each(COMPRESSIONS)(
    'has frames that can each be read alone, and tell their seconds: %s',
    async (compression) => {
      const { stored, spooled } = await spoolPieces(
        `each-${compression}`,
        compression,
      );
      const found: string[][] = [];
      for (const { offset, bytes, earliest, latest } of spooled?.frames ?? []) {
        const part = stored.subarray(Number(offset), Number(offset + bytes));
        const text = await buffer(
          plainStream(Readable.from([part]), compression),
        );
        const lines = text
          .toString()
          .replace(HEADER.toString(), '')
          .split('\n');
        const seconds = new Set(
          lines.slice(0, -1).map((line) => line[0] ?? ''),
        );
        found.push([...seconds]);
        const numbers = [...seconds].map(BigInt);
        expect(earliest).toBe(1_000_000n * smallest(numbers));
        expect(latest).toBe(1_000_000n * largest(numbers));
      }
      // Each piece has 1.7 MB. The first frame has 4 MiB at least, the others 2 MiB.
      expect(found).toEqual([
        ['7', '3', '5'],
        ['9', '8'],
        ['2', '4'],
      ]);
    },
  );

  test('has no frames to tell if it has only one', async () => {
    const path = join(folder, 'small');
    await using spool = spoolTo({ name: 'small', path }, 'zstd');
    await write(spool, Buffer.from('1,a\n'));
    expect((await spool.finish())?.frames).toBeUndefined();
  });
});

function smallest(values: readonly bigint[]): bigint {
  return values.reduce((least, value) => (value < least ? value : least));
}

function largest(values: readonly bigint[]): bigint {
  return values.reduce((most, value) => (value > most ? value : most));
}

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
