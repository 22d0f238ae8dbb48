/**
 * `npm run schema`: writes migrations/comments.json anew from the data dictionary, and migrations/schema.sql from an
 * embedded Postgres that all migrations are run in.
 */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createLog } from '../src/core/log.ts';
import { startEmbeddedPostgres } from '../src/embedded/postgres.ts';
import { openWarehouse } from '../src/postgres/database.ts';
import { migrate } from '../src/postgres/migrate.ts';
import { describedRelations } from './dictionary.ts';
import { dumpSchema } from './schema-dump.ts';

const PATH = resolve(import.meta.dirname, '../migrations/schema.sql');

const DICTIONARY = resolve(import.meta.dirname, '../docs/data-dictionary.md');
const COMMENTS = resolve(import.meta.dirname, '../migrations/comments.json');

const described = describedRelations(await readFile(DICTIONARY, 'utf8'));
await writeFile(COMMENTS, `${JSON.stringify(described, null, 2)}\n`);

await using stack = new AsyncDisposableStack();
const dataDir = await mkdtemp(join(tmpdir(), 'ledger-mirror-schema-'));
stack.defer(() => rm(dataDir, { recursive: true, force: true }));
const signal = new AbortController().signal;
const postgres = stack.use(await startEmbeddedPostgres({ dataDir, log: createLog('warn'), signal }));
const warehouse = stack.use(openWarehouse({ url: postgres.connectionString, onIdleError: () => undefined }));
await migrate(warehouse.db);
await writeFile(PATH, await dumpSchema(warehouse.pool));
