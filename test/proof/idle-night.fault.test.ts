/** A night of a large mirror in which nothing changed: what its statement adds. */
import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { addIdleLedgers } from '../support/mirror-arrange.ts';
import { NEVER_ABORTED } from '../support/samples.ts';
import { proofWorld } from './proof-world.ts';

const world = await proofWorld();

test('a night of 100,000 idle ledgers adds less than 4 KiB to the log', async () => {
  const ids = Array.from({ length: 100_000 }, (_, index) =>
    createHash('sha256').update(`idle ${index}`).digest('hex'),
  );
  await addIdleLedgers(world.database.pool, ids);
  expect(await world.night('0')).toMatchObject({ changed: 100_000 });
  const before = await sizesOfLog();
  expect(await world.night('1')).toMatchObject({ changed: 0 });
  const added = [...(await sizesOfLog())].filter(([key]) => !before.has(key));
  const bytes = added.reduce((sum, [, size]) => sum + size, 0);
  expect(bytes).toBeLessThan(4 * 2 ** 10);
});

/** Bytes of each file of the log, by its key. */
async function sizesOfLog(): Promise<ReadonlyMap<string, number>> {
  const sizes = new Map<string, number>();
  for await (const { key } of world.objects.list('proof/', NEVER_ABORTED)) {
    const head = await world.objects.head(key, NEVER_ABORTED);
    sizes.set(key, Number(head?.bytes));
  }
  return sizes;
}
