/** Servers of Postgres as other people run them: TLS with an own authority, several hosts, few rights. */
import { chown, chmod, mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startEmbeddedPostgres } from '../../src/embedded/postgres.ts';
import { errorCode } from '../../src/errors/errors.ts';
import { openWarehouse } from '../../src/postgres/database.ts';
import { openHome } from '../cli/mirror-home.ts';
import { makeCertificates } from '../source/certificate.ts';
import { openFreshDatabase } from '../support/database.ts';
import { serviceUrl } from '../support/servers/services.ts';
import { startSandbox } from '../support/sandbox.ts';
import { waitFor } from '../support/wait-for.ts';

const SILENT = { info: () => undefined, warn: () => undefined };
const SAMPLE_MS = 200;
/** Longer than any pool keeps an idle connection. */
const SETTLED_MS = 32_000;
const SAMPLED_MS = 20_000;

describe('a server with TLS by an authority of its own', () => {
  let server: OwnServer;
  let caFile = '';
  let otherFile = '';
  beforeAll(async () => {
    server = await OwnServer.start();
    const own = makeCertificates();
    await server.write('server.key', own.key);
    await server.write('server.crt', own.cert);
    caFile = await server.write('ca.crt', own.authority);
    otherFile = await server.write('other.crt', makeCertificates().authority);
    await server.set('ssl_key_file', join(server.home, 'server.key'));
    await server.set('ssl_cert_file', join(server.home, 'server.crt'));
    await server.set('ssl', 'on');
  });
  afterAll(() => server[Symbol.asyncDispose]());

  const ca = (file: string): string =>
    `sslrootcert=${encodeURIComponent(file)}`;

  test.each<[string, () => string, string, boolean]>([
    ['disable', () => 'sslmode=disable', '127.0.0.1', false],
    ['prefer, as psql does', () => '', '127.0.0.1', true],
    ['require', () => 'sslmode=require', '127.0.0.1', true],
    ['verify-ca', () => `sslmode=verify-ca&${ca(caFile)}`, 'localhost', true],
    [
      'verify-full',
      () => `sslmode=verify-full&${ca(caFile)}`,
      '127.0.0.1',
      true,
    ],
  ])('takes %s', async (_, parameters, host, isEncrypted) => {
    expect(await isTls(server.url(parameters(), host))).toBe(isEncrypted);
  });

  test.each<[string, () => string, string]>([
    [
      'verify-full without the authority',
      () => 'sslmode=verify-full',
      '127.0.0.1',
    ],
    [
      'another authority',
      () => `sslmode=verify-ca&${ca(otherFile)}`,
      '127.0.0.1',
    ],
    [
      'require with another authority',
      () => `sslmode=require&${ca(otherFile)}`,
      '127.0.0.1',
    ],
    [
      'verify-full under another name',
      () => `sslmode=verify-full&${ca(caFile)}`,
      'localhost',
    ],
  ])(
    'refuses at once, and names sslrootcert: %s',
    async (_, parameters, host) => {
      const failure = await isTls(server.url(parameters(), host)).catch(
        (error: unknown) => error,
      );
      expect(errorCode(failure)).toBe('DATABASE_TLS');
      expect(String(failure)).toContain('sslrootcert');
    },
  );
});

test('a server without TLS is refused at once where the URL demands it', async () => {
  const url = new URL(await serviceUrl('postgres'));
  url.search = '?sslmode=require';
  await using home = await openHome({ DATABASE_URL: url.href });
  const { code, stderr } = await home.run(['status']);
  expect(code).toBe(1);
  expect(stderr.trim().split('\n')).toHaveLength(1);
  expect(stderr).toContain('the server does not support TLS');
});

test('of several hosts the one that takes writes is found, behind a dead and a read-only one', async () => {
  await using readOnly = await OwnServer.start();
  await using database = await openFreshDatabase();
  const { host, pathname } = new URL(database.url);
  const name = pathname.slice(1);
  const role = `lm_both_${name.slice(-8)}`;
  const makeRole = `create role ${role} login superuser password 'both'`;
  await database.pool.query(makeRole);
  // Before it takes no writes any more.
  await readOnly.run(makeRole);
  await readOnly.run(`create database ${name}`);
  await readOnly.set('default_transaction_read_only', 'on');
  const other = new URL(readOnly.url('')).host;
  const url = `postgres://${role}:both@127.0.0.1:1,${other},${host}${pathname}`;
  await using home = await openHome({ DATABASE_URL: url });
  const migrated = await home.run(['migrate']);
  expect(migrated).toMatchObject({ code: 0 });
  const { rows } = await database.pool.query(
    "select to_regclass('mirror.migrations') is not null as made",
  );
  expect(rows).toEqual([{ made: true }]);
  await database.pool.query(`reassign owned by ${role} to current_user`);
  await database.pool.query(`drop role ${role}`);
});

