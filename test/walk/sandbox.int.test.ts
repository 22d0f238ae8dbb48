/** The walk over HTTP against the sandbox, compared with its books: rows, order, growth, a killed process. */
import { afterAll, beforeEach, expect, test } from 'vitest';
import { openSource } from '../../src/source/source.ts';
import { startSandbox, type Sandbox } from '../../src/sandbox/server.ts';
import type { ListName } from '../../src/walk/ports.ts';
import { freshDatabase } from '../support/database.ts';
import { sourceConfig } from './source-config.ts';
import { openMigrated, WalkWorld } from './walk-world.ts';

const database = await freshDatabase();
const warehouse = await openMigrated(database.url);
const world = new WalkWorld(warehouse);
afterAll(() => warehouse[Symbol.asyncDispose]());
beforeEach(() => world.reset());

function booked(sandbox: Sandbox, list: ListName): string[] {
  if (list === 'parties') return Array.from(sandbox.books.parties(), ({ id }) => id);
  return Array.from(
    sandbox.books.checkpoints(),
    ({ atBlock, hash, blockHash }) => `${atBlock}/${hash}/${blockHash}`,
  );
}

async function mirrored(list: ListName): Promise<string[]> {
  return list === 'parties' ? world.placedParties() : world.checkpointKeys();
}

function inOrder(list: ListName, keys: string[]): string[] {
  return list === 'parties'
    ? keys
    : keys.toSorted((left, right) => (left < right ? -1 : Number(left > right)));
}

test.each(['parties', 'checkpoints'] as const)('%s: first walk, increments, audit', async (list) => {
  await using sandbox = await startSandbox({ parties: 300, historyMs: 86_400_000, rateLimit: 'none' });
  await using source = openSource(sourceConfig(sandbox.url), {});
  for (const kind of ['walk', 'walk', 'walk', 'audit'] as const) {
    const { verdict, evidence } = await world.walk(source.lists, { list, kind, pageSize: 20 });
    expect(evidence).toMatchObject({
      missing: [],
      violations: [],
      asOfHeight: `${sandbox.books.head().height}`,
    });
    expect(verdict).toBe('complete');
    expect(await mirrored(list)).toEqual(inOrder(list, booked(sandbox, list)));
    sandbox.advance(3_600_000);
  }
});

test('seven days of retention, a run a day', async () => {
  const day = 86_400_000;
  await using sandbox = await startSandbox({
    checkpointRetentionMs: 7 * day,
    historyMs: 10 * day,
    rateLimit: 'none',
  });
  await using source = openSource(sourceConfig(sandbox.url), {});
  const all = new Set<string>();
  for (let night = 0; night < 4; night += 1) {
    const { verdict } = await world.walk(source.lists, { list: 'checkpoints', pageSize: 500 });
    expect(verdict).toBe('complete');
    for (const key of booked(sandbox, 'checkpoints')) all.add(key);
    expect(new Set(await mirrored('checkpoints'))).toEqual(all);
    sandbox.advance(day);
  }
  sandbox.advance(9 * day);
  const lost = await world.walk(source.lists, { list: 'checkpoints', pageSize: 500 });
  expect({ verdict: lost.verdict, gaps: lost.evidence.knownGaps.length }).toEqual({
    verdict: 'incomplete',
    gaps: 1,
  });
  const later = await world.walk(source.lists, { list: 'checkpoints', pageSize: 500 });
  expect(later).toMatchObject({ verdict: 'complete', evidence: { knownGaps: [{}] } });
});
