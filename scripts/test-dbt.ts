/**
 * `npm run test:dbt`: the dbt package on a warehouse in an embedded Postgres: built, tested, and after a late load, a
 * replaced open segment and an entry that is no longer counted the incremental model equals a full refresh.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createLog } from '../src/core/log.ts';
import { startEmbeddedPostgres } from '../src/embedded/postgres.ts';
import { loadAll } from '../src/load/load-all.ts';
import { LoadStore } from '../src/load/store/load-store.ts';
import { FileStore } from '../src/objects/file-store.ts';
import { openWarehouse } from '../src/postgres/database.ts';
import { migrate } from '../src/postgres/migrate.ts';
import { HEADER_13, PARTY_A, PARTY_B, publish, row13 } from '../test/load/published.ts';
import { command, expect, NotRun, runSteps, succeed } from './steps.ts';

const PROJECT = 'deploy/dbt';
const PASSWORD = 'analyst-of-a-test';

await using stack = new AsyncDisposableStack();
const scratch = await mkdtemp(join(tmpdir(), 'ledger-mirror-dbt-'));
stack.defer(() => rm(scratch, { recursive: true, force: true }));
const signal = new AbortController().signal;
const postgres = stack.use(
  await startEmbeddedPostgres({ dataDir: join(scratch, 'data'), log: createLog('warn'), signal }),
);
const warehouse = stack.use(openWarehouse({ url: postgres.connectionString, onIdleError: () => undefined }));
const { pool } = warehouse;
const objects = new FileStore(join(scratch, 'objects'));

const address = new URL(postgres.connectionString);
const dbtEnvironment = {
  MIRROR_PGHOST: address.hostname,
  MIRROR_PGPORT: address.port,
  MIRROR_PGDATABASE: address.pathname.slice(1),
  MIRROR_PGUSER: 'analyst',
  MIRROR_PGPASSWORD: PASSWORD,
  DBT_PROFILES_DIR: scratch,
  DBT_TARGET_PATH: join(scratch, 'target'),
  DBT_LOG_PATH: join(scratch, 'logs'),
  DBT_SEND_ANONYMOUS_USAGE_STATS: 'false',
};

async function dbt(...args: readonly string[]): Promise<void> {
  const { code, output } = await command('dbt', ['--no-use-colors', ...args, '--project-dir', PROJECT], {
    env: dbtEnvironment,
  });
  expect(code === 0, output);
}

async function needDbt(): Promise<void> {
  const { code } = await command('sh', ['-c', 'command -v dbt']);
  if (code !== 0) throw new NotRun("dbt is not installed: pip install 'dbt-core<1.12' dbt-postgres");
}

/** An analyst as a warehouse has one: reads the views, writes to a schema of its own. */
async function prepare(): Promise<void> {
  await migrate(warehouse.db);
  await pool.query(`create role analyst login password '${PASSWORD}' in role mirror_reader`);
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
  const rows = sent.map((entry) => row13({ from: PARTY_A, to: PARTY_B, type: 'TRANSFER', ...entry }, party));
  await publish(pool, objects, { party, from, to, open, header: HEADER_13, rows });
  await loadAll({ repository: new LoadStore(warehouse), objects }, signal);
}

const MAY = ['2023-05-01T00:00:00Z', '2023-06-01T00:00:00Z'] as const;
const JUNE = ['2023-06-01T00:00:00Z', '2023-07-01T00:00:00Z'] as const;
const SHARED = { time: '2023-05-02 10:00:00+00', quantity: '7' };

async function volume(): Promise<string> {
  const { rows } = await pool.query<{ text: string }>(
    `select coalesce(string_agg(t::text, E'\\n' order by t::text), '') as text from analytics.daily_transfer_volume t`,
  );
  return rows[0]?.text ?? '';
}

/** Builds what changed, then everything, and compares. @returns what the model holds */
async function rebuilt(what: string, before: string): Promise<string> {
  await dbt('build', '--select', 'daily_transfer_volume+');
  const incremental = await volume();
  expect(incremental !== before, `${what}: nothing changed`);
  await dbt('build', '--full-refresh', '--select', 'daily_transfer_volume+');
  const full = await volume();
  expect(incremental === full, `${what}: built in steps\n${incremental}\nbuilt anew\n${full}`);
  return full;
}

let held = '';

await runSteps([
  {
    name: 'dbt build: models and tests, as a reader of the views',
    run: async () => {
      await needDbt();
      await succeed('cp', [`${PROJECT}/profiles.example.yml`, join(scratch, 'profiles.yml')]);
      await prepare();
      // B alone is mirrored in May: the entry from A is counted in B's ledger.
      await load(PARTY_B, MAY, [SHARED, { ...SHARED, quantity: `1${'0'.repeat(37)}` }]);
      await load(PARTY_A, JUNE, [{ time: '2023-06-02 10:00:00+00', quantity: '3' }], true);
      await dbt('build');
      held = await volume();
      expect(held.split('\n').length === 2, held);
    },
  },
  {
    name: 'source freshness',
    run: async () => {
      await needDbt();
      await dbt('source', 'freshness');
    },
  },
  {
    name: 'a build with nothing new changes nothing',
    run: async () => {
      await needDbt();
      await dbt('build', '--select', 'daily_transfer_volume+');
      expect((await volume()) === held, 'the model changed');
    },
  },
  {
    name: 'an open segment replaced: incremental equals full refresh',
    run: async () => {
      await needDbt();
      await load(PARTY_A, JUNE, [{ time: '2023-06-05 10:00:00+00', quantity: '4' }]);
      held = await rebuilt('replaced', held);
    },
  },
  {
    name: "a late load of the sender, whose row is counted instead of the receiver's: the same",
    run: async () => {
      await needDbt();
      const counted = async (): Promise<string> => {
        const { rows } = await pool.query<{ count: string }>(
          `select count(*)::text as count from mirror.exported_entries where party_id = '${PARTY_B}' and is_counted`,
        );
        return rows[0]?.count ?? '';
      };
      expect((await counted()) === '2', `the receiver's rows are counted at first: ${await counted()}`);
      await load(PARTY_A, MAY, [SHARED, { time: '2023-05-09 10:00:00+00', quantity: '11' }]);
      expect((await counted()) === '0', `the receiver's rows are counted no longer: ${await counted()}`);
      held = await rebuilt('late', held);
    },
  },
  {
    name: 'dbt docs generate',
    run: async () => {
      await needDbt();
      await dbt('docs', 'generate');
    },
  },
]);
