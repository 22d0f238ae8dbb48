/**
 * The first reading of a list that came back from the lake: it is compared with what the
 * lost database had proven.
 */
import { describe, expect, test } from 'vitest';
import type { VerdictWithEvidence } from '../../src/errors/verdict.ts';
import type { ListName } from '../../src/lists/ports.ts';
import {
  restoreCheckpoints,
  restoreParties,
} from '../../src/lists/store/restore-lists.ts';
import { checkpoints, ListDouble, parties } from './list-double.ts';
import { freshSyncWorld } from './sync-world.ts';

const world = await freshSyncWorld();

const LISTS = ['parties', 'checkpoints'] as const;
const ROWS = 40;
const FIRST_SEEN = { firstSeenAt: '2023-05-01T00:00:00Z', extra: null };

/** Puts back what the lost database held of a source. */
async function restore(double: ListDouble): Promise<void> {
  const { db } = world.warehouse;
  const keys = (list: ListName): string[] =>
    double.lists[list].map(({ row }) => row.key);
  await restoreCheckpoints(
    db,
    keys('checkpoints').map((key) => {
      const [atBlock = '', hash = '', blockHash = ''] = key.split('/');
      return { epoch: 1, atBlock, hash, blockHash, ...FIRST_SEEN };
    }),
  );
  await restoreParties(
    db,
    keys('parties')
      .filter((key) => key !== 'network')
      .map((partyId) => ({ partyId, ...FIRST_SEEN })),
  );
}

function openDouble(rows: number): ListDouble {
  const double = new ListDouble();
  double.lists.parties = parties(rows);
  double.lists.checkpoints = checkpoints(rows);
  return double;
}

/** undefined for one. */
function readingsOf({ verdict, evidence }: VerdictWithEvidence): unknown {
  expect(verdict).toBe('complete');
  return evidence['readings'];
}

describe.each(LISTS)('the first reading of restored %s', (list) => {
  test('needs no second one if it shows all of them, and newer ones behind them', async () => {
    await restore(openDouble(ROWS));
    const grown = openDouble(ROWS + 6);
    expect(readingsOf(await world.sync(grown, { list }))).toBe(undefined);
    const next = await world.sync(grown, { list });
    expect(next.evidence['kind']).toBe('increment');
  });

  test('needs a second one if the source lacks one of them', async () => {
    await restore(openDouble(ROWS));
    const double = openDouble(ROWS);
    double.lists[list].splice(ROWS / 2, 1);
    expect(readingsOf(await world.sync(double, { list }))).toBe(2);
  });

  test('needs a second one if the source shows another row among them', async () => {
    const lacking = openDouble(ROWS);
    for (const one of LISTS) lacking.lists[one].splice(ROWS / 2, 1);
    await restore(lacking);
    expect(readingsOf(await world.sync(openDouble(ROWS), { list }))).toBe(2);
  });

  test('takes nothing from a node that is behind the newest restored checkpoint', async () => {
    await restore(openDouble(ROWS));
    const lagging = openDouble(ROWS - 6);
    lagging.height = BigInt((ROWS - 6) * 10 + 5);
    const { verdict, evidence } = await world.sync(lagging, { list });
    expect(verdict).toBe('incomplete');
    expect(JSON.stringify(evidence)).toContain('SOURCE_BEHIND');
    const { verdict: later } = await world.sync(openDouble(ROWS), { list });
    expect(later).toBe('complete');
    expect(await world.held(list)).toHaveLength(
      openDouble(ROWS).lists[list].length,
    );
  });

  test('needs a second one if nothing was restored', async () => {
    expect(readingsOf(await world.sync(openDouble(ROWS), { list }))).toBe(2);
  });
});
