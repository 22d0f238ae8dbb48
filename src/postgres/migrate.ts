/** Brings the schema forward, under a lock, never backward. */
import { readdir, readFile } from 'node:fs/promises';
import { type Kysely, type QueryExecutorProvider, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import { PermanentError, UnreachableError } from '../core/errors.ts';
import { databaseError, readRow, readRows } from './transaction.ts';

const MIGRATIONS_DIR = new URL('../../migrations/', import.meta.url);

/** The steps of the first release, and the start of the SHA-256 of the schema that they make; by `npm run schema`. */
export interface Baseline {
  readonly migrations: readonly string[];
  readonly schema: string;
}

/** The file of each step by its name, in their order. */
async function readSteps(): Promise<ReadonlyMap<string, URL>> {
  const text = await readFile(new URL('baseline.json', MIGRATIONS_DIR), 'utf8');
  const baseline = JSON.parse(text) as Baseline;
  const files = (await readdir(MIGRATIONS_DIR)).filter((file) => /^\d{4}-.*\.[jt]s$/.test(file));
  return new Map(
    files.toSorted().map((file) => {
      const name = file.slice(0, -3);
      // Named after what the baseline makes, so that a database of an earlier baseline is told from this one.
      const isBaseline = name === baseline.migrations[0];
      return [isBaseline ? `${name}-${baseline.schema}` : name, new URL(file, MIGRATIONS_DIR)];
    }),
  );
}

async function loadSteps(steps: ReadonlyMap<string, URL>): Promise<Record<string, Migration>> {
  const loaded = [...steps].map(async ([name, { href }]) => [name, (await import(href)) as Migration]);
  return Object.fromEntries(await Promise.all(loaded)) as Record<string, Migration>;
}

/**
 * Runs every migration that the database has not seen, each call once over all processes.
 * @returns the names that were run
 * @throws UnreachableError `DATABASE_UNREACHABLE`, or PermanentError `DATABASE_NEWER` where the database was
 * made by a newer version, `DATABASE_OLDER` where an earlier baseline made it, `DATABASE_RIGHTS` where this user may not make what is missing
 */
export async function migrate<Schema>(db: Kysely<Schema>): Promise<readonly string[]> {
  const steps = await readSteps();
  await ensureSchema(db);
  // A current schema takes no lock: Kysely's lock key is the same for all its users.
  if (await isCurrent(db, [...steps.keys()])) return [];
  const { Migrator } = await import('kysely/migration');
  const migrator = new Migrator({
    db,
    provider: { getMigrations: () => loadSteps(steps) },
    migrationTableSchema: 'mirror',
    migrationTableName: 'migrations',
    migrationLockTableName: 'migrations_lock',
  });
  const { error, results } = await migrator.migrateToLatest();
  if (error !== undefined) {
    const lost = databaseError('migrate the database', error);
    if (lost instanceof UnreachableError) throw lost;
    const failed = results?.find((result) => result.status === 'Error')?.migrationName ?? 'the first step';
    throw new PermanentError(`Cannot migrate the database: ${failed} failed; nothing of it was kept`, {
      code: 'MIGRATION_FAILED',
      meta: { migration: failed },
      cause: error,
    });
  }
  return (results ?? [])
    .filter((result) => result.status === 'Success')
    .map((result) => result.migrationName);
}

/** Schema first: the migrator keeps its own two tables in it. Where it is there, no right to make one is needed. */
async function ensureSchema(db: QueryExecutorProvider): Promise<void> {
  const action = 'open the database';
  const state = sql<{ present: boolean; may: boolean; name: string; role: string }>`
    select to_regnamespace('mirror') is not null as present, current_database() as name, current_user as role,
           has_database_privilege(current_database(), 'CREATE') as may`;
  const found = await readRow(db, action, state);
  if (found.present) return;
  if (!found.may) {
    throw new PermanentError(
      `Cannot migrate the database: ${found.role} may not create a schema in ${found.name}; ` +
        `let its owner run: grant create on database "${found.name}" to "${found.role}"`,
      { code: 'DATABASE_RIGHTS', meta: { role: found.role, database: found.name } },
    );
  }
  // Concurrent creators may collide.
  const create = sql`do $$ begin create schema if not exists mirror; exception when unique_violation then null; end $$`;
  await readRows(db, action, create);
}

/** @throws PermanentError where another version made it */
async function isCurrent(db: QueryExecutorProvider, known: readonly string[]): Promise<boolean> {
  const action = "read the schema's version";
  const table = sql<{ present: boolean }>`select to_regclass('mirror.migrations') is not null as present`;
  if (!(await readRow(db, action, table)).present) return false;
  const applied = await readRows(
    db,
    action,
    sql<{ name: string }>`select name from mirror.migrations order by name`,
  );
  const unknown = applied.find(({ name }) => !known.includes(name));
  if (unknown === undefined) return applied.length === known.length;
  if (unknown.name < (known.at(-1) ?? '')) {
    throw new PermanentError(
      'Cannot use this database: an earlier version made it, before the first release; point DATABASE_URL to an ' +
        'empty database and run `ledger-mirror load --all`, which rebuilds it from the objects',
      { code: 'DATABASE_OLDER', meta: { migration: unknown.name } },
    );
  }
  throw new PermanentError(
    `Cannot use this database: it was migrated to ${unknown.name}, which this version does not know; use the newer ledger-mirror`,
    { code: 'DATABASE_NEWER', meta: { migration: unknown.name } },
  );
}
