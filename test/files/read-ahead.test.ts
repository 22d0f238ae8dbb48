/** A stream that is read onto the disk, ahead of its reader. */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { expect, onTestFinished, test } from 'vitest';
import { readAhead } from '../../src/files/read-ahead.ts';
import { waitFor } from '../support/wait-for.ts';

const CONTENT = randomBytes(1_000_003);

test('an input that fits is read to its end before anybody reads it', async () => {
  const world = openWorld();
  const ahead = await readAhead(world.input(), {
    dir: world.dir,
    bytesMax: CONTENT.length,
  });
  await waitFor(() => world.isOver(), { what: 'the end of the input' });
  expect(world.files()).toEqual([]);
  expect((await buffer(ahead)).equals(CONTENT)).toBe(true);
});

test.each([1, 1_000, 65_536, 99_991])(
  'an input larger than the ring arrives whole, and waits for its reader: chunks of %i',
  async (chunkBytes) => {
    const content = CONTENT.subarray(0, chunkBytes === 1 ? 5_000 : undefined);
    const world = openWorld({ chunkBytes, content });
    const bytesMax = Math.ceil(content.length / 7);
    const ahead = await readAhead(world.input(), { dir: world.dir, bytesMax });
    await once(ahead, 'readable');
    expect(world.isOver()).toBe(false);
    expect((await buffer(ahead)).equals(content)).toBe(true);
    expect(world.isOver()).toBe(true);
  },
);

test('a failure comes after the bytes that came before it', async () => {
  const world = openWorld({ failure: new Error('broken') });
  const ahead = await readAhead(world.input(), {
    dir: world.dir,
    bytesMax: CONTENT.length,
  });
  const arrived: Buffer[] = [];
  await expect(async () => {
    for await (const chunk of ahead) arrived.push(chunk as Buffer);
  }).rejects.toThrow('broken');
  expect(Buffer.concat(arrived).equals(CONTENT)).toBe(true);
});

test.each(['before its first chunk', 'after its first chunk'])(
  'a reader that leaves %s ends the input',
  async (when) => {
    const world = openWorld();
    const ahead = await readAhead(world.input(), {
      dir: world.dir,
      bytesMax: 100_000,
    });
    if (when === 'after its first chunk') await once(ahead, 'readable');
    ahead.destroy();
    await waitFor(() => world.isOver(), { what: 'the end of the input' });
    expect(world.files()).toEqual([]);
  },
);

function openWorld({
  chunkBytes = 10_000,
  content = CONTENT,
  failure = undefined as Error | undefined,
} = {}) {
  const dir = mkdtempSync(join(tmpdir(), 'lm-ahead-'));
  onTestFinished(() => rmSync(dir, { recursive: true }));
  let isOver = false;
  async function* input(): AsyncGenerator<Buffer> {
    try {
      for (let at = 0; at < content.length; at += chunkBytes)
        yield content.subarray(at, at + chunkBytes);
      if (failure !== undefined) throw failure;
    } finally {
      isOver = true;
    }
  }
  return {
    dir,
    input,
    isOver: () => isOver,
    files: () => readdirSync(dir),
  };
}
