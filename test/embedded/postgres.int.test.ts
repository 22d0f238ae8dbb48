/**
 * The embedded Postgres keeps its data, is shared, and is found again whatever was
 * killed.
 */
import {
  chmodSync,
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  afterAll,
  afterEach,
  beforeEach,
  describe,
  expect,
  test,
} from 'vitest';
import {
  type EmbeddedPostgres,
  startEmbeddedPostgres,
} from '../../src/embedded/postgres.ts';
import { type Child, runScript } from '../support/process.ts';
import { waitFor } from '../support/wait-for.ts';
import { ask, postmasterPid, processState } from './observe-server.ts';

const HOLDER = fileURLToPath(new URL('holder.ts', import.meta.url));
const SILENT = { info: () => undefined, warn: () => undefined };

// A folder that only we may enter, with a space in its name: the server's user is
// somebody else for root.
const root = mkdtempSync(join(tmpdir(), 'ledger mirror '));
let dataDir = '';
let pid = 0;

beforeEach(() => {
  dataDir = mkdtempSync(join(root, 'data '));
});
afterEach(() => {
  // A test that failed half way must not leave a server behind.
  if (pid !== 0 && !isStopped()) process.kill(pid, 'SIGQUIT');
  pid = 0;
});
afterAll(() => {
  rmSync(root, { recursive: true, force: true });
});

async function start(durable = false): Promise<EmbeddedPostgres> {
  const server = await startEmbeddedPostgres({ dataDir, log: SILENT, durable });
  pid = postmasterPid(dataDir);
  return server;
}

function hold(): Child {
  return runScript(HOLDER, [dataDir]);
}

async function heldUrl(holder: Child): Promise<string> {
  const [, url = ''] = await holder.waitForLine(/^url (.+)$/m);
  pid = postmasterPid(dataDir);
  return url;
}

/** Where nobody buries the dead, an ended process stays a zombie. */
function isStopped(): boolean {
  return (processState(pid)?.state ?? 'Z') === 'Z';
}

test('data, with durable settings, lasts from one command to the next', async () => {
  {
    await using first = await start(true);
    await ask(first.connectionString, 'create table kept as select 7 as n');
    const settings = await ask(
      first.connectionString,
      `select name, setting from pg_settings where name in
        ('fsync', 'synchronous_commit', 'full_page_writes', 'server_encoding', 'TimeZone', 'listen_addresses')
       union select 'collation', datcollate from pg_database where datname = current_database()`,
    );
    expect(
      Object.fromEntries(settings.map(({ name, setting }) => [name, setting])),
    ).toEqual({
      fsync: 'on',
      synchronous_commit: 'on',
      full_page_writes: 'on',
      server_encoding: 'UTF8',
      TimeZone: 'UTC',
      listen_addresses: '127.0.0.1',
      collation: 'C',
    });
  }
  expect(isStopped()).toBe(true);
  await using second = await start(true);
  expect(await ask(second.connectionString, 'select n from kept')).toEqual([
    { n: 7 },
  ]);
});

test('the server runs without privileges, in its own session, closed to other users', async () => {
  await using server = await start();
  const { uid, session } = processState(pid) ?? {};
  expect(uid).not.toBe(0);
  expect(session).toBe(pid);
  expect(statSync(join(dataDir, 'postgres', 'password')).mode & 0o777).toBe(
    0o600,
  );
  const stranger = new URL(server.connectionString);
  stranger.password = 'guessed';
  await expect(ask(stranger.href, 'select 1')).rejects.toMatchObject({
    code: '28P01',
  });
});

test('a server that was killed is started again with its rows, where its users look for it', async () => {
  await using first = await start();
  await ask(first.connectionString, 'create table kept as select 7 as n');
  process.kill(pid, 'SIGKILL');
  await waitFor(isStopped, { what: 'end of the server' });
  await using second = await start();
  expect(second.connectionString).toBe(first.connectionString);
  expect(await ask(first.connectionString, 'select n from kept')).toEqual([
    { n: 7 },
  ]);
});

