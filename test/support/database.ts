/** A database of its own for each test file, so that files run side by side. */
import { randomBytes } from 'node:crypto';
import { Kysely, PostgresDialect } from 'kysely';
import { Client, Pool, type PoolConfig } from 'pg';
import { afterAll } from 'vitest';
import { migrate } from '../../src/postgres/migrate.ts';
import { serviceUrl } from './servers/services.ts';

export interface FreshDatabase extends AsyncDisposable {
  readonly url: string;
  /** For the test's own questions; plain types as pg gives them. */
  readonly pool: Pool;
}

export interface DatabaseOptions {
  /** With the schema `mirror` as the migrations make it; otherwise empty. */
  readonly isMigrated?: boolean;
}

const POOL_MAX = 4;

/**
 * Call it at the top level of a test file (`await freshDatabase()`): it is dropped after
 * the file.
 */
export async function freshDatabase(
  options: DatabaseOptions = {},
): Promise<FreshDatabase> {
  const database = await openFreshDatabase(options);
  afterAll(() => database[Symbol.asyncDispose]());
  return database;
}

/** The same for one test: `await using database = await openFreshDatabase()`. */
export async function openFreshDatabase({
  isMigrated = false,
}: DatabaseOptions = {}): Promise<FreshDatabase> {
  const serverUrl = await serviceUrl('postgres');
  const name = `test_${randomBytes(8).toString('hex')}`;
  await administer(serverUrl, `create database ${name} template template0`);
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  const pool = openTestPool({ connectionString: url.href, max: POOL_MAX });
  if (isMigrated)
    await migrate(
      new Kysely<unknown>({ dialect: new PostgresDialect({ pool }) }),
    );
  return {
    url: url.href,
    pool,
    [Symbol.asyncDispose]: async () => {
      await pool.end();
      await administer(
        serverUrl,
        `drop database if exists ${name} with (force)`,
      );
    },
  };
}

/**
 * A copy of a database as it is now, as a backup that was put back. Idle connections to
 * the original end.
 */
export async function openCopy(
  original: FreshDatabase,
): Promise<FreshDatabase> {
  const copy = await openFreshDatabase();
  const name = new URL(copy.url).pathname.slice(1);
  const from = new URL(original.url).pathname.slice(1);
  const serverUrl = await serviceUrl('postgres');
  await administer(serverUrl, `drop database ${name}`);
  await administer(
    serverUrl,
    `select pg_terminate_backend(pid) from pg_stat_activity where datname = '${from}'`,
  );
  await administer(serverUrl, `create database ${name} template ${from}`);
  return copy;
}

export function openTestPool(config: PoolConfig): Pool {
  const pool = new Pool(config);
  // Tests kill servers and backends: what an idle connection suffers is no failure of its
  // own.
  pool.on('error', () => undefined);
  // Sockets outlive the pool for a moment, in which the database is dropped.
  pool.on('connect', (client) => client.on('error', () => undefined));
  return pool;
}

async function administer(serverUrl: string, statement: string): Promise<void> {
  const client = new Client({ connectionString: serverUrl });
  await client.connect();
  try {
    await client.query(statement);
  } finally {
    await client.end();
  }
}
