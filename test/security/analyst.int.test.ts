/**
 * Somebody who may only read the views, and takes every lock whose key can be guessed.
 */
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openWarehouse } from '../../src/postgres/database.ts';
import { migrate } from '../../src/postgres/migrate.ts';
import { ensurePartitions } from '../../src/warehouse/store/copy-sink.ts';
import { RunStore } from '../../src/runs/store/run-store.ts';
import { freshDatabase } from '../support/database.ts';

/** Kysely takes this one for every migration. */
const KYSELY_KEY = '3853314791062309107';
const PARTY = 'ab'.repeat(32);
const NAMES = [
  `export ${PARTY}`,
  'export limit',
  'nightly',
  'nightly plan',
  'mirror.lake',
  'mirror.coverage',
];
const ROLE = `analyst_${crypto.randomUUID().slice(0, 8)}`;
const database = await freshDatabase({ isMigrated: true });
const warehouse = openWarehouse({
  url: database.url,
  onIdleError: () => undefined,
});
let analyst: Client;

beforeAll(async () => {
  await database.pool.query(
    `create role ${ROLE} login password 'only-reads' in role mirror_reader`,
  );
  const url = new URL(database.url);
  url.username = ROLE;
  url.password = 'only-reads';
  analyst = new Client({ connectionString: url.href });
  await analyst.connect();
  await analyst.query('select pg_advisory_lock($1)', [KYSELY_KEY]);
  // As the keys were made until now: from the name alone.
  for (const name of NAMES)
    await analyst.query('select pg_advisory_lock(hashtextextended($1, 0))', [
      name,
    ]);
  await analyst.query('select pg_advisory_lock(7105112)');
});

afterAll(async () => {
  await analyst.end();
  await warehouse[Symbol.asyncDispose]();
  await database.pool.query(`drop role ${ROLE}`);
});

describe('an analyst who holds the locks that can be guessed', () => {
  test('stops no command: nothing is missing, so nothing is locked', async () => {
    expect(await migrate(warehouse.db)).toEqual([]);
  });

  test('stops no order and no partition', async () => {
    const runs = new RunStore(warehouse.db, undefined);
    const orders = Array.from({ length: 12 }, () =>
      runs.order({
        kind: 'export',
        subject: PARTY,
        params: { isOrdered: true },
      }),
    );
    const ids = (await Promise.all(orders)).map(({ run }) => run.runId);
    expect(new Set(ids).size).toBe(1);
    await ensurePartitions(warehouse.pool, ['2023-05']);
  });

  test.each([
    `select mirror.lock_key('nightly')`,
    'select lock_seed from mirror.identity',
    'select cursor_secret from mirror.identity',
    'select * from mirror.ended_sessions',
    `select pg_read_file('/etc/passwd')`,
    `copy (select 1) to program 'true'`,
    'create table mirror.mine (x int)',
    'delete from mirror.runs',
  ])('is denied: %s', async (statement) => {
    await expect(analyst.query(statement)).rejects.toMatchObject({
      code: '42501',
    });
  });

  test('is waited for no longer than the limit of every connection', async () => {
    const { rows } = await warehouse.pool.query<{ limit: string }>(
      `select current_setting('lock_timeout') as limit`,
    );
    expect(rows).toEqual([{ limit: '20s' }]);
  });
});
