/** A mirror behind PgBouncer, before a server whose own settings are another country's. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openHome } from '../cli/mirror-home.ts';
import { openFreshDatabase } from '../support/database.ts';
import { type Sandbox, startSandbox } from '../support/sandbox.ts';
import { Daemon, findProgram, isRoot, type Program } from './programs.ts';

const PROGRAM = 'usr/sbin/pgbouncer';
const pgbouncer = await findProgram('pgbouncer', PROGRAM);

describe.skipIf(pgbouncer === undefined)('behind PgBouncer', () => {
  let sandbox: Sandbox;
  beforeAll(async () => {
    sandbox = await startSandbox({
      parties: 3,
      entriesMean: 20,
      rateLimit: 'none',
    });
  });
  afterAll(() => sandbox.stop());

  test('in session mode a night is complete and proven, whatever the server has set', async () => {
    await using database = await openFreshDatabase();
    const name = new URL(database.url).pathname.slice(1);
    for (const setting of [
      "TimeZone = 'Asia/Tokyo'",
      "DateStyle = 'SQL, DMY'",
      "IntervalStyle = 'iso_8601'",
      "bytea_output = 'escape'",
      "extra_float_digits = '-3'",
      "search_path = ''",
      "statement_timeout = '30ms'",
      "idle_session_timeout = '1s'",
    ])
      await database.pool.query(`alter database ${name} set ${setting}`);
    await using pooler = await startPooler(database.url, 'session');
    await using home = await openHome({
      SOURCE_URL: sandbox.url,
      DATABASE_URL: through(pooler, database.url),
    });

    const night = await home.json(['nightly']);
    expect(night).toMatchObject({ code: 0, document: { verdict: 'complete' } });
    expect(night.stderr).not.toContain('NaN');
    const deep = await home.run(['verify', '--deep']);
    expect(deep).toMatchObject({ code: 0 });
    const status = await home.run(['status']);
    expect(status.stdout).toMatch(/complete/);
    expect(status.stdout).not.toMatch(/NaN|Invalid Date/);
    const doctor = await home.run(['doctor']);
    expect(doctor.stdout).toMatch(
      /ok +session: its settings are those that were set after connecting/,
    );
  });

  test.each(['transaction', 'statement'])(
    'in %s mode every command ends at once with one line that says what to set',
    async (mode) => {
      await using database = await openFreshDatabase();
      await using pooler = await startPooler(database.url, mode);
      await using home = await openHome({
        SOURCE_URL: sandbox.url,
        DATABASE_URL: through(pooler, database.url),
      });
      for (const command of ['status', 'nightly']) {
        const { code, stderr } = await home.run([command]);
        expect(stderr).toContain('set its pool_mode to session');
        expect(code).toBe(1);
      }
      const { rows } = await database.pool.query(
        "select from pg_namespace where nspname = 'mirror'",
      );
      expect(rows).toEqual([]);
    },
  );
});

function startPooler(url: string, mode: string): Promise<Daemon> {
  const { hostname, port, username, password } = new URL(url);
  return Daemon.start(
    pgbouncer as Program,
    PROGRAM,
    (dir, own) => `[databases]
* = host=${hostname} port=${port} user=${username} password=${decodeURIComponent(password)}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${own}
unix_socket_dir = ${dir}
auth_type = any
pool_mode = ${mode}
`,
    (file) => (isRoot ? ['-u', 'nobody', file] : [file]),
  );
}

/** The same database, at the pooler. */
function through(pooler: Daemon, url: string): string {
  const address = new URL(url);
  address.port = String(pooler.port);
  return address.href;
}
