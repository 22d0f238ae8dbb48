/**
 * Migrates the schema to this version, under a lock. It never migrates backward.
 */
import { readdir, readFile } from 'node:fs/promises';
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import { PermanentError, UnreachableError } from '../errors/errors.ts';
import { databaseError } from './database-error.ts';
import { builder } from './builder.ts';
import {
  execute,
  readRow,
  readRows,
  type StatementRunner,
} from './run-statement.ts';
import { requireServer, SERVER_STATE } from './requirements.ts';
import { statement } from './statement.ts';

const MIGRATIONS_DIR = new URL('../../migrations/', import.meta.url);

/** What `npm run schema` records about the first release. */
export interface Baseline {
  /** The names of the first release's migrations. */
  readonly migrations: readonly string[];
  /** The start of the SHA-256 of the schema that these migrations create. */
  readonly schema: string;
}

/** Returns the migrations' files by name, in order. */
async function readSteps(): Promise<ReadonlyMap<string, URL>> {
  const text = await readFile(new URL('baseline.json', MIGRATIONS_DIR), 'utf8');
  const baseline = JSON.parse(text) as Baseline;
  const files = (await readdir(MIGRATIONS_DIR)).filter((file) =>
    /^\d{4}-.*\.[jt]s$/.test(file),
  );
  return new Map(
    files.toSorted().map((file) => {
      const name = file.slice(0, -3);
      // The baseline's name contains its schema's hash, so that a database with an
      // earlier baseline is recognised.
      const isBaseline = name === baseline.migrations[0];
      return [
        isBaseline ? `${name}-${baseline.schema}` : name,
        new URL(file, MIGRATIONS_DIR),
      ];
    }),
  );
}

/**
 * Runs every migration that has not been run on this database. If several processes call
 * it at the same time, one runs the migrations and the others wait.
 * @returns the names of the migrations that it ran
 * @throws UnreachableError `DATABASE_UNREACHABLE`
 * @throws PermanentError as `requireServer` if the server cannot be used,
 *   `DATABASE_NEWER` if a newer version created the database, `DATABASE_OLDER` if an
 *   earlier baseline did, `DATABASE_RIGHTS` if this user may not create what is missing,
 *   or `MIGRATION_FAILED`
 */
export async function migrate<Schema>(
  db: Kysely<Schema>,
): Promise<readonly string[]> {
  const steps = await readSteps();
  const found = await readRow(db, 'open the database', SERVER_STATE);
  requireServer(found);
  if (!found.hasSchema) await makeSchema(db);
  // Take no lock if the schema is up to date. All programs that use Kysely share one lock
  // key, so this one might wait for another program's migration.
  if (found.hasSteps && (await isCurrent(db, [...steps.keys()]))) return [];
  const importStep = async ([name, { href }]: [string, URL]) =>
    [name, await import(href)] as [string, Migration];
  const { Migrator } = await import('kysely/migration');
  const migrator = new Migrator({
    db,
    provider: {
      getMigrations: async () =>
        Object.fromEntries(await Promise.all([...steps].map(importStep))),
    },
    migrationTableSchema: 'mirror',
    migrationTableName: 'migrations',
    migrationLockTableName: 'migrations_lock',
  });
  const { error, results } = await migrator.migrateToLatest();
  if (error !== undefined) {
    const lost = databaseError('migrate the database', error);
    if (lost instanceof UnreachableError) throw lost;
    const failed =
      results?.find((result) => result.status === 'Error')?.migrationName ??
      'the first step';
    throw new PermanentError(
      `Cannot migrate the database: ${failed} failed; none of it was kept`,
      {
        code: 'MIGRATION_FAILED',
        meta: { migration: failed },
        cause: error,
      },
    );
  }
  return (results ?? [])
    .filter((result) => result.status === 'Success')
    .map((result) => result.migrationName);
}

/**
 * Creates the schema, where the migrator keeps its own two tables. Once the schema
 * exists, permission to create schemas is no longer needed.
 */
async function makeSchema(db: StatementRunner): Promise<void> {
  // Two processes creating the schema at the same time may collide.
  const create = statement()`do $$ begin
    create schema if not exists mirror;
    exception when unique_violation then null;
  end $$`;
  await execute(db, 'open the database', create);
}

/**
 * Whether every known migration has been run.
 * @throws PermanentError `DATABASE_OLDER` or `DATABASE_NEWER` if another version created
 *   the schema
 */
async function isCurrent(
  db: StatementRunner,
  known: readonly string[],
): Promise<boolean> {
  const names = builder
    .selectFrom('mirror.migrations')
    .select('name')
    .orderBy('name');
  const applied = await readRows(db, "read the schema's version", names);
  const unknown = applied.find(({ name }) => !known.includes(name));
  if (unknown === undefined) return applied.length === known.length;
  if (unknown.name < (known.at(-1) ?? '')) {
    throw new PermanentError(
      'Cannot use this database: it was created by an earlier version, ' +
        'before the first release; point DATABASE_URL to an ' +
        'empty database and run `ledger-mirror load --all --take-over`, which rebuilds it ' +
        'from the objects',
      { code: 'DATABASE_OLDER', meta: { migration: unknown.name } },
    );
  }
  throw new PermanentError(
    `Cannot use this database: it was migrated to ${unknown.name}, which this ` +
      'version does not know; use the newer ledger-mirror',
    { code: 'DATABASE_NEWER', meta: { migration: unknown.name } },
  );
}
