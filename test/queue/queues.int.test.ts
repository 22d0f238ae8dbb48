/** One contract for the queues, held by both stores that they can live in. */
import { Redis } from 'ioredis';
import { afterAll, describe, expect, test, vi } from 'vitest';
import { PermanentError, RetryableError } from '../../src/errors/errors.ts';
import { createLog } from '../../src/logging/log.ts';
import type { QueueBackend } from '../../src/queue/backend.ts';
import { openPostgresBackend } from '../../src/queue/postgres-backend.ts';
import { openRedisBackend } from '../../src/queue/redis-backend.ts';
import { Queues, type NewJob } from '../../src/queue/queues.ts';
import type { WorkedJob } from '../../src/queue/queue-worker.ts';
import { freshDatabase } from '../support/database.ts';
import { freshRedis } from '../support/servers/redis.ts';
import { waitFor } from '../support/wait-for.ts';
import { numberedNames } from '../support/numbered-names.ts';

const database = await freshDatabase();
const redis = await freshRedis();
const log = createLog('silent');
/** Longer than a worker that is well leaves a job alone on a busy machine. */
const SILENT_MAX_MS = 3_000;

const BACKENDS: readonly [string, () => Promise<QueueBackend>][] = [
  [
    'redis',
    () =>
      openRedisBackend({
        url: redis.url,
        prefix: redis.prefix,
        onError: () => undefined,
      }),
  ],
  ['postgres', () => openPostgresBackend({ url: database.url })],
];

function job(jobId: string, priority = 1): NewJob {
  return { name: 'test', data: { jobId }, jobId, priority };
}

