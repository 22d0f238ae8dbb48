/**
 * The first reading of a list that came back from the lake: it is compared with what the
 * lost database had proven.
 */
import type { Kysely } from 'kysely';
import { describe, expect, test } from 'vitest';
import { up as markRestoredParties } from '../../migrations/0027-restored-parties.ts';
import type { VerdictWithEvidence } from '../../src/errors/verdict.ts';
import type { ListName } from '../../src/lists/ports.ts';
import {
  restoreCheckpoints,
  restoreParties,
} from '../../src/lists/store/restore-lists.ts';
import { ListStore } from '../../src/lists/store/list-store.ts';
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

test('a restored party is marked, and last seen when it was first seen, until it is listed or looked up', async () => {
  await restore(openDouble(3));
  const restored = await restoredParties();
  const [lookedUp, listed] = restored;
  expect(listed?.lastSeenAt).toBe(FIRST_SEEN.firstSeenAt);

  const store = new ListStore(world.warehouse.db);
  await store.keepParty({
    key: lookedUp?.partyId ?? '',
    cursor: '',
    extra: undefined,
  });
  expect(await restoredParties()).toEqual(restored.slice(1));
  await world.sync(openDouble(3), { list: 'parties' });
  expect(await restoredParties()).toEqual([]);
});

test('a restored party that a complete reading does not list is gone', async () => {
  await restore(openDouble(ROWS));
  const double = openDouble(ROWS);
  double.lists.parties.splice(ROWS / 2, 1);
  expect(readingsOf(await world.sync(double, { list: 'parties' }))).toBe(2);
  expect(await goneParties()).toHaveLength(1);
});

test('a party that an earlier version restored, and marked as last seen in 1970, is treated alike', async () => {
  const { db } = world.warehouse;
  await restore(openDouble(ROWS));
  await world.pool.query(
    `alter table mirror.parties drop column restored_at;
     update mirror.parties set last_seen_at = to_timestamp(0)`,
  );
  await markRestoredParties(db as unknown as Kysely<unknown>);
  expect(await restoredParties()).toHaveLength(ROWS);
  const double = openDouble(ROWS);
  double.lists.parties.splice(ROWS / 2, 1);
  expect(readingsOf(await world.sync(double, { list: 'parties' }))).toBe(2);
  expect(await goneParties()).toHaveLength(1);
});

/** Returns the parties that were restored and not listed since, by their id. */
async function restoredParties() {
  const { rows } = await world.pool.query<{
    partyId: string;
    lastSeenAt: string;
  }>(
    `select party_id as "partyId",
       to_char(last_seen_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as "lastSeenAt"
     from mirror.parties where restored_at is not null order by party_id`,
  );
  return rows;
}

async function goneParties() {
  const { rows } = await world.pool.query(
    'select party_id from mirror.parties where gone_since is not null',
  );
  return rows;
}
