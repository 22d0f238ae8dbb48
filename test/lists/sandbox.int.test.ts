/**
 * Syncs over HTTP against the sandbox, compared with its truth: rows, order, growth, a
 * killed process.
 */
import { expect, test } from 'vitest';
import { openSource } from '../../src/source/source-client.ts';
import { startSandbox, type Sandbox } from '../support/sandbox.ts';
import type { ListName } from '../../src/lists/ports.ts';
import { localState, sourceConfig } from '../support/source-config.ts';
import { freshSyncWorld } from './sync-world.ts';

const world = await freshSyncWorld();

function booked(sandbox: Sandbox, list: ListName): string[] {
  if (list === 'parties')
    return Array.from(sandbox.truth.parties(), ({ id }) => id);
  return Array.from(
    sandbox.truth.checkpoints(),
    ({ atBlock, hash, blockHash }) => `${atBlock}/${hash}/${blockHash}`,
  );
}

async function mirrored(list: ListName): Promise<string[]> {
  const { rows } = await world.pool.query<{ key: string }>(
    list === 'parties'
      ? 'select party_id as key from mirror.parties where pos is not null order by pos'
      : `select at_block || '/' || hash || '/' || block_hash as key
         from mirror.checkpoints, generate_series(1, copies) order by 1`,
  );
  return inOrder(
    list,
    rows.map(({ key }) => key),
  );
}

function inOrder(list: ListName, keys: string[]): string[] {
  return list === 'parties'
    ? keys
    : keys.toSorted((left, right) =>
        left < right ? -1 : Number(left > right),
      );
}

test.each(['parties', 'checkpoints'] as const)(
  'the list of %s is held exactly after the first sync, increments and an audit',
  async (list) => {
    await using sandbox = await startSandbox({
      parties: 300,
      historyMs: 86_400_000,
      rateLimit: 'none',
    });
    await using source = openSource(sourceConfig(sandbox.url), localState());
    for (const isAudit of [false, false, false, true]) {
      const { verdict, evidence } = await world.sync(source.lists, {
        list,
        isAudit,
        pageSize: 20,
      });
      expect(evidence).toMatchObject({
        missing: [],
        doubts: [],
        asOfHeight: `${sandbox.truth.head().height}`,
      });
      expect(verdict).toBe('complete');
      expect(await mirrored(list)).toEqual(
        inOrder(list, booked(sandbox, list)),
      );
      sandbox.advance(3_600_000);
    }
  },
);

test('a list without new rows is complete as of the block that showed it', async () => {
  await using sandbox = await startSandbox({
    parties: 30,
    historyMs: 86_400_000,
    rateLimit: 'none',
  });
  await using source = openSource(sourceConfig(sandbox.url), localState());
  for (const newRows of ['30', '1', '0']) {
    const { evidence } = await world.sync(source.lists, {
      list: 'parties',
      isAudit: false,
      pageSize: 20,
    });
    expect(evidence).toMatchObject({ newRows });
    const { rows } = await world.pool.query(
      'select head_height::text as height from mirror.generations',
    );
    expect(rows).toEqual([{ height: `${sandbox.truth.head().height}` }]);
    sandbox.advance(30_000);
  }
});

test('checkpoints stay held where the source keeps seven days and a sync runs every day', async () => {
  const day = 86_400_000;
  await using sandbox = await startSandbox({
    checkpointRetentionMs: 7 * day,
    historyMs: 10 * day,
    rateLimit: 'none',
  });
  await using source = openSource(sourceConfig(sandbox.url), localState());
  const all = new Set<string>();
  for (let night = 0; night < 4; night += 1) {
    const { verdict } = await world.sync(source.lists, {
      list: 'checkpoints',
      pageSize: 500,
    });
    expect(verdict).toBe('complete');
    for (const key of booked(sandbox, 'checkpoints')) all.add(key);
    expect(new Set(await mirrored('checkpoints'))).toEqual(all);
    sandbox.advance(day);
  }
  sandbox.advance(9 * day);
  const lost = await world.sync(source.lists, {
    list: 'checkpoints',
    pageSize: 500,
  });
  expect({
    verdict: lost.verdict,
    gaps: (lost.evidence['knownGaps'] as unknown[]).length,
  }).toEqual({
    verdict: 'incomplete',
    gaps: 1,
  });
  const later = await world.sync(source.lists, {
    list: 'checkpoints',
    pageSize: 500,
  });
  expect(later).toMatchObject({
    verdict: 'complete',
    evidence: { knownGaps: [{}] },
  });
});
