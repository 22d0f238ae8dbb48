/** A read API over a real database, for the tests of `test/api`. */
import { openWarehouse, type Warehouse } from '../../src/warehouse/database.ts';
import { migrate } from '../../src/warehouse/migrate.ts';
import { PostgresStatusStore } from '../../src/warehouse/status-store.ts';
import { ReadStore } from '../../src/warehouse/read-store.ts';
import { type ApiDeps, type ApiOptions, buildServer } from '../../src/api/server.ts';
import { listen } from '../../src/api/listen.ts';
import { createLog } from '../../src/core/log.ts';
import type { ExportJobs, ExportReader } from '../../src/api/ports.ts';
import { freshDatabase } from '../support/database.ts';

/** A migrated warehouse of its own; dropped after the test file. */
export async function freshWarehouse(): Promise<Warehouse> {
  const database = await freshDatabase();
  const warehouse = openWarehouse({ url: database.url, onIdleError: () => undefined });
  await migrate(warehouse.db);
  return warehouse;
}

export interface TestApi extends AsyncDisposable {
  readonly url: string;
}

/** Answers from `warehouse` on a free loopback port. Parts that a test does not use refuse to be used. */
export async function startApi(
  warehouse: Pick<Warehouse, 'pool'>,
  parts: Partial<ApiDeps> & Partial<ApiOptions> = {},
): Promise<TestApi> {
  const { token, version = '0.0.0-test', ...deps } = parts;
  const server = await buildServer(
    {
      lists: new ReadStore(warehouse.pool),
      status: new PostgresStatusStore(warehouse.pool),
      ledger: NO_LEDGER,
      jobs: NO_JOBS,
      probes: [],
      metrics: [],
      log: createLog('silent'),
      ...deps,
    },
    { token, version },
  );
  return listen(server, { host: '127.0.0.1', port: 0, token });
}

function unused(): never {
  throw new Error('this test has no such part');
}

const NO_LEDGER: ExportReader = { read: unused };
const NO_JOBS: ExportJobs = {
  submit: unused,
  get: unused,
  cancel: unused,
  progress: unused,
  openDownload: unused,
};
