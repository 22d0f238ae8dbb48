/** Stores that go away for long, and come back: workers go on without being restarted. */
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { createLog } from '../../src/logging/log.ts';
import type { QueueBackend } from '../../src/queue/backend.ts';
import { openPostgresBackend } from '../../src/queue/postgres-backend.ts';
import { openRedisBackend } from '../../src/queue/redis-backend.ts';
import { Queues } from '../../src/queue/queues.ts';
import { openFreshDatabase } from '../support/database.ts';
import { startOwnRedis } from '../support/servers/redis.ts';
import { serviceUrl } from '../support/servers/services.ts';
import { SilentProxy } from '../support/servers/silent-proxy.ts';
import { waitFor } from '../support/wait-for.ts';
import { Client } from 'pg';

/** As long as the promise; far beyond every timeout of BullMQ and of the connections. */
const OUTAGE_MS = 120_000;
/** By then a job is worked, also on a busy machine. */
const BACK_MS = 90_000;

/**
 * A worker on one queue, which is asked for life by jobs and canaries as a long-lived
 * process does.
 */
class Desk implements AsyncDisposable {
  readonly queues: Queues;
  readonly taken: string[] = [];
  readonly #timer: NodeJS.Timeout;
  #jobs = 0;

  constructor(backend: QueueBackend) {
    this.queues = new Queues({
      backend,
      prefix: 'outage',
      log: createLog('silent'),
      silentMaxMs: 10_000,
    });
    this.queues.work('export', 1, async (job) => void this.taken.push(job.id));
    this.#timer = setInterval(
      () => void this.queues.sendCanaries('worker-1').catch(() => undefined),
      2_000,
    );
  }

  /** A job is added and worked. */
  async works(timeoutMs: number): Promise<void> {
    this.#jobs += 1;
    const jobId = `job-${this.#jobs}`;
    const deadlineMs = performance.now() + timeoutMs;
    for (;;) {
      try {
        await this.queues.add('export', [
          { name: 'test', data: {}, jobId, priority: 1 },
        ]);
        break;
      } catch (error) {
        if (performance.now() > deadlineMs) throw error;
        await sleep(100);
      }
    }
    await waitFor(() => this.taken.includes(jobId), {
      what: `${jobId} is worked`,
      timeoutMs: Math.max(1_000, deadlineMs - performance.now()),
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    await this.queues.close(1_000);
  }
}

describe.concurrent('an outage of the queue’s store', () => {
  test.each([
    ['a Redis that was away for two minutes', 'stop'],
    ['a Redis that was killed, with all its jobs', 'kill'],
    ['a Redis that hung for two minutes, its connections open', 'freeze'],
  ] as const)(
    'is outlived by the workers: %s',
    { timeout: OUTAGE_MS + 3 * BACK_MS },
    async (_what, outage) => {
      await using redis = await startOwnRedis();
      const backend = await openRedisBackend({
        url: redis.url,
        prefix: 'outage',
        onError: () => undefined,
      });
      await using desk = new Desk(backend);
      await desk.works(BACK_MS);
      if (outage === 'freeze') redis.freeze();
      else await redis[outage]();
      await sleep(OUTAGE_MS);
      if (outage === 'freeze') redis.thaw();
      else await redis.start();
      await desk.works(BACK_MS);
      await desk.works(BACK_MS);
      expect(new Set(desk.taken).size).toBe(3);
    },
  );

  test.each([
    [
      'Redis',
      async (url: string) =>
        openRedisBackend({ url, prefix: 'outage', onError: () => undefined }),
    ],
    ['Postgres', async (url: string) => openPostgresBackend({ url })],
  ] as const)(
    'lines to %s that died without either end being told',
    { timeout: 4 * BACK_MS },
    async (store, open) => {
      await using stack = new AsyncDisposableStack();
      const service = stack.use(
        await (store === 'Redis' ? startOwnRedis() : openFreshDatabase()),
      );
      const proxy = stack.use(await SilentProxy.before(service.url));
      const desk = stack.use(new Desk(await open(proxy.url)));
      await desk.works(BACK_MS);
      const openedBefore = proxy.opened;
      proxy.loseAll();
      // Each line is found dead by itself: one may bring a job before the one that jobs
      // are awaited on is found.
      await desk.works(BACK_MS);
      await desk.works(BACK_MS);
      expect(new Set(desk.taken).size).toBe(3);
      expect(proxy.opened).toBeGreaterThan(openedBefore);
    },
  );

  test(
    'is outlived by the workers: a Postgres that took no connection for half a minute',
    { timeout: 30_000 + 3 * BACK_MS },
    async () => {
      await using database = await openFreshDatabase();
      await using administrator = await connectTo(await serviceUrl('postgres'));
      const name = new URL(database.url).pathname.slice(1);
      await using desk = new Desk(
        await openPostgresBackend({ url: database.url }),
      );
      await desk.works(BACK_MS);
      await administrator.ask(
        `alter database ${name} with allow_connections false`,
      );
      await administrator.ask(
        `select pg_terminate_backend(pid) from pg_stat_activity where datname = '${name}'`,
      );
      await sleep(30_000);
      await administrator.ask(
        `alter database ${name} with allow_connections true`,
      );
      await desk.works(BACK_MS);
      await desk.works(BACK_MS);
      expect(desk.taken).toHaveLength(3);
    },
  );
});

async function connectTo(
  url: string,
): Promise<AsyncDisposable & { ask(text: string): Promise<unknown> }> {
  const client = new Client({ connectionString: url });
  await client.connect();
  return {
    ask: (text) => client.query(text),
    [Symbol.asyncDispose]: () => client.end(),
  };
}
