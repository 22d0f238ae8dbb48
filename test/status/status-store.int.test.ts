/** How the mirror stands, where Postgres gives no answer. */
import { describe, expect, test } from 'vitest';
import { openWarehouse } from '../../src/postgres/database.ts';
import { openRunReader } from '../../src/runs/store/run-reader.ts';
import { readStoredFacts } from '../../src/status/store/status-store.ts';
import { freshDatabase } from '../support/database.ts';

const LIMIT_MS = 200;
const database = await freshDatabase({ isMigrated: true });
const warehouse = openWarehouse({
  url: database.url,
  onIdleError: () => undefined,
});

describe('a status store whose database does not answer', () => {
  const runs = openRunReader(warehouse.db, LIMIT_MS);
  const unknown = '00000000-0000-7000-8000-000000000000';

  test.each([
    ['the status', () => readStoredFacts(warehouse.db, LIMIT_MS)],
    ['a page of runs', () => runs.runs({ limit: 10 })],
    ['a run', () => runs.run(unknown)],
    ['the log of a run', () => runs.logs(unknown, 10, '0')],
  ])('ends the wait for %s', async (_, ask) => {
    const holder = await warehouse.pool.connect();
    try {
      await holder.query(
        'begin; lock table mirror.runs, mirror.run_logs in access exclusive mode',
      );
      await expect(ask()).rejects.toMatchObject({
        code: 'DATABASE_UNREACHABLE',
      });
    } finally {
      await holder.query('rollback');
      holder.release();
    }
    await expect(ask()).resolves.not.toThrow();
  });
});
