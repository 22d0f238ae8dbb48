/**
 * What Postgres does to transactions, and what becomes of the work: whole again, or the
 * first cause.
 */
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import { sql } from 'kysely';
import { openWarehouse } from '../../src/postgres/database.ts';
import { databaseError } from '../../src/postgres/database-error.ts';
import { inTransaction } from '../../src/postgres/transaction.ts';
import {
  PermanentError,
  RetryableError,
  UnreachableError,
} from '../../src/errors/errors.ts';
import { freshDatabase } from '../support/database.ts';

const database = await freshDatabase();
const warehouse = openWarehouse({
  url: database.url,
  onIdleError: () => undefined,
});
const { db } = warehouse;

await database.pool.query(
  'create table public.tally (id int primary key, n int not null)',
);
afterAll(() => warehouse[Symbol.asyncDispose]());
beforeEach(async () => {
  await database.pool.query('truncate public.tally');
  await database.pool.query('insert into public.tally values (1, 0), (2, 0)');
});

async function tallies(): Promise<number[]> {
  const { rows } = await database.pool.query<{ n: number }>(
    'select n from public.tally order by id',
  );
  return rows.map(({ n }) => n);
}

describe('a transaction that Postgres ended', () => {
  test('by a conflict (40001) is repeated from its start', async () => {
    let attempts = 0;
    await inTransaction(db, { action: 'count' }, async (tx) => {
      attempts += 1;
      await sql`set transaction isolation level repeatable read`.execute(tx);
      const read = await sql<{
        n: number;
      }>`select n from public.tally where id = 1`.execute(tx);
      // Somebody else counts in between, the first time.
      if (attempts === 1)
        await database.pool.query(
          'update public.tally set n = n + 1 where id = 1',
        );
      await sql`update public.tally set n = ${(read.rows[0]?.n ?? 0) + 1} where id = 1`.execute(
        tx,
      );
    });
    expect([attempts, await tallies()]).toEqual([2, [2, 0]]);
  });

  test('by a deadlock (40P01): both are done in the end', async () => {
    const met = Promise.withResolvers<void>();
    let waiting = 0;
    const count = (first: number, second: number): Promise<void> =>
      inTransaction(db, { action: 'count' }, async (tx) => {
        await sql`update public.tally set n = n + 1 where id = ${first}`.execute(
          tx,
        );
        waiting += 1;
        if (waiting === 2) met.resolve();
        await met.promise;
        await sql`update public.tally set n = n + 1 where id = ${second}`.execute(
          tx,
        );
      });
    await Promise.all([count(1, 2), count(2, 1)]);
    expect(waiting).toBe(3);
    expect(await tallies()).toEqual([2, 2]);
  });

  test('because it did nothing for too long: what it had locked is free', async () => {
    const work = inTransaction(db, { action: 'count' }, async (tx) => {
      await sql`set local idle_in_transaction_session_timeout = 50`.execute(tx);
      await sql`update public.tally set n = n + 1 where id = 1`.execute(tx);
      // Waits for the row until the server has ended the other session.
      await database.pool.query(
        'update public.tally set n = n + 10 where id = 1',
      );
      await sql`update public.tally set n = n + 1 where id = 2`.execute(tx);
    });
    await expect(work).rejects.toThrow(UnreachableError);
    expect(await tallies()).toEqual([10, 0]);
  });

  test('every session of ours has such a limit', async () => {
    const { rows } =
      await sql`show idle_in_transaction_session_timeout`.execute(db);
    expect(rows).toEqual([{ idle_in_transaction_session_timeout: '10s' }]);
  });

  test('because a statement failed: the first cause is told, not that it is aborted (25P02)', async () => {
    const work = inTransaction(db, { action: 'count' }, async (tx) => {
      await sql`insert into public.tally values (1, 5)`.execute(tx);
    });
    await expect(work).rejects.toMatchObject({
      code: 'DATABASE_23505',
      message: /^Cannot count: duplicate key/,
    });
    expect(await tallies()).toEqual([0, 0]);
  });

  test('with its connection (57P01) has left nothing', async () => {
    const work = inTransaction(db, { action: 'count' }, async (tx) => {
      await sql`update public.tally set n = 9`.execute(tx);
      const { rows } = await sql<{
        pid: number;
      }>`select pg_backend_pid() as pid`.execute(tx);
      await database.pool.query('select pg_terminate_backend($1)', [
        rows[0]?.pid,
      ]);
      await sql`select 1`.execute(tx);
    });
    await expect(work).rejects.toBeInstanceOf(UnreachableError);
    expect(await tallies()).toEqual([0, 0]);
  });
});

test.each([
  ['40001', RetryableError],
  ['40P01', RetryableError],
  ['25P02', RetryableError],
  ['53100', RetryableError],
  ['57P03', UnreachableError],
  ['53300', UnreachableError],
  ['25006', RetryableError],
  ['42501', PermanentError],
])('SQLSTATE %s is a %o', (code, kind) => {
  const cause = Object.assign(new Error('as Postgres says it'), {
    code,
    severity: 'ERROR',
  });
  const error = databaseError('count', cause);
  expect([error.constructor, error.cause]).toEqual([kind, cause]);
});
