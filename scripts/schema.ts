/**
 * `npm run schema`: writes migrations/comments.json anew from the data dictionary, and migrations/schema.sql from an
 * embedded Postgres that all migrations are run in,
 * and migrations/baseline.json, by which a database of an earlier baseline is told.
 */
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { createLog } from '../src/logging/log.ts';
import { startEmbeddedPostgres } from '../src/embedded/postgres.ts';
import { openWarehouse } from '../src/postgres/database.ts';
import { type Baseline, migrate } from '../src/postgres/migrate.ts';
import { describedRelations } from './dictionary.ts';
import { dumpSchema, schemaName } from './schema-dump.ts';

const PATH = resolve(import.meta.dirname, '../migrations/schema.sql');

const DICTIONARY = resolve(import.meta.dirname, '../docs/data-dictionary.md');
const MIGRATIONS = resolve(import.meta.dirname, '../migrations');
const BASELINE = resolve(MIGRATIONS, 'baseline.json');
const COMMENTS = resolve(import.meta.dirname, '../migrations/comments.json');

const described = describedRelations(await readFile(DICTIONARY, 'utf8'));
await writeFile(COMMENTS, `${JSON.stringify(described, null, 2)}\n`);

await using stack = new AsyncDisposableStack();
const dataDir = await mkdtemp(join(tmpdir(), 'ledger-mirror-schema-'));
stack.defer(() => rm(dataDir, { recursive: true, force: true }));
const signal = new AbortController().signal;
const postgres = stack.use(
  await startEmbeddedPostgres({ dataDir, log: createLog('warn'), signal }),
);
const warehouse = stack.use(
  openWarehouse({ url: postgres.connectionString, onIdleError: () => undefined }),
);
await migrate(warehouse.db);
const schema = await dumpSchema(warehouse.pool);
await writeFile(PATH, schema);
// The first release's schema has a name of its own; a migration added later leaves it as it is.
const migrations = (await readdir(MIGRATIONS))
  .filter((file) => file.endsWith('.ts'))
  .map((file) => file.slice(0, -3));
const baseline = JSON.parse(await readFile(BASELINE, 'utf8')) as Baseline;
if (isDeepStrictEqual(migrations.toSorted(), baseline.migrations)) {
  await writeFile(
    BASELINE,
    `${JSON.stringify({ migrations, schema: schemaName(schema) }, null, 2)}\n`,
  );
}
