import { afterAll, expect, test } from 'vitest';
import { nowMicros } from '../../src/time/time.ts';
import { openWarehouse } from '../../src/postgres/database.ts';
import { openBanStore } from '../../src/source/store/source-state.ts';
import { freshDatabase } from '../support/database.ts';

const database = await freshDatabase({ isMigrated: true });
const warehouse = openWarehouse({
  url: database.url,
  onIdleError: () => undefined,
});
afterAll(() => warehouse[Symbol.asyncDispose]());

test('a ban is known to every worker, is never shortened, and ends by itself', async () => {
  const one = openBanStore(warehouse.db);
  const other = openBanStore(warehouse.db);
  expect(await one.get()).toBeUndefined();
  const until = nowMicros() + 60_000_123n;
  await one.set(until);
  await other.set(until - 30_000_000n);
  expect(await other.get()).toBe(until);
  await database.pool.query(
    `update mirror.source_state set ban_until = clock_timestamp() - interval '1 ms'`,
  );
  expect(await one.get()).toBeUndefined();
});
