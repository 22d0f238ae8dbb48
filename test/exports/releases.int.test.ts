/**
 * A source that changes under us: upgrades, time zones, retention, and bounds that are
 * not what they were shown to be.
 */
import { describe, expect, test } from 'vitest';
import { RetryableError } from '../../src/errors/errors.ts';
import { freshDatabase } from '../support/database.ts';
import { World } from './export-world.ts';
import {
  ASSET,
  at,
  entries,
  OTHER,
  PARTY,
  row12,
  row13,
} from './ledger-double.ts';
import { expectTruth, openNights } from './sandbox-nightly.ts';

const database = await freshDatabase({ isMigrated: true });

describe('an upgrade of the source', () => {
  test('to both sides is reported, and the rows sent before must still be there', async () => {
    await using world = await World.open(database);
    const sent = entries('2023-05-01T10:00:00Z', 20);
    world.source.entries = [
      ...sent,
      { time: '2023-05-01 10:18:30+00', from: OTHER, to: PARTY },
    ];
    await world.export('2023-05-02T00:00:00Z');
    world.source.columns = 13;
    expect(await world.export('2023-05-03T00:00:00Z')).toMatchObject({
      verdict: 'complete',
      evidence: {
        overlap: 'sides changed',
        sides: 'both',
        mixedSides: expect.stringMatching(/both sides/),
      },
    });
    expect(await world.rows()).toEqual(sent.map(row12).toSorted());
  });

  test('is not believed where it loses rows that were sent before', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 20);
    await world.export('2023-05-02T00:00:00Z');
    const before = await world.rows();
    world.source.columns = 13;
    world.source.entries = [
      { time: '2023-05-01 10:18:30+00', from: OTHER, to: PARTY },
    ];
    expect(await world.export('2023-05-03T00:00:00Z')).toMatchObject({
      verdict: 'suspicious',
      rows: 0n,
    });
    expect(await world.rows()).toEqual(before);
  });

  test('back to one side is reported', async () => {
    await using world = await World.open(database);
    world.source.columns = 13;
    world.source.entries = entries('2023-05-01T10:00:00Z', 20);
    await world.export('2023-05-02T00:00:00Z');
    world.source.columns = 12;
    expect(await world.export('2023-05-03T00:00:00Z')).toMatchObject({
      verdict: 'complete',
      evidence: { overlap: 'sides changed', sides: 'from' },
    });
    expect(await world.rows()).toEqual(
      world.source.entries.map(row13).toSorted(),
    );
  });
});

test('known rows count as held where another time zone writes them differently', async () => {
  await using world = await World.open(database);
  const mine = entries('2023-05-01T10:00:00Z', 20);
  world.source.entries = mine;
  await world.export('2023-05-02T00:00:00Z');
  world.source.entries = mine.map((entry) => ({
    ...entry,
    time: entry.time.replace(' 10:', ' 15:').replace('+00', '+05'),
  }));
  expect(await world.export('2023-05-03T00:00:00Z')).toMatchObject({
    verdict: 'complete',
    evidence: { overlap: 'row form changed' },
  });
  world.source.entries = world.source.entries.slice(0, -2);
  expect(await world.export('2023-05-04T00:00:00Z')).toMatchObject({
    verdict: 'suspicious',
  });
  expect(await world.rows()).toEqual(mine.map(row12).toSorted());
});

test('a shorter answer replaces nothing', async () => {
  await using world = await World.open(database);
  world.source.entries = entries('2023-05-01T10:00:00Z', 20);
  const range = {
    from: at('2023-05-01T10:00:00Z'),
    to: at('2023-05-01T11:00:00Z'),
  };
  await world.export('2023-06-01T00:00:00Z', { assetId: ASSET, ...range });
  const before = await world.rows();
  // All assets would take the place of the one, but the source has forgotten most of it.
  world.source.entries = world.source.entries.slice(-3);
  expect(await world.export('2023-06-01T00:00:00Z')).toMatchObject({
    verdict: 'suspicious',
    evidence: {
      kept: [{ reason: 'the source serves fewer of them than it did' }],
    },
  });
  expect(await world.rows()).toEqual(before);
  expect(await world.spooled()).toEqual([]);
});

test('an answer is not believed where it holds fewer rows than a broken one had shown', async () => {
  await using world = await World.open(database);
  const mine = entries('2023-05-01T10:00:00Z', 200);
  world.source.entries = mine;
  world.source.spoils.push(async function* (csv) {
    yield csv.subarray(0, csv.length - 700);
    throw new RetryableError('Cannot read: broken', { code: 'SOURCE_BROKE' });
  });
  const now = '2023-06-01T00:00:00Z';
  await expect(world.export(now)).rejects.toThrow(
    expect.objectContaining({ code: 'SOURCE_BROKE' }),
  );
  world.source.entries = mine.slice(0, 100);
  expect(await world.export(now)).toMatchObject({
    verdict: 'suspicious',
    requests: 2,
    evidence: {
      findings: [{ state: 'less than seen' }, { state: 'less than seen' }],
    },
  });
  expect(
    (await world.coverage()).every((line) => line.includes(' open ')),
  ).toBe(true);
  world.source.entries = mine;
  expect(await world.export(now)).toMatchObject({ verdict: 'complete' });
  expect(await world.rows()).toEqual(mine.map(row12).toSorted());
});

test('a source that returns nothing for both bounds is asked with the start alone', async () => {
  const night = await openNights(database, {
    release: '0.71.6',
    parties: 2,
    whaleEntries: 600,
  });
  const [whale] = night.sandbox.truth.parties();
  if (whale === undefined) throw new Error('an empty network');
  await night.run(whale.id, [], { to: at('2023-05-02T00:00:00Z') });
  const { repository } = night.world;
  await repository.learn({ ...(await repository.profile()), bounds: 'right' });
  const range = {
    from: at('2023-05-03T00:00:00Z'),
    to: at('2023-05-04T00:00:00Z'),
  };
  expect(await night.run(whale.id, [], range)).toMatchObject({
    verdict: 'complete',
    requests: 2,
  });
  expect(await repository.profile()).toMatchObject({ bounds: 'broken' });
  await night.run(whale.id);
  await expectTruth({ ...night, parties: [whale.id] });
});
