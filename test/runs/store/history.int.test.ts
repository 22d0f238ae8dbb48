/** What is forgotten of finished runs, and what stays. */
import { beforeEach, describe, expect, test } from 'vitest';
import { openWarehouse } from '../../../src/postgres/database.ts';
import { forgetHistory } from '../../../src/runs/store/history.ts';
import { addCost } from '../../../src/runs/store/run-costs.ts';
import { planNightly } from '../../../src/runs/store/nightly/nightly-plan.ts';
import { RunStore } from '../../../src/runs/store/run-store.ts';
import { freshDatabase } from '../../support/database.ts';
import {
  addParties,
  ageFinishedRun,
  emptyLists,
  emptyRuns,
} from '../../support/mirror-arrange.ts';
import { countRows } from '../../support/mirror-state.ts';

const database = await freshDatabase({ isMigrated: true });
const { pool } = database;
const { db } = openWarehouse({
  url: database.url,
  onIdleError: () => undefined,
});
const runs = new RunStore(db);
const DAY_MS = 86_400_000;
const ALL = {
  partyIds: undefined,
  exportsMax: undefined,
  everyParty: true,
  idleNightsMax: 28,
};

beforeEach(async () => {
  await emptyRuns(pool);
  await emptyLists(pool);
  await addParties(pool, ['1'.repeat(64)]);
});

async function night(days: number): Promise<string> {
  const { runId } = await runs.create({
    kind: 'nightly',
    subject: 'scheduled',
  });
  await planNightly(db, { ...ALL, runId });
  const child = await runs.create({
    kind: 'load',
    subject: 'warehouse and lake',
    parentRunId: runId,
  });
  await addCost(db, runId, '0199a000-0000-7000-8000-000000000001', {
    requests: { lists: 1, exports: 1 },
    retries: 0,
    failures: 0,
    bytes: 1,
    waitedMs: 0,
  });
  for (const id of [child.runId, runId]) {
    await runs.finish(id, 'complete', {});
    await ageFinishedRun(pool, id, days);
  }
  return runId;
}

async function lists(): Promise<number> {
  const { rows } = await pool.query<{ count: string }>(
    `select count(*) from pg_inherits where inhparent = 'mirror.nightly_units'::regclass`,
  );
  return Number(rows[0]?.count);
}

describe('the history of runs', () => {
  test('is kept for its retention: older nightly lists, runs and costs go, and tables stop growing', async () => {
    for (let day = 200; day > 0; day -= 10) await night(day);
    expect(await lists()).toBe(20);
    // Children first, then the runs that they named.
    await forgetHistory(db, 90 * DAY_MS);
    await forgetHistory(db, 90 * DAY_MS);
    expect(await lists()).toBe(8);
    expect([
      await countRows(pool, 'runs'),
      await countRows(pool, 'source_costs'),
    ]).toEqual([16, 8]);
    expect(await forgetHistory(db, 90 * DAY_MS)).toEqual({
      runs: 0,
      nightlyLists: 0,
    });
  });

  test('forgets doubts and gaps of lists that were closed as long ago, and no open ones', async () => {
    for (const daysAgo of [200, 10, null]) {
      const closed = [
        daysAgo,
        daysAgo === null ? null : '0199a000-0000-7000-8000-000000000001',
      ];
      await database.pool.query(
        `insert into mirror.doubts (subject, epoch, code, closed_at, closed_by_run)
         values ('parties', 1, 'ROW_MISSING', now() - $1 * interval '1 day', $2::uuid)`,
        closed,
      );
      await database.pool.query(
        `insert into mirror.list_gaps (list, epoch, below_key, above_key, found_at, closed_at)
         values ('checkpoints', 1, '1', '2', now() - interval '300 days', now() - $1 * interval '1 day')`,
        [daysAgo],
      );
    }
    await forgetHistory(db, 90 * DAY_MS);
    const { rows } = await database.pool.query(
      `select (select count(*)::int from mirror.doubts) as doubts, (select count(*)::int from mirror.list_gaps) as gaps`,
    );
    expect(rows).toEqual([{ doubts: 2, gaps: 2 }]);
  });

  test('keeps the newest run of each kind, however old, and what another table names', async () => {
    const only = await night(400);
    const sync = await runs.create({ kind: 'sync', subject: 'parties' });
    await runs.finish(sync.runId, 'complete', {});
    await forgetHistory(db, 90 * DAY_MS);
    expect(await runs.get(only)).toMatchObject({ verdict: 'complete' });
    expect(await runs.get(sync.runId)).toMatchObject({ verdict: 'complete' });
  });
});
