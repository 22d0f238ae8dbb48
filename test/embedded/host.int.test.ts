/** The embedded Postgres by the programs that macOS has, run on this system. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { BY_PROGRAMS, findServerLines } from '../../src/embedded/host.ts';
import type * as host from '../../src/embedded/host.ts';
import { startEmbeddedPostgres } from '../../src/embedded/postgres.ts';
import { ask, postmasterPid } from './observe-server.ts';

vi.mock('../../src/embedded/host.ts', async (importOriginal) => {
  const real = await importOriginal<typeof host>();
  // Root's stand-in cannot enter the folders above, so that `.` has no name for it.
  const isRoot = process.getuid?.() === 0;
  const { currentFolder } = isRoot ? real.BY_PROC : real.BY_PROGRAMS;
  return { ...real, HOST: { ...real.BY_PROGRAMS, currentFolder } };
});

const log = { info: () => undefined, warn: () => undefined };
let dataDir = '';
beforeAll(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'ledger mirror host '));
});
afterAll(() => rm(dataDir, { recursive: true, force: true }));

describe('a system without /proc', () => {
  test('starts the embedded Postgres, shares it, finds it and stops it', async () => {
    const server = await startEmbeddedPostgres({
      dataDir,
      log,
      durable: false,
    });
    const pid = postmasterPid(dataDir);
    try {
      expect(await ask(server.connectionString, 'select 1 as one')).toEqual([
        { one: 1 },
      ]);
      const { name } = await clusterOf(server.connectionString);
      expect(BY_PROGRAMS.isServing(pid, name)).toBe(true);
      expect(BY_PROGRAMS.isServing(process.pid, name)).toBe(false);
      expect(BY_PROGRAMS.serverPids(name)).toContain(pid);

      const second = await startEmbeddedPostgres({
        dataDir,
        log,
        durable: false,
      });
      expect(postmasterPid(dataDir)).toBe(pid);
      await second[Symbol.asyncDispose]();
    } finally {
      await server[Symbol.asyncDispose]();
    }
    expect(BY_PROGRAMS.serverPids('ledger_mirror_')).not.toContain(pid);
  });

  test('finds a server below a folder with spaces, its children, and nothing else', () => {
    const name = 'ledger_mirror_1f';
    const lines = [
      ` 1 /tmp/a space/node modules/bin/postgres -D . -c cluster_name=${name}`,
      `22 postgres: ${name}: writer`,
      `23 postgres -D . -p 5432 -c cluster_name=${name}`,
      `24 postgres: ledger_mirror_2e: writer`,
      `25 tail -f /data/postgres/server.log ${name}`,
      `26 grep postgres: ${name}`,
    ];
    expect(findServerLines(lines.join('\n'), name)).toEqual([1, 22, 23]);
  });

  test('tells one boot and one space of processes, the same at every look', () => {
    expect(BY_PROGRAMS.bootId()).toBe(BY_PROGRAMS.bootId());
    expect(BY_PROGRAMS.bootId()).not.toBe('');
    expect(BY_PROGRAMS.pidNamespace()).toBe('the only one');
  });
});

async function clusterOf(url: string): Promise<{ readonly name: string }> {
  const [row] = (await ask(
    url,
    "select current_setting('cluster_name') as name",
  )) as { name: string }[];
  if (row === undefined) throw new Error('the server has no name');
  return row;
}
