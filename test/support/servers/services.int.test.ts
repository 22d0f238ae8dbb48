/** The servers that the tests rely on behave as their names promise. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Redis } from 'ioredis';
import { expect, onTestFinished, test, vi } from 'vitest';
import { freshDatabase, openFreshDatabase } from '../database.ts';
import { startPostgresService } from './postgres-service.ts';
import { freshRedis, startOwnRedis } from './redis.ts';

const database = await freshDatabase();
const redis = await freshRedis();

test('databases are apart from each other', async () => {
  await database.pool.query('create table here (a int)');
  await using other = await openFreshDatabase();
  const { rows } = await other.pool.query(
    `select to_regclass('here') as found`,
  );
  expect(rows).toEqual([{ found: null }]);
});

test('the shared Redis answers', async () => {
  const client = new Redis(redis.url);
  await client.set(`${redis.prefix}:a`, 'b');
  expect(await client.get(`${redis.prefix}:a`)).toBe('b');
  client.disconnect();
});

test('a private Redis keeps its dump over a stop and loses what came later by a kill', async ({
  skip,
}) => {
  await using own = await startOwnRedis();
  skip(!own.isReal, 'the stand-in keeps no dump');
  const client = new Redis(own.url, {
    retryStrategy: () => 20,
    maxRetriesPerRequest: null,
  });
  client.on('error', () => undefined);
  await client.set('kept', '1');
  await own.stop();
  await own.start();
  expect(await client.get('kept')).toBe('1');
  await client.set('lost', '1');
  await own.kill();
  await own.start();
  expect(await client.mget('kept', 'lost')).toEqual(['1', null]);
  client.disconnect();
});

test('a Docker that answers and has no image is done without', async () => {
  const engine = createServer((request, response) => {
    response.writeHead(request.url === '/_ping' ? 200 : 500).end();
  });
  engine.listen(0, '127.0.0.1');
  await once(engine, 'listening');
  onTestFinished(() => {
    vi.unstubAllEnvs();
    engine.close();
  });
  vi.stubEnv(
    'DOCKER_HOST',
    `tcp://127.0.0.1:${(engine.address() as AddressInfo).port}`,
  );
  vi.stubEnv('TEST_DATABASE_URL', '');
  await using service = await startPostgresService();
  expect(service.url).toContain('127.0.0.1');
});