test('a killed server that its parent never buried is told from a living one', async () => {
  await using holder = hold();
  await heldUrl(holder);
  process.kill(holder.pid, 'SIGSTOP');
  process.kill(pid, 'SIGKILL');
  const zombie = pid;
  await waitFor(() => processState(zombie)?.state === 'Z', { what: 'zombie' });
  await using server = await start();
  expect(await ask(server.connectionString, 'select 1 as n')).toEqual([
    { n: 1 },
  ]);
  expect(pid).not.toBe(zombie);
});

test('a stale postmaster.pid that names a living process of somebody else is no server', async () => {
  await (await start())[Symbol.asyncDispose]();
  const file = join(dataDir, 'postgres', 'cluster', 'postmaster.pid');
  writeFileSync(
    file,
    `${process.pid}\n/elsewhere\n1\n5432\n\n127.0.0.1\n\nready   \n`,
  );
  await using server = await start();
  expect(await ask(server.connectionString, 'select 1 as n')).toEqual([
    { n: 1 },
  ]);
});

test('the server of a killed command runs on, and the next command takes it over and stops it', async () => {
  const holder = hold();
  const url = await heldUrl(holder);
  await holder.end('SIGKILL');
  expect(isStopped()).toBe(false);
  const before = pid;
  {
    await using server = await start();
    expect(server.connectionString).toBe(url);
    expect(pid).toBe(before);
  }
  expect(isStopped()).toBe(true);
});

test('two commands share one server, and the last to leave stops it even after the other was killed', async () => {
  await using first = hold();
  const second = hold();
  expect(await heldUrl(first)).toBe(await heldUrl(second));
  const here = await start();
  expect(await first.end('SIGTERM')).toEqual({ code: 0, signal: null });
  expect(await ask(here.connectionString, 'select 1 as n')).toEqual([{ n: 1 }]);
  await second.end('SIGKILL');
  expect(isStopped()).toBe(false);
  await here[Symbol.asyncDispose]();
  expect(isStopped()).toBe(true);
  await here[Symbol.asyncDispose]();
});

test('four commands that start at the same instant make one data folder and one server', async () => {
  const holders = Array.from({ length: 4 }, hold);
  const urls = await Promise.all(holders.map(heldUrl));
  expect(new Set(urls).size).toBe(1);
  expect(
    readdirSync(join(dataDir, 'postgres')).filter((name) =>
      name.startsWith('initdb-'),
    ),
  ).toEqual([]);
  const exits = await Promise.all(
    holders.map((holder) => holder.end('SIGTERM')),
  );
  expect(exits.every(({ code }) => code === 0)).toBe(true);
  expect(isStopped()).toBe(true);
});

test('a first start that was killed half way is begun anew', async () => {
  let home = '';
  const isHalfWay = (): boolean => {
    try {
      const staging =
        readdirSync(home).find((name) => name.startsWith('initdb-')) ?? '';
      return readdirSync(join(home, staging)).includes('PG_VERSION');
    } catch {
      return false;
    }
  };
  const isWhole = (): boolean => existsSync(join(home, 'cluster'));
  for (;;) {
    dataDir = mkdtempSync(join(root, 'data '));
    home = join(dataDir, 'postgres');
    const holder = hold();
    await waitFor(() => isHalfWay() || isWhole(), { what: 'initdb under way' });
    await holder.end('SIGKILL');
    if (!isWhole()) break;
    // It was ready before it could be killed: its server is stopped, and another one
    // begun.
    await (await start())[Symbol.asyncDispose]();
  }
  // The initdb that outlived its parent may write a moment longer: a later start clears
  // after it.
  await waitFor(
    async () => {
      await using server = await start();
      expect(await ask(server.connectionString, 'select 1 as n')).toEqual([
        { n: 1 },
      ]);
      return !readdirSync(home).some((name) => name.startsWith('initdb-'));
    },
    { what: 'leftovers cleared' },
  );
});

