import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { keptGenesis, sandbox } from '../../../src/cli/commands/sandbox.ts';
import type { CommandContext } from '../../../src/cli/context.ts';
import { readConfig } from '../../../src/config/environment.ts';

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

test('a sandbox whose port is in use names the option, and what to give', async () => {
  const taken = createServer();
  await once(taken.listen(0, '127.0.0.1'), 'listening');
  const { port } = taken.address() as AddressInfo;
  const config = readConfig({ env: { DATA_DIR: join(dir, 'busy') }, cwd: dir });
  const context = { config } as Partial<CommandContext> as CommandContext;
  const options = {
    host: '127.0.0.1',
    port,
    seed: 'sandbox',
    release: '0.71.4',
    parties: 3,
    entries: 3,
  } as const;
  await expect(sandbox(options, context)).rejects.toThrow(
    `--port: ${port} of 127.0.0.1 is in use by another process (EADDRINUSE)`,
  );
  taken.close();
});
