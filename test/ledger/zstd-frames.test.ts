import { randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { constants, zstdCompressSync } from 'node:zlib';
import { fc } from '../support/properties.ts';
import { describe, expect, test } from 'vitest';
import { plainStream } from '../../src/ledger/object-keys.ts';
import { splitZstdFrames } from '../../src/ledger/zstd-frames.ts';

const { ZSTD_c_checksumFlag, ZSTD_c_contentSizeFlag } = constants;

/** Cuts bytes into chunks of the given sizes, which are repeated. */
function chunksOf(bytes: Buffer, sizes: readonly number[]): Buffer[] {
  const chunks: Buffer[] = [];
  let start = 0;
  for (let index = 0; start < bytes.length; index += 1) {
    const size = sizes[index % sizes.length] ?? 1;
    chunks.push(bytes.subarray(start, start + size));
    start += size;
  }
  return chunks;
}

/** Returns a skippable frame, as other writers of zstd add for their own data. */
function skippable(content: Buffer): Buffer {
  const header = Buffer.alloc(8);
  header.writeUInt32LE(0x184d2a57);
  header.writeUInt32LE(content.length, 4);
  return Buffer.concat([header, content]);
}

const arbitraryPart = fc.record({
  bytes: fc.nat(400_000),
  /** 'random' is stored in raw blocks, 'same' in RLE blocks. */
  content: fc.constantFrom('random', 'same', 'text'),
  hasChecksum: fc.boolean(),
  hasSize: fc.boolean(),
  isSkipped: fc.boolean(),
});

describe('zstd frames', () => {
  test('are read one after another, however the chunks are cut', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(arbitraryPart, { minLength: 1, maxLength: 5 }),
        fc.array(fc.integer({ min: 1, max: 200_000 }), {
          minLength: 1,
          maxLength: 4,
        }),
        async (parts, sizes) => {
          const plain: Buffer[] = [];
          const stored: Buffer[] = [];
          for (const { bytes, content, ...flags } of parts) {
            const text =
              content === 'random'
                ? randomBytes(bytes)
                : Buffer.alloc(bytes, content === 'same' ? 'a' : 'a,b,c\n');
            if (flags.isSkipped) {
              stored.push(skippable(text.subarray(0, 1_000)));
              continue;
            }
            plain.push(text);
            stored.push(
              zstdCompressSync(text, {
                params: {
                  [ZSTD_c_checksumFlag]: Number(flags.hasChecksum),
                  [ZSTD_c_contentSizeFlag]: Number(flags.hasSize),
                },
              }),
            );
          }
          const chunks = chunksOf(Buffer.concat(stored), [...sizes, 70_000]);
          const read = await buffer(plainStream(Readable.from(chunks), 'zstd'));
          expect(read.equals(Buffer.concat(plain))).toBe(true);
        },
      ),
      { numRuns: 60 },
    );
  });

  test('are cut apart where they end, and nothing else is', async () => {
    const frames = [10, 300_000, 0].map((bytes) =>
      zstdCompressSync(randomBytes(bytes)),
    );
    const split: Buffer[] = [];
    for await (const chunk of Readable.from([Buffer.concat(frames)]).pipe(
      splitZstdFrames(),
    ))
      split.push(chunk as Buffer);
    expect(split).toEqual(frames);
  });

  test.each([
    ['cut in the second frame', (bytes: Buffer) => bytes.subarray(0, -3)],
    [
      'followed by other bytes',
      (bytes: Buffer) => Buffer.concat([bytes, Buffer.from('more')]),
    ],
    ['not zstd at all', () => Buffer.from('party_id,asset_id\n')],
  ])('that are %s are an error', async (_what, damage) => {
    const frame = zstdCompressSync(Buffer.alloc(1_000, 'a'));
    const stored = damage(Buffer.concat([frame, frame]));
    await expect(
      buffer(plainStream(Readable.from([stored]), 'zstd')),
    ).rejects.toThrow(
      expect.objectContaining({ code: expect.stringMatching(/^Z/) as string }),
    );
  });
});
