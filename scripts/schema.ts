/**
 * `npm run schema` writes what follows from the migrations and the data dictionary:
 * - `migrations/comments.json`, from the dictionary
 * - `migrations/schema.sql`, a dump of an embedded Postgres with all migrations
 * - `src/postgres/schema.generated.ts`, the same tables as types for the query builder
 * - `migrations/baseline.json`, the name that identifies a database of an earlier
 *   baseline
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
import { schemaTypes } from './schema-types.ts';

const PATH = resolve(import.meta.dirname, '../migrations/schema.sql');
const TYPES = resolve(
  import.meta.dirname,
  '../src/postgres/schema.generated.ts',
);
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
  openWarehouse({
    url: postgres.connectionString,
    onIdleError: () => undefined,
  }),
);
await migrate(warehouse.db);
const schema = await dumpSchema(warehouse.pool);
await writeFile(PATH, schema);
await writeFile(TYPES, await schemaTypes(warehouse.pool));
// The schema of the first release has its own name, which migrations added later do
// not change.
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
