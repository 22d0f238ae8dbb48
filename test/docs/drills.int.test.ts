/**
 * The drills of docs/guides/restore.md: each section's loss is inflicted on a mirror, its
 * commands are typed as they stand there, and the mirror is compared with the network.
 * The drills of one mirror run one after the other: each begins with what the one before
 * has restored.
 */
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { Client, type Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startEmbeddedPostgres } from '../../src/embedded/postgres.ts';
import { createLog } from '../../src/logging/log.ts';
import { readInstant } from '../../src/time/time.ts';
import { expectLedgers, expectLists } from '../cli/expect-truth.ts';
import {
  type MirrorHome,
  openHome,
  type Settings,
} from '../cli/mirror-home.ts';
import { openFreshDatabase, openTestPool } from '../support/database.ts';
import { renameBaseline } from '../support/mirror-arrange.ts';
import { type Sandbox, startSandbox } from '../support/sandbox.ts';
import { startOwnRedis } from '../support/servers/redis.ts';
import type { RedisProcess } from '../support/servers/redis-process.ts';
import { waitFor } from '../support/wait-for.ts';
import { CREDENTIALS, S3Double } from '../support/stores/s3-double.ts';
import {
  openMeter,
  type Traffic,
  type TrafficMeter,
} from '../support/measure/traffic-meter.ts';
import { commandsOf, ROOT, sectionsOf } from './pages.ts';

const PAGE = 'docs/guides/restore.md';
const SECTIONS = sectionsOf(PAGE);
const HOUR_MS = 3_600_000;
const ANY_TRAFFIC: Traffic = {
  lists: Infinity,
  exports: Infinity,
  exportBytes: Infinity,
};

/** Sections whose mirror has no DATA_DIR of consequence. */
const ELSEWHERE = 'DATA_DIR is lost';
const MOVE = 'Another bucket, prefix or folder';

let sandbox: Sandbox;
let meter: TrafficMeter;

beforeAll(async () => {
  sandbox = await startSandbox({
    parties: 24,
    entriesMean: 40,
    checkpointIntervalMs: HOUR_MS,
    genesis: readInstant('2026-01-28'),
    rateLimit: 'none',
  });
  meter = await openMeter(sandbox.url);
});

afterAll(async () => {
  await meter[Symbol.asyncDispose]();
  await sandbox.stop();
});

/** What a drill needs of its mirror. */
interface Mirror {
  readonly home: MirrorHome;
  readonly redis: RedisProcess;
}

/** A drill: how the loss comes about, and where its commands are typed. */
interface Drill {
  readonly section: string;
  /** Nothing stops Postgres: the commands share one server, which saves its starts. */
  readonly keepsPostgres?: boolean;
  /** What is lost is known otherwise: the source is asked what it is asked every night. */
  readonly asksAsEveryNight?: boolean;
  /** @returns settings of the section's commands */
  lose(mirror: Mirror): Promise<Settings | undefined>;
}

const DRILLS: readonly Drill[] = [
  {
    section: 'The database goes back to a backup',
    asksAsEveryNight: true,
    lose: async ({ home }) => {
      await copyCluster(home, 'data/postgres', 'backup/postgres');
      await night(home);
      await night(home);
      return undefined;
    },
  },
  {
    section: 'The database is lost',
    asksAsEveryNight: true,
    lose: async () => undefined,
  },
  {
    section: 'Redis is lost',
    asksAsEveryNight: true,
    keepsPostgres: true,
    lose: async ({ redis }) => loseRedis(redis),
  },
  {
    section: 'The database and Redis are lost',
    asksAsEveryNight: true,
    lose: async ({ redis }) => loseRedis(redis),
  },
  {
    section: 'One object is lost',
    keepsPostgres: true,
    lose: async ({ home }) => loseObjects(home, (_, at) => at === 0),
  },
  {
    section: 'Many objects are lost',
    keepsPostgres: true,
    lose: async ({ home }) => loseObjects(home, (_, at) => at % 2 === 0),
  },
  {
    section: 'The lake is lost',
    keepsPostgres: true,
    lose: async () => undefined,
  },
  {
    section: 'An upgrade',
    asksAsEveryNight: true,
    lose: async ({ home }) => {
      await withDatabase(home, (pool) => renameBaseline(pool));
      const refused = await home.run(['status']);
      expect([refused.code, refused.stderr]).toEqual([
        1,
        expect.stringContaining('created by an earlier version'),
      ]);
      return undefined;
    },
  },
];

