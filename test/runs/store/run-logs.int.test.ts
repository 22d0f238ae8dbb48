/**
 * What is logged while a run is worked is kept with the run, without slowing or ending
 * it.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { createLog, inRun } from '../../../src/logging/log.ts';
import {
  appendLines,
  readLines,
  type RunLine,
  RunLogs,
} from '../../../src/runs/store/run-logs.ts';
import { RunStore } from '../../../src/runs/store/run-store.ts';
import { openWarehouse } from '../../../src/postgres/database.ts';
import { freshDatabase } from '../../support/database.ts';
import { removeRuns } from '../../support/mirror-arrange.ts';

const database = await freshDatabase({ isMigrated: true });
const warehouse = openWarehouse({
  url: database.url,
  onIdleError: () => undefined,
});
const { db } = warehouse;

async function newRun(): Promise<string> {
  const { runId } = await new RunStore(warehouse.db).create({
    kind: 'load',
    subject: 'test',
  });
  return runId;
}

describe('the log of a run', () => {
  test('keeps every line said in it, with its fields, in order, and no other', async () => {
    const runId = await newRun();
    const logs = new RunLogs((lines) => appendLines(db, lines));
    const shown: string[] = [];
    const log = logs.tee(
      createLog('warn', { write: (line) => shown.push(line) }),
    );
    log.info('Before the run');
    await inRun(runId, async () => {
      log.info({ rows: 12n, tookMs: 5 }, 'Page committed');
      log.warn({ partyId: 'ab', err: new Error('refused') }, 'Retrying');
      log.debug('Too fine to keep');
    });
    await logs[Symbol.asyncDispose]();
    const { lines, next } = await readLines(db, runId, 10);
    expect(lines).toMatchObject([
      {
        level: 'info',
        message: 'Page committed',
        fields: { rows: '12', tookMs: 5 },
      },
      {
        level: 'warn',
        message: 'Retrying',
        fields: { partyId: 'ab', err: { message: 'refused' } },
      },
    ]);
    expect(next).toBeUndefined();
    expect(shown.map((line) => JSON.parse(line) as unknown)).toMatchObject([
      { msg: 'Retrying', runId },
    ]);
  });

  test('is read by time, also where a process writes later what it said earlier', async () => {
    const runId = await newRun();
    const line = (second: number): RunLine => {
      return {
        runId,
        at: `2026-11-24T03:11:${second}.000Z`,
        level: 'info',
        message: `${second}`,
        fields: {},
      };
    };
    await appendLines(db, [line(34), line(56)]);
    await appendLines(db, [line(35), line(40)]);
    const first = await readLines(db, runId, 3);
    expect(first.lines.map(({ message }) => message)).toEqual([
      '34',
      '35',
      '56',
    ]);
    const second = await readLines(db, runId, 3, first.next);
    expect(second.lines.map(({ message }) => message)).toEqual(['40']);
  });

  test('is read page by page, also where the number of lines gains a digit', async () => {
    const runId = await newRun();
    const logs = new RunLogs((lines) => appendLines(db, lines));
    const log = logs.tee(createLog('silent'));
    await inRun(runId, async () => {
      for (let line = 0; line < 120; line += 1) log.info({ line }, 'Line');
    });
    await logs[Symbol.asyncDispose]();
    const first = await readLines(db, runId, 60);
    const second = await readLines(db, runId, 61, first.next);
    const numbers = [...first.lines, ...second.lines].map(
      ({ fields }) => fields['line'],
    );
    expect(numbers).toEqual(Array.from({ length: 120 }, (_, line) => line));
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
      await appendLines(tx, [line('of a slow process')]);
      isWritten.resolve();
      await isRead.promise;
    });
    await isWritten.promise;
    const quick = appendLines(db, [line('of a quick one')]);
    await Promise.race([quick, sleep(200)]);
    const first = await readLines(db, runId, 1);
    isRead.resolve();
    await Promise.all([slow, quick]);
    const second = await readLines(db, runId, 10, first.next);
    const messages = [...first.lines, ...second.lines].map(
      ({ message }) => message,
    );
    expect(messages).toEqual(['of a slow process', 'of a quick one']);
  });

  test('ends with a line that says so where a run says too much', async () => {
    const kept: string[] = [];
    const logs = new RunLogs(async (lines) => {
      kept.push(...lines.map(({ message }) => message));
    });
    const log = logs.tee(createLog('silent'));
    await inRun('endless', async () => {
      for (let line = 0; line < 6_000; line += 1) {
        log.info('Again');
        if (line % 500 === 0)
          for (let batch = 0; batch < 2; batch += 1) await logs.flush();
      }
    });
    await logs[Symbol.asyncDispose]();
    expect(kept).toHaveLength(5_000);
    expect(kept.at(-1)).toBe('Further log lines of this run are not kept');
  });

  test('is lost where the database is away, and the run goes on', async () => {
    const logs = new RunLogs(() => Promise.reject(new Error('away')));
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
    await appendLines(db, [
      {
        runId,
        at: new Date().toISOString(),
        level: 'info',
        message: 'Said',
        fields: {},
      },
    ]);
    await removeRuns(database.pool, [runId]);
    expect((await readLines(db, runId, 10)).lines).toEqual([]);
  });
});
