/**
 * `npm run test:dbt`: builds and tests the dbt package on a warehouse in an embedded
 * Postgres, and on the lake that is built from it. After a late load, a replaced open
 * segment and an entry that no longer counts, the incremental model must equal a full
 * refresh on both, and both must agree.
 */
import { cp, glob, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createLog } from '../src/logging/log.ts';
import { buildLake } from '../src/lake/build/build.ts';
import { LakeStore } from '../src/lake/store/lake-store.ts';
import { startEmbeddedPostgres } from '../src/embedded/postgres.ts';
import { loadAll } from '../src/warehouse/load-all.ts';
import { LoadStore } from '../src/warehouse/store/load-store.ts';
import { openFileStore } from '../src/storage/file-store.ts';
import { openWarehouse } from '../src/postgres/database.ts';
import { migrate } from '../src/postgres/migrate.ts';
import { HEADER_13 } from '../test/ledger/csv.ts';
import {
  PARTY_A,
  PARTY_B,
  publish,
  row13,
} from '../test/warehouse/published.ts';
import {
  command,
  expect,
  NotRun,
  runSteps,
  type Step,
  succeed,
} from './steps.ts';
import { openVenv } from './venv.ts';

const PROJECT = 'deploy/dbt';
const PACKAGES = [
  'dbt-core==1.11.16',
  'dbt-postgres==1.11.0',
  'dbt-duckdb==1.11.1',
  'duckdb==1.5.5',
  'duckdb-extension-delta==1.5.5',
];
type Target = 'postgres' | 'lake';
const PASSWORD = 'analyst-of-a-test';

await using stack = new AsyncDisposableStack();
const scratch = await mkdtemp(join(tmpdir(), 'ledger-mirror-dbt-'));
stack.defer(() => rm(scratch, { recursive: true, force: true }));
const signal = new AbortController().signal;
const postgres = stack.use(
  await startEmbeddedPostgres({
    dataDir: join(scratch, 'data'),
    log: createLog('warn'),
    signal,
  }),
);
const warehouse = stack.use(
  openWarehouse({
    url: postgres.connectionString,
    onIdleError: () => undefined,
  }),
);
const { pool } = warehouse;
const objects = openFileStore(join(scratch, 'objects'));

const duckdbFile = join(scratch, 'dbt.duckdb');
const address = new URL(postgres.connectionString);
const dbtEnvironment = {
  MIRROR_PGHOST: address.hostname,
  MIRROR_PGPORT: address.port,
  MIRROR_PGDATABASE: address.pathname.slice(1),
  MIRROR_PGUSER: 'analyst',
  MIRROR_PGPASSWORD: PASSWORD,
  MIRROR_LAKE: join(scratch, 'objects/lake'),
  MIRROR_DUCKDB: duckdbFile,
  DBT_PROFILES_DIR: scratch,
  DBT_LOG_PATH: join(scratch, 'logs'),
  DBT_SEND_ANONYMOUS_USAGE_STATS: 'false',
  // DuckDB looks for its extension here.
  HOME: scratch,
};
let bin = '';

async function dbt(target: Target, ...args: readonly string[]): Promise<void> {
  if (bin === '') throw new NotRun('dbt was not installed');
  const all = [
    '--no-use-colors',
    ...args,
    '--project-dir',
    PROJECT,
    '--target',
    target,
  ];
  const { code, output } = await command(join(bin, 'dbt'), all, {
    // Each target has its own parsed state.
    env: { ...dbtEnvironment, DBT_TARGET_PATH: join(scratch, target) },
  });
  expect(code === 0, output);
}

/**
 * Installs dbt in an environment of its own. DuckDB's extension for Delta is copied to
 * the folder where DuckDB expects it, so DuckDB need not download it.
 */
async function install(): Promise<void> {
  const venv = await openVenv('dbt', PACKAGES);
  if ('missing' in venv)
    throw new NotRun(`dbt cannot be installed: ${venv.missing}`);
  const platform =
    'import duckdb; print(*duckdb.sql("pragma platform").fetchone())';
  const folder = join(
    scratch,
    '.duckdb/extensions/v1.5.5',
    (await succeed(join(venv.bin, 'python'), ['-c', platform])).trim(),
  );
  await mkdir(folder, { recursive: true });
  for await (const file of glob(
    join(
      venv.bin,
      '../lib/*/site-packages/duckdb_extension_delta/extensions/*/*.duckdb_extension',
    ),
  ))
    await cp(file, join(folder, 'delta.duckdb_extension'));
  await succeed('cp', [
    `${PROJECT}/profiles.example.yml`,
    join(scratch, 'profiles.yml'),
  ]);
  bin = venv.bin;
}

/**
 * Creates an analyst as a warehouse would have one, who reads the views and writes to a
 * schema of their own.
 */
async function prepare(): Promise<void> {
  await migrate(warehouse.db);
  await pool.query(
    `create role analyst login password '${PASSWORD}' in role mirror_reader`,
  );
  await pool.query('create schema analytics authorization analyst');
  await pool.query(
    `insert into mirror.runs (run_id, kind, subject, state, verdict, started_at, finished_at)
      values (gen_random_uuid(), 'nightly', 'scheduled', 'done', 'complete', now() - interval '1 minute', now())`,
  );
  await pool.query(
    `insert into mirror.checkpoints (epoch, at_block, hash, block_hash, copies) values (1, 300, 'aa', 'bb', 1), (1, 600, 'cc', 'dd', 1)`,
  );
}

interface Sent {
  readonly time: string;
  readonly quantity: string;
  readonly from?: string;
  readonly to?: string;
}

