/** Which queues a database has, and that a copy of it has others. */
import { Client } from 'pg';
import { expect, test } from 'vitest';
import { openWarehouse } from '../../src/postgres/database.ts';
import {
  queuePrefix,
  readIdentity,
  settleQueues,
} from '../../src/postgres/identity.ts';
import { openFreshDatabase } from '../support/database.ts';

test('a copy of a database has queues of its own, and the original keeps its', async () => {
  await using original = await openFreshDatabase({ isMigrated: true });
  const first = await openQueues(original.url);
  expect(await openQueues(original.url)).toBe(first);

  const copy = new URL(original.url);
  copy.pathname = `${copy.pathname}_copy`;
  const name = (url: string): string => new URL(url).pathname.slice(1);
  await administer(
    original.url,
    `select pg_terminate_backend(pid) from pg_stat_activity
     where datname = '${name(original.url)}'`,
  );
  await administer(
    original.url,
    `create database ${name(copy.href)} template ${name(original.url)}`,
  );
  const [one, other] = await Promise.all([
    openQueues(copy.href),
    openQueues(copy.href),
  ]);
  expect(one).not.toBe(first);
  expect(other).toBe(one);
  expect(await openQueues(copy.href)).toBe(one);
  expect(await openQueues(original.url)).toBe(first);
  await administer(original.url, `drop database ${name(copy.href)}`);
});

async function openQueues(url: string): Promise<string> {
  await using warehouse = openWarehouse({ url, onIdleError: () => undefined });
  await settleQueues(warehouse.db);
  return queuePrefix(await readIdentity(warehouse.db));
}

async function administer(url: string, statement: string): Promise<void> {
  const server = new URL(url);
  server.pathname = '/postgres';
  const client = new Client({ connectionString: server.href });
  await client.connect();
  await client.query(statement);
  await client.end();
}
