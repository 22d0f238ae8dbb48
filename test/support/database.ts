/** Gives each test file a database of its own, so that files can run at the same time. */
import { randomBytes } from 'node:crypto';
import { Kysely, PostgresDialect } from 'kysely';
import { Client, Pool, type PoolConfig } from 'pg';
import { afterAll } from 'vitest';
import { migrate } from '../../src/postgres/migrate.ts';
import { serviceUrl } from './servers/services.ts';

export interface FreshDatabase extends AsyncDisposable {
  readonly url: string;
  /** For the test's own queries; values have pg's default types. */
  readonly pool: Pool;
}

export interface DatabaseOptions {
  /**
   * If true, the migrations have created the schema `mirror`; otherwise the database is
   * empty.
   */
  readonly isMigrated?: boolean;
}

const POOL_MAX = 4;

/**
 * Creates a database that is dropped after the test file. Call it at the top level of the
 * file: `await freshDatabase()`.
 */
export async function freshDatabase(
  options: DatabaseOptions = {},
): Promise<FreshDatabase> {
  const database = await openFreshDatabase(options);
  afterAll(() => database[Symbol.asyncDispose]());
  return database;
}

/**
 * Creates a database for one test: `await using database = await openFreshDatabase()`.
 */
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
 * Copies a database in its current state, as if a backup had been restored. Idle
 * connections to the original are closed.
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
  // Tests kill servers and backends, so errors of idle connections are expected.
  pool.on('error', () => undefined);
  // Sockets outlive the pool for a moment, and the database is dropped in that time.
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