describe('the drills of a mirror with everything embedded but Redis', () => {
  let mirror: Mirror;
  let ordinary: Traffic;
  let ordinaryParties = 0;

  beforeAll(async () => {
    const redis = await startOwnRedis();
    const home = await openMirror({
      DATABASE_URL: undefined,
      REDIS_URL: redis.url,
    });
    mirror = { home, redis };
    await night(home);
    await night(home);
    ordinary = await night(home);
    ordinaryParties = countParties();
  });

  afterAll(async () => {
    await mirror.home[Symbol.asyncDispose]();
    await mirror.redis[Symbol.asyncDispose]();
  });

  test.each(DRILLS)('$section', async (drill) => {
    const { home } = mirror;
    const work = async (): Promise<void> => {
      const settings = await drill.lose(mirror);
      meter.reset();
      await type(home, drill.section, settings);
    };
    await (drill.keepsPostgres === true ? withDatabase(home, work) : work());
    const asked = { ...meter.counted };
    const most = drill.asksAsEveryNight === true ? ordinary : ANY_TRAFFIC;
    expect(asked.lists).toBeLessThanOrEqual(most.lists);
    // Parties that have arrived since are asked for, too.
    const arrived = countParties() - ordinaryParties;
    expect(asked.exports).toBeLessThanOrEqual(most.exports + arrived);
    // An hour brings more rows than another.
    expect(asked.exportBytes).toBeLessThan(2 * most.exportBytes);
    await withDatabase(home, async (pool) => {
      expect(await whatIsOpen(home)).toBe('');
      await expectTruth(pool, home.objectsDir);
    });
  });

  test('A clone for staging', async () => {
    const { home } = mirror;
    const objects = join(home.dir, 'data/objects');
    await using server = await startEmbeddedPostgres({
      dataDir: home.dataDir,
      log: createLog('silent'),
    });
    const url = await cloneDatabase(server.connectionString);
    const settings = { STAGING_DATABASE_URL: url };
    const refused = await home.run(['nightly'], { DATABASE_URL: url });
    expect([refused.code, refused.stderr]).toEqual([
      1,
      expect.stringContaining('another database of this mirror owns it'),
    ]);
    const before = await filesIn(objects);

    await type(home, 'A clone for staging', settings);
    const staging = {
      DATABASE_URL: url,
      OBJECT_STORE_URL: `file://${join(home.dir, 'srv/staging/objects')}`,
      DATA_DIR: 'staging',
    };
    expect(await whatIsOpen(home, staging)).toBe('');
    await using clone = openPool(url);
    await expectTruth(clone.pool, join(home.dir, 'srv/staging/objects'));
    // The original was not touched, and goes on.
    expect(await filesIn(objects)).toEqual(before);
    await night(home);
    expect(await whatIsOpen(home)).toBe('');
    await using original = openPool(server.connectionString);
    await expectTruth(original.pool, home.objectsDir);
  });

  test('Another bucket, prefix or folder', async () => {
    const { home } = mirror;
    const before = await filesIn(join(home.dir, 'data/objects'));
    await type(home, MOVE);
    const moved = join(home.dir, 'srv/mirror');
    expect(
      await whatIsOpen(home, { OBJECT_STORE_URL: `file://${moved}` }),
    ).toBe('');
    await withDatabase(home, (pool) => expectTruth(pool, moved));
    expect(await filesIn(join(home.dir, 'data/objects'))).toEqual(before);
  });
});