test('a start that is aborted leaves nothing running', async () => {
  const given = new AbortController();
  const started = startEmbeddedPostgres({
    dataDir,
    log: SILENT,
    durable: false,
    signal: given.signal,
  });
  await waitFor(() => readdirSync(dataDir).length > 0, {
    what: 'start under way',
  });
  given.abort(new Error('enough'));
  await expect(started).rejects.toThrow('enough');
  await using server = await start();
  expect(await ask(server.connectionString, 'select 1 as n')).toEqual([
    { n: 1 },
  ]);
});

test('data of another version, or without its password, is refused with what to do', async () => {
  await (await start())[Symbol.asyncDispose]();
  const home = join(dataDir, 'postgres');
  const version = readFileSync(join(home, 'cluster', 'PG_VERSION'), 'utf8');
  writeFileSync(join(home, 'cluster', 'PG_VERSION'), '12\n');
  await expect(start()).rejects.toMatchObject({ code: 'EMBEDDED_VERSION' });
  writeFileSync(join(home, 'cluster', 'PG_VERSION'), version);
  rmSync(join(home, 'password'));
  await expect(start()).rejects.toMatchObject({ code: 'EMBEDDED_PASSWORD' });
});

test('the log holds what the server says of itself, and no failed statement: it does not grow with use', async () => {
  await using server = await start();
  await expect(ask(server.connectionString, 'select 1 / 0')).rejects.toThrow(
    'division by zero',
  );
  const log = readFileSync(join(dataDir, 'postgres', 'server.log'), 'utf8');
  expect(log).toContain('database system is ready');
  expect(log).not.toContain('division by zero');
});

test('a server that cannot start says why', async () => {
  await (await start())[Symbol.asyncDispose]();
  writeFileSync(
    join(dataDir, 'postgres', 'cluster', 'postgresql.auto.conf'),
    `no_such_setting = 'x'\n`,
  );
  await expect(start()).rejects.toMatchObject({
    code: 'EMBEDDED_START',
    message: expect.stringContaining('FATAL'),
  });
});

test.runIf(process.getuid?.() === 0)(
  "another user's folder is refused, one's own works",
  async () => {
    const nobody = { uid: 65_534, gid: 65_534 };
    await (await start())[Symbol.asyncDispose]();
    chmodSync(root, 0o755);
    chmodSync(dataDir, 0o755);
    await using refused = runScript(HOLDER, [dataDir], nobody);
    await refused.waitForLine(/^failed EMBEDDED_NOT_OURS /m);
    dataDir = join(dataDir, 'own');
    mkdirSync(dataDir);
    chmodSync(dataDir, 0o777);
    await using accepted = runScript(HOLDER, [dataDir], nobody);
    await heldUrl(accepted);
    expect(processState(pid)?.uid).toBe(nobody.uid);
    await accepted.end('SIGTERM');
    // Root does not come to it: what its owner puts there, root would follow.
    await expect(start()).rejects.toMatchObject({ code: 'EMBEDDED_NOT_OURS' });
    await using again = runScript(HOLDER, [dataDir], nobody);
    await heldUrl(again);
    await again.end('SIGTERM');
  },
);

