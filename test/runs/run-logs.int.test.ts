/** What is logged while a run is worked is kept with the run, without slowing or ending it. */
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { createLog, inRun } from '../../src/core/log.ts';
import { RunLogs } from '../../src/runs/run-logs.ts';
import { type RunLine, RunLogStore } from '../../src/runs/store/run-log-store.ts';
import { RunStore } from '../../src/runs/store/run-store.ts';
import { openWarehouse } from '../../src/postgres/database.ts';
import { freshDatabase } from '../support/database.ts';
import { removeRuns } from '../support/mirror-arrange.ts';

const database = await freshDatabase({ isMigrated: true });
const warehouse = openWarehouse({ url: database.url, onIdleError: () => undefined });
const store = new RunLogStore(warehouse.db);

async function newRun(): Promise<string> {
  const { runId } = await new RunStore(warehouse.db).create({ kind: 'load', subject: 'test' });
  return runId;
}

describe('the log of a run', () => {
  test('keeps every line said in it, with its fields, in order, and no other', async () => {
    const runId = await newRun();
    const logs = new RunLogs(store);
    const shown: string[] = [];
    const log = logs.tee(createLog('warn', { destination: { write: (line) => shown.push(line) } }));
    log.info('Before the run');
    await inRun(runId, async () => {
      log.info({ rows: 12n, tookMs: 5 }, 'Page committed');
      log.child({ partyId: 'ab' }).warn({ err: new Error('refused') }, 'Retrying');
      log.debug('Too fine to keep');
    });
    await logs[Symbol.asyncDispose]();
    const { lines, next } = await store.read(runId, 10);
    expect(lines).toMatchObject([
      { level: 'info', message: 'Page committed', fields: { rows: '12', tookMs: 5 } },
      { level: 'warn', message: 'Retrying', fields: { partyId: 'ab', err: { message: 'refused' } } },
    ]);
    expect(next).toBeUndefined();
    expect(shown.map((line) => JSON.parse(line) as unknown)).toMatchObject([{ msg: 'Retrying', runId }]);
  });

  test('is read page by page', async () => {
    const runId = await newRun();
    const logs = new RunLogs(store);
    const log = logs.tee(createLog('silent'));
    await inRun(runId, async () => {
      for (let line = 0; line < 7; line += 1) log.info({ line }, 'Line');
    });
    await logs[Symbol.asyncDispose]();
    const first = await store.read(runId, 4);
    const second = await store.read(runId, 4, first.next);
    const numbers = [...first.lines, ...second.lines].map(({ fields }) => fields['line']);
    expect(numbers).toEqual([0, 1, 2, 3, 4, 5, 6]);
    expect(second.next).toBeUndefined();
  });

  test('is read whole, page by page, where another process writes a line meanwhile', async () => {
    const runId = await newRun();
    const line = (message: string): RunLine => ({
      runId,
      at: new Date().toISOString(),
      level: 'info',
      message,
      fields: {},
    });
    const isWritten = Promise.withResolvers<void>();
    const isRead = Promise.withResolvers<void>();
    const slow = warehouse.db.transaction().execute(async (tx) => {
      await new RunLogStore(tx).append([line('of a slow process')]);
      isWritten.resolve();
      await isRead.promise;
    });
    await isWritten.promise;
    const quick = store.append([line('of a quick one')]);
    await Promise.race([quick, sleep(200)]);
    const first = await store.read(runId, 1);
    isRead.resolve();
    await Promise.all([slow, quick]);
    const second = await store.read(runId, 10, first.next);
    const messages = [...first.lines, ...second.lines].map(({ message }) => message);
    expect(messages).toEqual(['of a slow process', 'of a quick one']);
  });

  test('ends with a line that says so where a run says too much', async () => {
    const kept: string[] = [];
    const logs = new RunLogs({
      append: async (lines) => {
        kept.push(...lines.map(({ message }) => message));
      },
    });
    const log = logs.tee(createLog('silent'));
    await inRun('endless', async () => {
      for (let line = 0; line < 6_000; line += 1) {
        log.info('Again');
        if (line % 500 === 0) for (let batch = 0; batch < 2; batch += 1) await logs.flush();
      }
    });
    await logs[Symbol.asyncDispose]();
    expect(kept).toHaveLength(5_000);
    expect(kept.at(-1)).toBe('Further lines of this run are not kept');
  });

  test('is lost where the database is away, and the run goes on', async () => {
    const logs = new RunLogs({ append: () => Promise.reject(new Error('away')) });
    const log = logs.tee(createLog('silent'));
    const worked = await inRun('some run', async () => {
      log.info('Said');
      await logs.flush();
      return 'done';
    });
    await logs[Symbol.asyncDispose]();
    expect(worked).toBe('done');
  });

  test('is removed with its run', async () => {
    const runId = await newRun();
    await store.append([{ runId, at: new Date().toISOString(), level: 'info', message: 'Said', fields: {} }]);
    await removeRuns(database.pool, [runId]);
    expect((await store.read(runId, 10)).lines).toEqual([]);
  });
});
