/** `npm run schema`: writes migrations/schema.sql anew, from an embedded Postgres that all migrations are run in. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createLog } from '../src/core/log.ts';
import { startEmbeddedPostgres } from '../src/embedded/postgres.ts';
import { openWarehouse } from '../src/postgres/database.ts';
import { migrate } from '../src/postgres/migrate.ts';
import { dumpSchema } from './schema-dump.ts';

const PATH = resolve(import.meta.dirname, '../migrations/schema.sql');

await using stack = new AsyncDisposableStack();
const dataDir = await mkdtemp(join(tmpdir(), 'ledger-mirror-schema-'));
stack.defer(() => rm(dataDir, { recursive: true, force: true }));
const signal = new AbortController().signal;
const postgres = stack.use(await startEmbeddedPostgres({ dataDir, log: createLog('warn'), signal }));
const warehouse = stack.use(openWarehouse({ url: postgres.connectionString, onIdleError: () => undefined }));
await migrate(warehouse.db);
await writeFile(PATH, await dumpSchema(warehouse.pool));
