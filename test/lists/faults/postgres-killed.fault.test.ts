/**
 * The database server is killed with -9 in the middle of a sync and comes back: the sync
 * waits, and goes on.
 */
import { mkdtemp, readFile, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { createLog } from '../../../src/logging/log.ts';
import { startEmbeddedPostgres } from '../../../src/embedded/postgres.ts';
import { CuttingProxy } from './cutting-proxy.ts';
import { ListDouble, parties } from '../list-double.ts';
import { openMigrated, SyncWorld } from '../sync-world.ts';

const log = createLog('silent');

async function postmasterPid(dataDir: string): Promise<number> {
  const files = await readdir(dataDir, { recursive: true });
  const file = files.find((name) => name.endsWith('postmaster.pid'));
  return Number(
    (await readFile(join(dataDir, file ?? ''), 'utf8')).split('\n', 1)[0],
  );
}

test('a sync ends exactly after Postgres was killed at a commit three times', async () => {
  await using stack = new AsyncDisposableStack();
  const dataDir = await mkdtemp(join(tmpdir(), 'ledger-mirror-walk-'));
  stack.defer(() => rm(dataDir, { recursive: true, force: true }));
  const first = stack.use(await startEmbeddedPostgres({ dataDir, log }));
  const proxy = stack.use(await CuttingProxy.before(first.connectionString));
  const warehouse = stack.use(await openMigrated(proxy.url));
  const world = new SyncWorld(warehouse);
  const double = new ListDouble();
  double.lists.parties = parties(300);
  const comeBack = async (): Promise<void> => {
    const again = stack.use(await startEmbeddedPostgres({ dataDir, log }));
    proxy.target = new URL(again.connectionString);
  };
  let commits = 0;
  const { verdict, evidence } = await world.sync(
    double,
    { list: 'parties' },
    {
      deps: {
        failpoint: async (label) => {
          if (label !== 'committing') return;
          commits += 1;
          if (![5, 11, 20].includes(commits)) return;
          process.kill(await postmasterPid(dataDir), 'SIGKILL');
          // The sync meets the server's absence first, and its return some hundred
          // milliseconds later.
          void comeBack();
        },
      },
    },
  );
  expect(evidence).toMatchObject({ missing: [], doubts: [], rows: '300' });
  expect(verdict).toBe('complete');
  expect(await world.held('parties')).toEqual(
    double.lists.parties.map(({ row }) => row.key),
  );
  expect(commits).toBeGreaterThan(20);
});