describe('a server that cannot hold a mirror is refused in one line, before anything is made', () => {
  test('an encoding other than UTF8', async () => {
    await using database = await openFreshDatabase();
    const name = `${new URL(database.url).pathname.slice(1)}_ascii`;
    await database.pool.query(
      `create database ${name} encoding 'SQL_ASCII' locale 'C' template template0`,
    );
    try {
      const url = new URL(database.url);
      url.pathname = name;
      expect(await migrateRefused(url.href)).toEqual({
        code: 1,
        line: expect.stringContaining(
          "its encoding is SQL_ASCII; make one by: create database mirror encoding 'UTF8'",
        ),
        tables: 0,
      });
    } finally {
      await database.pool.query(`drop database ${name} with (force)`);
    }
  });

  test.each([
    ['grant create on database', 'create extension', ''],
    ['create extension btree_gist', 'grant create on database', 'extension'],
  ])(
    'a role that lacks rights: %s is not asked for what it has',
    async (wanted, other, given) => {
      await using database = await openFreshDatabase();
      const role = `lm_poor_${new URL(database.url).pathname.slice(-8)}`;
      const url = new URL(database.url);
      await database.pool.query(`create role ${role} login password 'poor'`);
      try {
        if (given === 'extension') {
          // The schema is there and its own; the extension is not, and may not be made.
          await database.pool.query(
            `create schema mirror authorization ${role}`,
          );
        }
        url.username = role;
        url.password = 'poor';
        const refused = await migrateRefused(url.href);
        expect(refused).toMatchObject({ code: 1, tables: 0 });
        expect(refused.line).toContain(wanted);
        expect(refused.line).not.toContain(other);
      } finally {
        await database.pool.query(`drop owned by ${role}`);
        await database.pool.query(`drop role ${role}`);
      }
    },
  );
});

test('an idle up holds at most ten connections, with its queues in Postgres', async () => {
  await using database = await openFreshDatabase();
  const sandbox = await startSandbox({ parties: 2, entriesMean: 5 });
  try {
    await using home = await openHome({
      SOURCE_URL: sandbox.url,
      DATABASE_URL: database.url,
      API_PORT: '0',
    });
    const up = home.start(['up']);
    await waitFor(() => up.stderr.includes('"Working"'), {
      what: 'the worker',
    });
    await sleep(SETTLED_MS);
    const counts: number[] = [];
    for (let left = SAMPLED_MS; left > 0; left -= SAMPLE_MS) {
      counts.push(await countConnections(database.pool));
      await sleep(SAMPLE_MS);
    }
    expect(Math.min(...counts)).toBeGreaterThan(0);
    expect(Math.max(...counts)).toBeLessThanOrEqual(10);
  } finally {
    await sandbox.stop();
  }
});

async function countConnections(pool: {
  query(text: string): Promise<{ rows: { count: number }[] }>;
}): Promise<number> {
  const { rows } = await pool.query(
    `select count(*)::int as count from pg_stat_activity
     where datname = current_database() and pid <> pg_backend_pid()`,
  );
  return rows[0]?.count ?? 0;
}

/** Runs `migrate`, and returns how it ended and how many tables it has left behind. */
async function migrateRefused(url: string) {
  await using home = await openHome({ DATABASE_URL: url });
  const ended = await home.run(['migrate']);
  const client = new Client({ connectionString: url });
  await client.connect();
  const { rows } = await client.query(
    "select from pg_class where relnamespace = to_regnamespace('mirror')",
  );
  await client.end();
  return { code: ended.code, line: ended.stderr, tables: rows.length };
}

async function isTls(url: string): Promise<boolean> {
  await using warehouse = openWarehouse({ url, onIdleError: () => undefined });
  const { rows } = await warehouse.pool.query<{ ssl: boolean }>(
    'select ssl from pg_stat_ssl where pid = pg_backend_pid()',
  );
  return rows[0]?.ssl === true;
}

/** A server beside that of the other tests, whose settings a test may change. */
class OwnServer implements AsyncDisposable {
  readonly home: string;
  readonly #server: Awaited<ReturnType<typeof startEmbeddedPostgres>>;

  private constructor(
    home: string,
    server: Awaited<ReturnType<typeof startEmbeddedPostgres>>,
  ) {
    this.home = home;
    this.#server = server;
  }

  static async start(): Promise<OwnServer> {
    const dataDir = await mkdtemp(join(tmpdir(), 'lm-own-postgres-'));
    await chmod(dataDir, 0o755);
    const server = await startEmbeddedPostgres({
      dataDir,
      log: SILENT,
      durable: false,
    });
    return new OwnServer(dataDir, server);
  }

  url(parameters: string, host = '127.0.0.1'): string {
    const url = new URL(this.#server.connectionString);
    url.hostname = host;
    url.search = parameters;
    return url.href;
  }

  /** A file that the server's own account may read, and nobody else. */
  async write(name: string, text: string): Promise<string> {
    const path = join(this.home, name);
    await writeFile(path, text, { mode: 0o600 });
    const { uid, gid } = await stat(join(this.home, 'postgres', 'cluster'));
    await chown(path, uid, gid);
    return path;
  }

  async set(name: string, value: string): Promise<void> {
    await this.run(`alter system set ${name} = '${value}'`);
    await this.run('select pg_reload_conf()');
    await waitFor(async () => (await this.#show(name)) === value, {
      what: `${name} to be ${value}`,
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#server[Symbol.asyncDispose]();
    await rm(this.home, { recursive: true, force: true });
  }

  async #show(name: string): Promise<string> {
    const rows = await this.run(`show ${name}`);
    return Object.values(rows[0] ?? {})[0] ?? '';
  }

  async run(statement: string): Promise<Record<string, string>[]> {
    const client = new Client({
      connectionString: this.#server.connectionString,
    });
    await client.connect();
    try {
      const { rows } = await client.query<Record<string, string>>(statement);
      return rows;
    } finally {
      await client.end();
    }
  }
}
