/** Streams of local files: what they bring, and the memory that they take. */
import { mkdtemp, open, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { streamFile, streamOpenFile } from '../../src/files/file-stream.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'file stream '));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

async function made(name: string, content: Buffer): Promise<string> {
  const path = join(folder, name);
  await writeFile(path, content);
  return path;
}

async function readWhole(stream: AsyncIterable<Buffer>): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}

describe('streamFile', () => {
  test('brings a file of any size to its last byte', async () => {
    for (const size of [0, 1, 2, 2 ** 20, 2 ** 20 + 1, 3 * 2 ** 20 - 1]) {
      const content = Buffer.alloc(size, 'x');
      content.write('end', Math.max(0, size - 3));
      const path = await made(`of ${size}`, content);
      const read = await readWhole(await streamFile(path));
      expect(read.equals(content), `${size} bytes`).toBe(true);
    }
  });

  test('brings a range, and no more than the file has', async () => {
    const path = await made('range', Buffer.from('0123456789'));
    const read = async (start: number, end: number) =>
      String(await readWhole(await streamFile(path, { start, end })));
    expect(await read(2, 4)).toBe('234');
    expect(await read(8, 50)).toBe('89');
    expect(await read(0, 0)).toBe('0');
  });

  test('takes no more memory for a small file than it has bytes', async () => {
    const path = await made('small', Buffer.from('a few bytes'));
    const before = process.memoryUsage().arrayBuffers;
    const chunks: Buffer[] = [];
    for (let file = 0; file < 64; file += 1)
      chunks.push(await readWhole(await streamFile(path)));
    const grown = process.memoryUsage().arrayBuffers - before;
    expect(chunks).toHaveLength(64);
    // A piece of the full size for each file would be 64 MiB, and as much for the ends.
    expect(grown).toBeLessThan(4 * 2 ** 20);
  });

  test('passes on that a file is not there, and closes what it cannot measure', async () => {
    await expect(streamFile(join(folder, 'nothing'))).rejects.toThrow('ENOENT');
    const file = await open(await made('closed', Buffer.from('x')));
    await file.close();
    await expect(streamOpenFile(file)).rejects.toThrow(/closed|EBADF/);
  });
});