describe.each(BACKENDS)('queues on %s', (kind, openBackend) => {
  const openedQueues: Queues[] = [];
  const nextPrefix = numberedNames('test');

  /** Each test has queues of its own: a prefix is a mirror. */
  async function openQueues(prefix = nextPrefix()): Promise<Queues> {
    const queues = new Queues({ backend: await openBackend(), prefix, log });
    openedQueues.push(queues);
    return queues;
  }

  async function countEvents(queue: string): Promise<number> {
    if (kind === 'redis') {
      const client = new Redis(redis.url);
      return client
        .xlen(`${redis.prefix}:${queue}:events`)
        .finally(() => client.disconnect());
    }
    const found = await database.pool.query(
      'select from ledger_mirror_queue.event where queue = $1',
      [queue],
    );
    return found.rowCount ?? 0;
  }

  afterAll(async () => {
    await Promise.all(openedQueues.map((queues) => queues.close(2_000)));
  });

  test('hands each job out once, the urgent ones first', async () => {
    const queues = await openQueues();
    await queues.add('export', [
      job('night-1', 10),
      job('night-2', 10),
      job('asked', 1),
    ]);
    const seen: string[] = [];
    queues.work('export', 1, async (worked) => {
      seen.push(worked.id);
    });
    await waitFor(() => seen.length === 3, { what: 'three jobs worked' });
    expect(seen).toEqual(['asked', 'night-1', 'night-2']);
  });

  test('does not add a job twice under one id', async () => {
    const queues = await openQueues();
    await queues.add('sync', [job('same'), job('same')]);
    await queues.add('sync', [job('same')]);
    const counts = await queues.counts('sync');
    expect((counts['waiting'] ?? 0) + (counts['prioritized'] ?? 0)).toBe(1);
  });

  test('keeps the queues of two mirrors apart', async () => {
    const ours = await openQueues('ours');
    const theirs = await openQueues('theirs');
    await theirs.add('load', [job('theirs')]);
    await ours.add('load', [job('ours')]);
    const seen: string[] = [];
    ours.work('load', 1, async (worked) => {
      seen.push(worked.id);
    });
    await waitFor(() => seen.length === 1, { what: 'our own job' });
    expect(seen).toEqual(['ours']);
    expect((await theirs.counts('load'))['completed']).toBe(0);
  });

  test('delivers again what may pass, after the time that the error asks for', async () => {
    const queues = await openQueues();
    const attempts: number[] = [];
    const startedMs = performance.now();
    queues.work('sync', 1, async (worked) => {
      attempts.push(worked.attempt);
      if (worked.attempt < 3)
        throw new RetryableError('Cannot yet', {
          code: 'TEST',
          retryAfterMs: 100,
        });
    });
    await queues.add('sync', [job('again')]);
    await waitFor(
      async () => (await queues.counts('sync'))['completed'] === 1,
      {
        what: 'the job done',
      },
    );
    expect(attempts).toEqual([1, 2, 3]);
    expect(performance.now() - startedMs).toBeGreaterThan(200);
  });

  test('does not repeat what will fail again', async () => {
    const queues = await openQueues();
    let deliveries = 0;
    queues.work('sync', 1, async () => {
      deliveries += 1;
      throw new PermanentError('Cannot ever', { code: 'TEST' });
    });
    await queues.add('sync', [job('never')]);
    await waitFor(async () => (await queues.counts('sync'))['failed'] === 1, {
      what: 'the job failed',
    });
    expect(deliveries).toBe(1);
  });

  test('gives a job back at once when it is told to stop, for the next worker', async () => {
    const first = await openQueues('handover');
    const started = Promise.withResolvers<void>();
    first.work('nightly', 1, async (_job, signal) => {
      started.resolve();
      await new Promise((_resolve, reject) => {
        signal.addEventListener('abort', () =>
          reject(new RetryableError('stopping', { code: 'TEST' })),
        );
      });
    });
    await first.add('nightly', [job('handed-over')]);
    await started.promise;
    await first.close(5_000);
    const second = await openQueues('handover');
    const taken = Promise.withResolvers<WorkedJob>();
    second.work('nightly', 1, async (worked) => taken.resolve(worked));
    expect((await taken.promise).id).toBe('handed-over');
  });

  test('replaces a schedule instead of adding another, and tells when a job was due', async () => {
    const queues = await openQueues();
    const everySecond = { pattern: '* * * * * *', tz: 'Europe/Berlin' };
    const nightly = { pattern: '0 2 * * *', tz: 'UTC' };
    await queues.keepSchedule('nightly', 'tick', nightly, {
      name: 'tick',
      data: {},
    });
    await queues.keepSchedule('nightly', 'tick', everySecond, {
      name: 'tick',
      data: {},
    });
    const due: number[] = [];
    queues.work('nightly', 1, async (worked) => {
      due.push(worked.dueMs);
    });
    await waitFor(() => due.length >= 2, { what: 'two scheduled times' });
    expect(due.map((dueMs) => dueMs % 1_000)).toEqual(due.map(() => 0));
    expect(new Set(due).size).toBe(due.length);
  });

  test('lets workers that start at the same moment set the same schedule', async () => {
    const prefix = nextPrefix();
    const workers = await Promise.all(
      Array.from({ length: 6 }, () => openQueues(prefix)),
    );
    const tick = { name: 'tick', data: {} };
    for (let round = 0; round < 12; round += 1) {
      const pattern = `${round} 2 * * *`;
      const made = await Promise.all(
        workers.map((queues) =>
          queues.keepSchedule('nightly', 'tick', { pattern, tz: 'UTC' }, tick),
        ),
      );
      expect(made).toContain(true);
    }
  });

  test('sets a schedule anew whose next time is later than the pattern’s own', async () => {
    const queues = await openQueues();
    const nightly = { pattern: '0 2 * * *', tz: 'UTC' };
    const tick = { name: 'tick', data: {} };
    const clock = vi
      .spyOn(Date, 'now')
      .mockReturnValue(Date.now() + 400 * 86_400_000);
    await queues.keepSchedule('nightly', 'tick', nightly, tick);
    clock.mockRestore();

    expect(await queues.keepSchedule('nightly', 'tick', nightly, tick)).toBe(
      true,
    );
    expect(await queues.keepSchedule('nightly', 'tick', nightly, tick)).toBe(
      false,
    );
  });

  test('replaces a worker that takes nothing while the store answers, and only that one', async () => {
    const backend = await openBackend();
    let opened = 0;
    // The first worker is real and connected, but never asks for a job: as with a dead
    // line.
    const silentFirst: QueueBackend = {
      ...backend,
      worker: (name, processor, options) => {
        opened += 1;
        const quiet = { ...options, autorun: false };
        return backend.worker(name, processor, opened === 1 ? quiet : options);
      },
    };
    const queues = new Queues({
      backend: silentFirst,
      prefix: `silent-${kind}`,
      log,
      silentMaxMs: SILENT_MAX_MS,
    });
    openedQueues.push(queues);
    const taken: string[] = [];
    queues.work('sync', 1, async (worked) => void taken.push(worked.id));
    await queues.add('sync', [job('waiting')]);
    await waitFor(
      async () => {
        await queues.sendCanaries('worker-1');
        return taken.length === 1;
      },
      { what: 'the job that the first worker left alone' },
    );
    expect(queues.pulses()).toMatchObject([{ queue: 'sync', rebuilds: 1 }]);
    for (let round = 0; round < 3; round += 1) {
      await queues.sendCanaries('worker-1');
      await waitFor(
        async () => (await queues.counts('sync'))['prioritized'] === 0,
        {
          what: 'a canary',
        },
      );
    }
    expect(opened).toBe(2);
  });

  test('does not count among what waits the canaries that nobody takes', async () => {
    const queues = await openQueues();
    const stop = Promise.withResolvers<void>();
    queues.work('sync', 1, async () => stop.promise);
    await queues.add('sync', [job('held')]);
    await waitFor(async () => (await queues.counts('sync'))['active'] === 1, {
      what: 'the job taken',
    });
    await queues.sendCanaries('worker-1');
    expect((await queues.counts('sync'))['prioritized']).toBe(1);
    const { jobs, oldestMs } = await queues.depth('sync');
    expect([jobs['prioritized'], oldestMs]).toEqual([0, 0]);
    expect(await queues.open('sync')).toBe(1);
    stop.resolve();
  });

  test('does not count a canary that a worker has just taken', async () => {
    const backend = await openBackend();
    const stop = Promise.withResolvers<void>();
    // The canary stays in work for as long as the test looks.
    const slow: QueueBackend = {
      ...backend,
      worker: (name, processor, options) =>
        backend.worker(
          name,
          async (taken) => stop.promise.then(() => processor(taken)),
          options,
        ),
    };
    const queues = new Queues({ backend: slow, prefix: `taken-${kind}`, log });
    openedQueues.push(queues);
    queues.work('sync', 1, async () => undefined);
    await queues.sendCanaries('worker-1');
    await waitFor(async () => (await queues.counts('sync'))['active'] === 1, {
      what: 'the canary taken',
    });
    expect(await queues.open('sync')).toBe(0);
    stop.resolve();
  });

  test('keeps the last thousand events or so, whichever store they lie in', async () => {
    const prefix = nextPrefix();
    const queues = await openQueues(prefix);
    const ids = Array.from({ length: 900 }, (_, index) => `job-${index}`);
    let worked = 0;
    queues.work('export', 20, async () => {
      worked += 1;
    });
    await queues.add(
      'export',
      ids.map((id) => job(id)),
    );
    await waitFor(() => worked === ids.length, { what: 'the jobs worked' });
    // Some four a job; both stores trim by hundreds.
    const kept = await countEvents(`${prefix}-export`);
    expect([kept > 0, kept < 1_600]).toEqual([true, true]);
  });

  test('tells how much waits, and for how long', async () => {
    const queues = await openQueues();
    expect(await queues.depth('load')).toMatchObject({
      queue: 'load',
      oldestMs: 0,
    });
    const startedMs = Date.now();
    await queues.add('load', [job('first', 10), job('second', 1)]);
    const depth = await waitFor(
      async () => {
        const found = await queues.depth('load');
        return found.oldestMs > 0 ? found : undefined;
      },
      { what: 'an age' },
    );
    expect(depth.jobs).toMatchObject({ prioritized: 2, active: 0 });
    expect(depth.oldestMs).toBeLessThanOrEqual(Date.now() - startedMs);
  });
});

