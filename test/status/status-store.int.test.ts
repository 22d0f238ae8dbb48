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

test.each([
  ['a queued run', 'queued', null, true],
  ['a run whose process is there', 'running', '1 second', true],
  ['a run that waits for its next try', 'running', null, true],
  ['a run whose process died', 'running', '1 minute', false],
] as const)(
  '%s is a nightly run under way (%s, seen %s ago): %s',
  async (_which, state, silent, isOpen) => {
    const { rows } = await warehouse.pool.query<{ runId: string }>(
      `insert into mirror.runs (run_id, kind, subject, state, started_at, heartbeat_at)
       values (gen_random_uuid(), 'nightly', 'now', $1, now(), clock_timestamp() - $2::interval)
       returning run_id as "runId"`,
      [state, silent],
    );
    const [run] = rows;
    const { openNightlyRun } = await readStoredFacts(warehouse.db);
    expect(openNightlyRun).toBe(isOpen ? run?.runId : null);
    await warehouse.pool.query('delete from mirror.runs');
  },
);