describe.runIf(process.getuid?.() === 0)(
  'root, where another user prepared the folder',
  () => {
    const games = { uid: 5, gid: 60 };

    function plant(): string {
      const folder = mkdtempSync(join(root, 'planted '));
      const victim = join(folder, 'victim');
      writeFileSync(victim, 'left alone', { mode: 0o600 });
      dataDir = join(folder, 'data');
      const home = join(dataDir, 'postgres');
      mkdirSync(home, { recursive: true });
      for (const name of [
        'password',
        'server.log',
        'turn.lock',
        'holders.lock',
      ])
        symlinkSync(victim, join(home, name));
      return victim;
    }

    function expectUntouched(victim: string): void {
      expect(readFileSync(victim, 'utf8')).toBe('left alone');
      expect(statSync(victim)).toMatchObject({ uid: 0, size: 10 });
    }

    test('refuses a home that is theirs, and follows no link in it', async () => {
      const victim = plant();
      chownSync(join(dataDir, 'postgres'), games.uid, games.gid);
      await expect(start()).rejects.toMatchObject({
        code: 'EMBEDDED_NOT_OURS',
      });
      expectUntouched(victim);
    });

    test('refuses a data directory that is theirs, whoever the home seems to be of', async () => {
      const victim = plant();
      chownSync(dataDir, games.uid, games.gid);
      await expect(start()).rejects.toMatchObject({
        code: 'EMBEDDED_NOT_OURS',
      });
      expectUntouched(victim);
    });

    test('refuses a home that others may write, and one that is a link', async () => {
      const victim = plant();
      const home = join(dataDir, 'postgres');
      chmodSync(home, 0o777);
      await expect(start()).rejects.toMatchObject({
        code: 'EMBEDDED_NOT_OURS',
      });
      renameSync(home, `${victim}.elsewhere`);
      symlinkSync(`${victim}.elsewhere`, home);
      chmodSync(`${victim}.elsewhere`, 0o700);
      await expect(start()).rejects.toMatchObject({
        code: 'EMBEDDED_NOT_OURS',
      });
      expectUntouched(victim);
    });

    test('replaces a planted password file instead of writing through it', async () => {
      const victim = plant();
      for (const name of ['server.log', 'turn.lock', 'holders.lock'])
        unlinkSync(join(dataDir, 'postgres', name));
      await (await start())[Symbol.asyncDispose]();
      expectUntouched(victim);
      expect(
        lstatSync(join(dataDir, 'postgres', 'password')).isSymbolicLink(),
      ).toBe(false);
    });
  },
);

test('a server that was killed is started again by whoever uses it, where it was', async () => {
  await using server = await start();
  const first = pid;
  process.kill(first, 'SIGKILL');
  const [row] = await waitFor(
    () => ask(server.connectionString, 'select 7 as n').catch(() => undefined),
    {
      what: 'the next server',
    },
  );
  pid = postmasterPid(dataDir);
  expect([row, pid === first]).toEqual([{ n: 7 }, false]);
});

test('a server that cannot be started again is tried until it can, where it was', async () => {
  const said: string[] = [];
  const log = {
    info: () => undefined,
    warn: (_: unknown, text: string) => void said.push(text),
  };
  await using server = await startEmbeddedPostgres({
    dataDir,
    log: log as never,
    durable: false,
  });
  pid = postmasterPid(dataDir);
  const settings = join(dataDir, 'postgres', 'cluster', 'postgresql.auto.conf');
  writeFileSync(settings, `no_such_setting = 'x'\n`);
  process.kill(pid, 'SIGKILL');
  await waitFor(() => said.length > 0, { what: 'a restart that fails' });
  expect(said).toEqual(['Embedded Postgres could not be started again']);
  writeFileSync(settings, '');
  await waitFor(
    () => ask(server.connectionString, 'select 1').catch(() => undefined),
    {
      what: 'a server',
    },
  );
  pid = postmasterPid(dataDir);
});

test.each([
  ['the write-ahead log', 'pg_wal'],
  ['the control file', 'global/pg_control'],
  ['the version', 'PG_VERSION'],
])(
  'a start on data without %s names the way back and the folder',
  async (_, path) => {
    await (await start())[Symbol.asyncDispose]();
    const cluster = join(dataDir, 'postgres', 'cluster');
    rmSync(join(cluster, path), { recursive: true });
    if (path === 'pg_wal') {
      mkdirSync(join(cluster, path), { mode: 0o700 });
      const { uid, gid } = statSync(cluster);
      chownSync(join(cluster, path), uid, gid);
    }

    await expect(start()).rejects.toMatchObject({
      code: 'EMBEDDED_DAMAGED',
      message: expect.stringMatching(
        /move that folder away.*load --all.*nightly/,
      ),
    });
    // What it failed with stays, however often it is tried.
    await expect(start()).rejects.toMatchObject({ code: 'EMBEDDED_DAMAGED' });
  },
);