describe('the drills of a mirror with Postgres and a bucket elsewhere', () => {
  test('DATA_DIR is lost, and then the bucket moves', async () => {
    await using store = await S3Double.start();
    await using database = await openFreshDatabase();
    const bucket = (prefix: string): string =>
      `s3://bucket/${prefix}?region=us-east-1&endpoint=${store.endpoint}`;
    await using home = await openMirror({
      DATABASE_URL: database.url,
      OBJECT_STORE_URL: bucket('mirror'),
      AWS_ACCESS_KEY_ID: CREDENTIALS.accessKeyId,
      AWS_SECRET_ACCESS_KEY: CREDENTIALS.secretAccessKey,
    });
    await night(home);
    await rm(join(home.dir, 'data'), { recursive: true });
    await type(home, ELSEWHERE);
    expect(await whatIsOpen(home)).toBe('');
    await saveObjects(store, 'mirror', join(home.dir, 'seen'));
    await expectTruth(database.pool, join(home.dir, 'seen'));

    const keysBelow = (prefix: string): string[] =>
      [...store.objects.keys()].filter((key) => key.startsWith(prefix));
    const before = keysBelow('mirror/');
    // What `aws s3 sync` does.
    for (const [key, stored] of store.objects) {
      const moved = key.replace(/^mirror\//, 'moved/');
      if (moved !== key) store.objects.set(moved, stored);
    }
    await type(home, MOVE, {}, (line) =>
      line.startsWith('cp ')
        ? ''
        : line.replace(/file:\S+/, `'${bucket('moved')}'`),
    );
    expect(await whatIsOpen(home, { OBJECT_STORE_URL: bucket('moved') })).toBe(
      '',
    );
    expect(keysBelow('mirror/')).toEqual(before);
    await saveObjects(store, 'moved', join(home.dir, 'moved'));
    await expectTruth(database.pool, join(home.dir, 'moved'));
  });
});

test('every section of the page is a drill, and every drill has a section', () => {
  const drills = [
    ...DRILLS.map(({ section }) => section),
    'A clone for staging',
    ELSEWHERE,
    MOVE,
  ];
  expect(drills.toSorted()).toEqual([...SECTIONS.keys()].toSorted());
});

async function openMirror(settings: Settings): Promise<MirrorHome> {
  const given = { SOURCE_URL: meter.url, DATA_DIR: undefined, ...settings };
  const home = await openHome(given, 'ledger-mirror-drills-');
  await mkdir(join(home.dir, 'node_modules/.bin'), { recursive: true });
  await symlink(
    join(ROOT, 'bin/ledger-mirror.js'),
    join(home.dir, 'node_modules/.bin/ledger-mirror'),
  );
  await mkdir(join(home.dir, 'srv/staging'), { recursive: true });
  return home;
}

/** Types the commands of a section, its example folders moved into the home. */
async function type(
  home: MirrorHome,
  section: string,
  settings: Settings = {},
  change = (line: string): string => line,
): Promise<void> {
  const PARTY = [...sandbox.truth.parties()][0]?.id.slice(0, 12) ?? '';
  const lines = (SECTIONS.get(section) ?? []).flatMap((block) =>
    commandsOf(block).map((line) =>
      change(line).replaceAll('/srv/', `${join(home.dir, 'srv')}/`),
    ),
  );
  // What is new at the source belongs to the nightly run of the section, if it has one.
  if (lines.some((line) => line.endsWith(' nightly'))) sandbox.advance(HOUR_MS);
  const script = lines.join('\n');
  const { code, stdout, stderr } = await home.type(script, {
    PARTY,
    ...settings,
  });
  const told = code === 0 ? '' : `${stdout}\n${stderr.slice(-2_000)}`;
  expect({ code, told }).toEqual({ code: 0, told: '' });
}

function countParties(): number {
  return [...sandbox.truth.parties()].length;
}

/** @returns what it asked the source */
async function night(home: MirrorHome): Promise<Traffic> {
  meter.reset();
  sandbox.advance(HOUR_MS);
  const { code, document, stderr } = await home.json(['nightly']);
  expect([code, document.verdict, code === 0 ? '' : stderr]).toEqual([
    0,
    'complete',
    '',
  ]);
  return { ...meter.counted };
}

/** @returns what keeps the mirror from being complete, as `status` shows it; or '' */
async function whatIsOpen(
  home: MirrorHome,
  settings?: Settings,
): Promise<string> {
  const status = await home.run(['status', '--check'], settings);
  return status.code === 0 ? '' : `${status.stdout}${status.stderr}`;
}

/** `verify --deep`, which each section ends with, has compared the lake with these. */
async function expectTruth(pool: Pool, objectsDir: string): Promise<void> {
  await expectLists(pool, sandbox.truth);
  await expectLedgers(pool, sandbox.truth, objectsDir);
}

/** Joins the embedded Postgres of a home as one of its commands. */
async function withDatabase(
  { dataDir }: MirrorHome,
  work: (pool: Pool) => Promise<void>,
): Promise<void> {
  await using server = await startEmbeddedPostgres({
    dataDir,
    log: createLog('silent'),
  });
  await using opened = openPool(server.connectionString);
  await work(opened.pool);
}

function openPool(
  connectionString: string,
): AsyncDisposable & { readonly pool: Pool } {
  const pool = openTestPool({ connectionString, max: 2 });
  return { pool, [Symbol.asyncDispose]: () => pool.end() };
}

/** @returns the address of a copy of a database on the same server */
async function cloneDatabase(connectionString: string): Promise<string> {
  const url = new URL(connectionString);
  const original = url.pathname.slice(1);
  url.pathname = '/template1';
  const client = new Client({ connectionString: url.href });
  await client.connect();
  await client.query(`create database staging template ${original}`);
  await client.end();
  url.pathname = '/staging';
  return url.href;
}

async function loseRedis(redis: RedisProcess): Promise<undefined> {
  await redis.kill();
  await rm(redis.dumpFile, { force: true });
  await redis.start();
  return undefined;
}

/** Removes objects and their manifests. */
async function loseObjects(
  { objectsDir }: MirrorHome,
  isLost: (key: string, at: number) => boolean,
): Promise<undefined> {
  const folder = join(objectsDir, 'ledger');
  const objects = (await filesIn(folder)).filter(
    (name) => !name.endsWith('.manifest.json'),
  );
  const lost = objects.filter(isLost);
  expect(lost).not.toEqual([]);
  for (const name of lost) {
    await rm(join(folder, name));
    await rm(join(folder, `${name}.manifest.json`));
  }
  return undefined;
}

/** Copies the files of a Postgres that has stopped. */
async function copyCluster(
  { dir }: MirrorHome,
  from: string,
  to: string,
): Promise<void> {
  const pidFile = join(dir, from, 'cluster/postmaster.pid');
  await waitFor(() => !existsSync(pidFile), { what: 'Postgres to stop' });
  await mkdir(dirname(join(dir, to)), { recursive: true });
  // The server's files belong to an account of its own if we are root.
  execFileSync('cp', ['-a', join(dir, from), join(dir, to)]);
}

async function filesIn(folder: string): Promise<string[]> {
  expect(existsSync(folder)).toBe(true);
  const entries = await readdir(folder, {
    recursive: true,
    withFileTypes: true,
  });
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1))
    .toSorted();
}

/** Writes the objects below a prefix into a folder, to be read as files. */
async function saveObjects(
  store: S3Double,
  prefix: string,
  folder: string,
): Promise<void> {
  for (const [key, { content }] of store.objects) {
    if (!key.startsWith(`${prefix}/`)) continue;
    const path = join(folder, key.slice(prefix.length + 1));
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, content);
  }
}
