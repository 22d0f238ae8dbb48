/** HAProxy before Postgres and before Redis, with timeouts that cut what is idle. */
import { Redis } from 'ioredis';
import { describe, expect, test } from 'vitest';
import { createLog } from '../../src/logging/log.ts';
import { openWarehouse } from '../../src/postgres/database.ts';
import { Queues } from '../../src/queue/queues.ts';
import { openRedisBackend } from '../../src/queue/redis-backend.ts';
import { openHome } from '../cli/mirror-home.ts';
import { openFreshDatabase } from '../support/database.ts';
import { startSandbox } from '../support/sandbox.ts';
import { startOwnRedis } from '../support/servers/redis.ts';
import { redisCommand } from '../support/servers/services.ts';
import { waitFor } from '../support/wait-for.ts';
import { Daemon, findProgram, type Program } from './programs.ts';

const PROGRAM = 'usr/sbin/haproxy';
/** Shorter than anybody sets it: every connection that waits is cut. */
const CUT = '3s';
const haproxy = await findProgram('haproxy', PROGRAM);

describe.skipIf(haproxy === undefined)('HAProxy before Postgres', () => {
  test('a night is complete while idle connections are cut', async () => {
    await using database = await openFreshDatabase();
    await using sandbox = await startSandbox({
      parties: 3,
      entriesMean: 20,
      rateLimit: 'none',
    });
    await using balancer = await startBalancer(haproxy, database.url);
    await using home = await openHome({
      SOURCE_URL: sandbox.url,
      DATABASE_URL: through(balancer, database.url),
    });
    const night = await home.json(['nightly']);
    expect(night).toMatchObject({ code: 0, document: { verdict: 'complete' } });
    expect(await home.run(['verify', '--deep'])).toMatchObject({ code: 0 });
  });

  test('a pool whose idle connections were cut answers again', async () => {
    await using database = await openFreshDatabase();
    await using balancer = await startBalancer(haproxy, database.url);
    await using warehouse = openWarehouse({
      url: through(balancer, database.url),
      onIdleError: () => undefined,
    });
    const ask = async (): Promise<unknown> =>
      (await warehouse.pool.query('select 1 as one')).rows[0];
    expect(await ask()).toEqual({ one: 1 });
    await waitFor(() => warehouse.pool.totalCount === 0, {
      what: 'HAProxy to cut the idle connection',
    });
    expect(await ask()).toEqual({ one: 1 });
  });
});

const command = await redisCommand();
if (!command.isReal)
  process.stderr.write(
    'Not tested in these surroundings: HAProxy before redis-server (only the stand-in)\n',
  );

describe.skipIf(haproxy === undefined || !command.isReal)(
  'HAProxy before Redis',
  () => {
    test('a worker whose waiting connection is cut takes the next job', async () => {
      await using redis = await startOwnRedis();
      const direct = new Redis(redis.url);
      const connections = async (): Promise<number> =>
        Number(
          /total_connections_received:(\d+)/.exec(
            await direct.info('stats'),
          )?.[1],
        );
      await using balancer = await startBalancer(haproxy, redis.url);
      const queues = new Queues({
        backend: await openRedisBackend({
          url: through(balancer, redis.url),
          prefix: 'lm-haproxy',
          onError: () => undefined,
        }),
        prefix: 'test',
        log: createLog('silent'),
      });
      const taken: unknown[] = [];
      const addOne = (jobId: string): Promise<unknown> =>
        queues.add('sync', [
          { name: 'test', data: { jobId }, jobId, priority: 1 },
        ]);
      try {
        queues.work('sync', 1, async ({ data }) => {
          taken.push(data);
        });
        await addOne('one');
        await waitFor(() => taken.length === 1, { what: 'the first job' });
        const before = await connections();
        await waitFor(async () => (await connections()) > before, {
          timeoutMs: 30_000,
          what: 'HAProxy to cut connections, and these to come again',
        });
        await addOne('two');
        await waitFor(() => taken.length === 2, {
          timeoutMs: 30_000,
          what: 'the second job',
        });
        expect(taken).toEqual([{ jobId: 'one' }, { jobId: 'two' }]);
      } finally {
        await queues.close(1_000);
        direct.disconnect();
      }
    });
  },
);

/** @param url of the service behind it, on this machine */
function startBalancer(
  program: Program | undefined,
  url: string,
): Promise<Daemon> {
  if (program === undefined) throw new Error('there is no HAProxy');
  const { hostname, port: upstream } = new URL(url);
  return Daemon.start(
    program,
    PROGRAM,
    (_dir, port) => `
listen service
  mode tcp
  bind 127.0.0.1:${port}
  timeout connect 5s
  timeout client ${CUT}
  timeout server ${CUT}
  server one ${hostname}:${upstream}
`,
    (file) => ['-db', '-f', file],
  );
}

function through(balancer: Daemon, url: string): string {
  const address = new URL(url);
  address.port = String(balancer.port);
  return address.href;
}
