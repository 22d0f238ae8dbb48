import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { keptGenesis } from '../../../src/cli/commands/sandbox.ts';

let dir = '';
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'ledger-mirror genesis '));
});
afterAll(() => rm(dir, { recursive: true, force: true }));

describe("a sandbox network's beginning", () => {
  test('is the same at every later start, whatever day that is', async () => {
    const path = join(dir, 'data', 'sandbox.json');
    expect(await keptGenesis(path, 1_000_000n)).toBe(1_000_000n);
    expect(await keptGenesis(path, 87_400_000_000n)).toBe(1_000_000n);
  });

  test.each([
    '{"genesisMicros":',
    '{"genesisMicros":"1500000"}',
    '{"genesisMicros":"900000000000000000"}',
  ])('is made anew where the file holds something else: %s', async (held) => {
    const path = join(dir, 'broken.json');
    await writeFile(path, held);
    expect(await keptGenesis(path, 5_000_000n)).toBe(5_000_000n);
    expect(await keptGenesis(path, 6_000_000n)).toBe(5_000_000n);
  });
});
