/**
 * Resume state in Postgres: the contract, the sweep of what expired, and a database that
 * is away.
 */
import { Pool } from 'pg';
import { expect, test } from 'vitest';
import { openPostgresState } from '../../src/state/postgres-state.ts';
import { freshDatabase, openFreshDatabase } from '../support/database.ts';
import { waitFor } from '../support/wait-for.ts';
import { resumeStateContract } from './resume-state-contract.ts';

const { pool } = await freshDatabase({ isMigrated: true });

resumeStateContract('Postgres', (prefix) => openPostgresState(pool, prefix));

test('expired values are removed by later writes, a bounded number of rows at a time', async () => {
  const state = openPostgresState(pool, 'sweep');
  await pool.query(
    `insert into mirror.resume_state select 'old:' || n, '1', now() - interval '1 day' from generate_series(1, 300) n`,
  );
  const left = async (): Promise<number> => {
    const { rows } = await pool.query<{ n: number }>(
      `select count(*)::int as n from mirror.resume_state where key like 'old:%'`,
    );
    return rows[0]?.n ?? 0;
  };
  for (let count = 0; count < 64; count += 1)
    await state.set('same', count, 60_000);
  expect(await left()).toBe(300 - 256);
  for (let count = 0; count < 64; count += 1)
    await state.set('same', count, 60_000);
  expect(await left()).toBe(0);
  expect(await state.get('same')).toBe(63);
});

test('a schedule from a clock that was set back does not stop the work', async () => {
  const state = openPostgresState(pool, 'p');
  await pool.query(
    `insert into mirror.rate_budgets values ('p:old', now() + interval '1 year')`,
  );
  expect((await state.reserve('old', 1)).waitMs).toBeLessThanOrEqual(600_000);
});

test('a database that is away, or not migrated, is told by its code', async () => {
  const away = new Pool({
    connectionString: 'postgres://nobody@127.0.0.1:1/none',
  });
  await expect(openPostgresState(away, 'p').get('k')).rejects.toMatchObject({
    name: 'UnreachableError',
    code: 'STATE_UNREACHABLE',
  });
  await away.end();
  await using bare = await openFreshDatabase();
  await expect(
    openPostgresState(bare.pool, 'p').get('k'),
  ).rejects.toMatchObject({
    name: 'PermanentError',
    code: 'STATE_POSTGRES_42P01',
  });
});

test('a statement that waits for ever ends as unreachable, and the pool serves on', async () => {
  const state = openPostgresState(pool, 'p');
  await state.set('held', 1, 60_000);
  const client = await pool.connect();
  await client.query('begin');
  await client.query(
    `select from mirror.resume_state where key = 'p:held' for update`,
  );
  await expect(state.set('held', 2, 60_000)).rejects.toMatchObject({
    code: 'STATE_UNREACHABLE',
  });
  await client.query('rollback');
  client.release();
  // Given up here, it is still under way there, and may come after whatever follows.
  await waitFor(
    async () => {
      const { rows } = await pool.query(
        `select from pg_stat_activity where datname = current_database() and state = 'active'
         and query like 'insert into mirror.resume_state%'`,
      );
      return rows.length === 0;
    },
    { what: 'the statement to be over' },
  );
  await state.set('held', 3, 60_000);
  expect(await state.get('held')).toBe(3);
});