async function load(
  party: string,
  [from, to]: readonly [string, string],
  sent: readonly Sent[],
  open = false,
): Promise<void> {
  const rows = sent.map((entry) =>
    row13({ from: PARTY_A, to: PARTY_B, type: 'TRANSFER', ...entry }, party),
  );
  await publish(pool, objects, {
    party,
    from,
    to,
    open,
    header: HEADER_13,
    rows,
  });
  await loadAll({ repository: new LoadStore(warehouse), objects }, signal);
  await buildLake(
    {
      repository: new LakeStore(pool),
      objects,
      scratchDir: join(scratch, 'spool'),
      retentionMs: 7 * 86_400_000,
    },
    signal,
  );
}

const MAY = ['2023-05-01T00:00:00Z', '2023-06-01T00:00:00Z'] as const;
const JUNE = ['2023-06-01T00:00:00Z', '2023-07-01T00:00:00Z'] as const;
const SHARED = { time: '2023-05-02 10:00:00+00', quantity: '7' };

/**
 * Returns the rows of the incremental model as text: equal rows give the same text in
 * every database.
 */
async function volume(target: Target): Promise<string> {
  const columns = `cast(day as text), asset_id, transfer_type, entries, cast(quantity as text), quantity_text`;
  const line = `concat_ws(' ', ${columns})`;
  const sql = `select coalesce(string_agg(${line}, chr(10) order by ${line}), '') as text from analytics.daily_transfer_volume`;
  if (target === 'postgres')
    return (await pool.query<{ text: string }>(sql)).rows[0]?.text ?? '';
  const script = `import duckdb, sys; print(duckdb.connect(sys.argv[1]).sql(sys.argv[2]).fetchone()[0])`;
  return (
    await succeed(join(bin, 'python'), ['-c', script, duckdbFile, sql])
  ).trimEnd();
}

/**
 * Builds what changed, then everything, and compares the two.
 * @returns the rows of the model
 */
async function rebuilt(target: Target, what: string): Promise<string> {
  const before = await volume(target);
  await dbt(target, 'build', '--select', '+daily_transfer_volume+');
  const incremental = await volume(target);
  expect(incremental !== before, `${what}: nothing changed`);
  await dbt(
    target,
    'build',
    '--full-refresh',
    '--select',
    '+daily_transfer_volume+',
  );
  const full = await volume(target);
  expect(
    incremental === full,
    `${what}: built in steps\n${incremental}\nbuilt anew\n${full}`,
  );
  return full;
}

async function countedOfB(): Promise<string> {
  const { rows } = await pool.query<{ count: string }>(
    `select count(*)::text as count from mirror.exported_entries where party_id = '${PARTY_B}' and is_counted`,
  );
  return rows[0]?.count ?? '';
}

/** Runs one step on each target, and compares the rows of both. */
function onBoth(
  name: string,
  work: (target: Target) => Promise<string>,
): Step[] {
  let onPostgres = '';
  return [
    {
      name: `${name}: the warehouse`,
      run: async () => {
        onPostgres = await work('postgres');
      },
    },
    {
      name: `${name}: the lake`,
      run: async () => {
        const onLake = await work('lake');
        expect(
          onLake === onPostgres,
          `the lake says\n${onLake}\nthe warehouse says\n${onPostgres}`,
        );
      },
    },
  ];
}

function change(name: string, work: () => Promise<void>): Step {
  return { name, run: work };
}

await runSteps([
  change('dbt, pinned, in an environment of its own', install),
  change(
    "B alone is mirrored in May: the entries from A are counted in B's ledger",
    async () => {
      await prepare();
      await load(PARTY_B, MAY, [
        SHARED,
        { ...SHARED, quantity: `1${'0'.repeat(37)}` },
        { ...SHARED, quantity: '9'.repeat(38) },
      ]);
      await load(
        PARTY_A,
        JUNE,
        [{ time: '2023-06-02 10:00:00+00', quantity: '3' }],
        true,
      );
    },
  ),
  ...onBoth('dbt build: models and tests', async (target) => {
    await dbt(target, 'build');
    const held = await volume(target);
    expect(held.split('\n').length === 2, held);
    return held;
  }),
  ...onBoth('source freshness', async (target) => {
    await dbt(target, 'source', 'freshness');
    return '';
  }),
  ...onBoth('a build with nothing new changes nothing', async (target) => {
    const before = await volume(target);
    await dbt(target, 'build', '--select', '+daily_transfer_volume+');
    expect((await volume(target)) === before, 'the model changed');
    return before;
  }),
  change('an open segment is replaced', () =>
    load(PARTY_A, JUNE, [{ time: '2023-06-05 10:00:00+00', quantity: '4' }]),
  ),
  ...onBoth('incremental equals full refresh', (target) =>
    rebuilt(target, 'replaced'),
  ),
  change(
    "a late load of the sender, whose rows are counted instead of the receiver's",
    async () => {
      expect(
        (await countedOfB()) === '3',
        `the receiver's rows are counted at first: ${await countedOfB()}`,
      );
      await load(PARTY_A, MAY, [
        SHARED,
        { time: '2023-05-09 10:00:00+00', quantity: '11' },
      ]);
      expect(
        (await countedOfB()) === '0',
        `the receiver's rows are counted no longer: ${await countedOfB()}`,
      );
    },
  ),
  ...onBoth('incremental equals full refresh after it', (target) =>
    rebuilt(target, 'late'),
  ),
  ...onBoth('dbt docs generate', async (target) => {
    await dbt(target, 'docs', 'generate');
    return '';
  }),
]);