describe('queues on postgres', () => {
  test('set a schedule although the statement was the victim of a deadlock', async () => {
    const prefix = 'deadlock';
    const backend = await openPostgresBackend({ url: database.url });
    const queues = new Queues({ backend, prefix, log });
    const tick = { name: 'tick', data: {} };
    const keep = (pattern: string) =>
      queues.keepSchedule('nightly', 'tick', { pattern, tz: 'UTC' }, tick);
    await keep('0 2 * * *');

    const other = await database.pool.connect();
    const lock = (table: string) =>
      other.query(
        `select from ledger_mirror_queue.${table} where queue = $1 for update`,
        [`${prefix}-nightly`],
      );
    const isWaiting = async () => {
      const waiting = await database.pool.query(
        `select from pg_stat_activity where wait_event_type = 'Lock'
          and datname = current_database() and query ilike '%scheduler%'`,
      );
      return waiting.rowCount === 1;
    };
    try {
      // The server cancels the statement that notices the deadlock first.
      await other.query(`begin; set local deadlock_timeout = '1min'`);
      await lock('scheduler');
      const kept = keep('0 3 * * *');
      await waitFor(isWaiting, { what: 'the lock on the schedule' });
      await lock('job');
      await other.query('rollback');
      expect(await kept).toBe(true);
    } finally {
      other.release(true);
      await queues.close(2_000);
    }
  });
});
