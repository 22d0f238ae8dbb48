/**
 * Sources that go silent, seconds that are too large, and a demand for assets that comes
 * and goes.
 */
import { describe, expect, test } from 'vitest';
import type { SandboxRequest } from '../support/sandbox-faults.ts';
import { freshDatabase } from '../support/database.ts';
import { World } from './export-world.ts';
import { at, entries, PARTY, row12, type Entry } from './ledger-double.ts';
import {
  digests,
  expectTruth,
  type Night,
  openNights,
} from './sandbox-nightly.ts';
import {
  coveredAssets,
  type HeldRange,
  publishedSegments,
  quarantineCodes,
} from '../support/mirror-state.ts';

const database = await freshDatabase({ isMigrated: true });
const DAY_MS = 86_400_000;
const HISTORY_DAYS = 170;

function whaleOf({ sandbox }: Night): string {
  const [whale] = sandbox.truth.parties();
  if (whale === undefined) throw new Error('an empty network');
  return whale.id;
}

/**
 * Days that an export of this network asks for, what lies before its beginning left out.
 */
function askedDays({ sandbox }: Night, { query }: SandboxRequest): number {
  const nanos = (name: string): bigint | undefined =>
    query.has(name) ? BigInt(query.get(name) ?? '') : undefined;
  const head = sandbox.truth.head().time * 1000n;
  const genesis = head - BigInt(HISTORY_DAYS) * BigInt(DAY_MS) * 1_000_000n;
  const from = nanos('dateRange.startTimestamp') ?? genesis;
  const to = nanos('dateRange.endTimestamp') ?? head;
  return Number((to - (from > genesis ? from : genesis)) / 1_000_000n) / DAY_MS;
}

describe('a source that is silent', () => {
  const network = {
    parties: 2,
    whaleEntries: 900,
    historyMs: HISTORY_DAYS * DAY_MS,
    blockIntervalMs: 60_000,
  };

  /**
   * A range longer than that breaks before its first row; what each question of the
   * whale's asked for.
   */
  async function silentBeyond(
    days: number,
  ): Promise<{ night: Night; whale: string; asked: number[] }> {
    const night = await openNights(database, network);
    const whale = whaleOf(night);
    const other =
      [...night.sandbox.truth.parties()].find(({ id }) => id !== whale)?.id ??
      '';
    // Its release is known from another party's answer.
    await night.run(other);
    const asked: number[] = [];
    night.sandbox.faults.add((request) => {
      if (request.route !== 'export' || request.query.get('partyId') !== whale)
        return undefined;
      asked.push(Math.round(askedDays(night, request)));
      return (asked.at(-1) ?? 0) > days ? { cutAfterBytes: 0 } : undefined;
    });
    return { night, whale, asked };
  }

  test('for long ranges is asked for halves of them, and gives everything', async () => {
    const { night, whale, asked } = await silentBeyond(60);
    for (let failure = 1; failure <= 3; failure += 1) {
      await expect(night.run(whale)).rejects.toThrow(
        expect.objectContaining({ code: 'SOURCE_BROKE' }),
      );
    }
    expect(await night.run(whale)).toMatchObject({ verdict: 'complete' });
    await expectTruth({ ...night, parties: [whale] });
    expect(asked).toEqual([170, 170, 80, 35, 45, 45, 46]);
  });

  test('for every range is given up, and asked once by the next run', async () => {
    const { night, whale, asked } = await silentBeyond(0);
    const codes: string[] = [];
    for (let failure = 1; failure <= 5; failure += 1) {
      codes.push(
        await night.run(whale).then(
          () => 'none',
          (error: { code: string }) => error.code,
        ),
      );
    }
    expect(codes).toEqual([
      'SOURCE_BROKE',
      'SOURCE_BROKE',
      'SOURCE_BROKE',
      'SOURCE_CANNOT_ANSWER',
      'SOURCE_CANNOT_ANSWER',
    ]);
    expect(asked).toEqual([170, 170, 80, 35, 35]);
    expect(await quarantineCodes(night.world.pool)).toEqual([
      'SOURCE_CANNOT_ANSWER',
    ]);
    expect(await night.world.spooled()).toEqual([]);
  });
});

describe('rows outside the range that come every time', () => {
  const limits = { segmentBytesMax: 2 ** 14 };
  const range = {
    from: at('2023-05-01T00:00:00Z'),
    to: at('2023-05-02T00:00:00Z'),
  };

  function* withoutEnd(csv: Buffer): Generator<Buffer> {
    yield csv;
    const row = `${row12({ time: '2023-06-01 00:00:00.123456+00' })}\n`;
    for (;;) yield Buffer.from(row.repeat(100));
  }

  test('are left after as much as the ledger may hold there, and the export is quarantined', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 30);
    world.source.spoils.push(withoutEnd);
    await expect(
      world.export('2023-07-01T00:00:00Z', range, limits),
    ).rejects.toMatchObject({
      code: 'SOURCE_OUTSIDE_RANGE',
    });
    expect(world.source.atOnce).toBe(0);
    expect(await quarantineCodes(world.pool)).toEqual(['SOURCE_OUTSIDE_RANGE']);
    expect(await world.spooled()).toEqual([]);
    // The next run asks once more, and the source has come to its senses.
    expect(
      await world.export('2023-07-01T00:00:00Z', range, limits),
    ).toMatchObject({
      verdict: 'complete',
    });
  });

  test('are told from a release that sends what is known already with every answer', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 1_000, 10);
    await world.export(
      '2023-05-01T13:00:00Z',
      {},
      { segmentBytesMax: 2 ** 20 },
    );
    world.source.entries = [
      ...world.source.entries,
      ...entries('2023-05-02T10:00:00Z', 5),
    ];
    // All 180 KB of before come with the new rows, ten times what one object may hold.
    world.source.spoils.push(() => [world.source.csv({ partyId: PARTY })]);
    expect(
      await world.export('2023-05-02T13:00:00Z', {}, limits),
    ).toMatchObject({
      verdict: 'complete',
    });
    expect(await world.rows()).toHaveLength(1_005);
  });
});

test('one second larger than a stream may be becomes one object, and its neighbours are cut as usual', async () => {
  await using world = await World.open(database);
  const segmentBytesMax = 2 ** 16;
  const burst: Entry[] = entries('2023-05-01T12:00:00Z', 1000, 0);
  world.source.entries = [
    ...entries('2023-05-01T10:00:00Z', 300),
    ...burst,
    ...entries('2023-05-01T16:00:00Z', 300),
  ];
  expect(
    await world.export('2023-06-01T00:00:00Z', {}, { segmentBytesMax }),
  ).toMatchObject({
    verdict: 'complete',
  });
  expect(await world.rows()).toEqual(
    world.source.entries.map(row12).toSorted(),
  );
  const segments = await publishedSegments(world.pool);
  const rows = segments.filter(({ bytes }) => bytes > segmentBytesMax);
  // The second comes again with whatever is asked next, as what is known: that alone
  // cancels nothing.
  expect(world.source.asked.length).toBeLessThan(30);
  expect(rows).toHaveLength(1);
  expect(rows[0]?.rows).toBeGreaterThanOrEqual(burst.length);
  expect(rows[0]?.bytes).toBeGreaterThan(2 * segmentBytesMax);
  expect(await world.spooled()).toEqual([]);
});

describe('a source that demands an asset', () => {
  test('is asked for all assets at once again a day after it stopped demanding one', async () => {
    const night = await openNights(database, {
      assetRequired: true,
      whaleEntries: 300,
      parties: 2,
    });
    const whale = whaleOf(night);
    const assets = night.sandbox.truth.assetIds();
    await night.run(whale, assets);
    expect(await night.world.repository.profile()).toMatchObject({
      assetRequired: true,
    });
    let demands = 0;
    night.sandbox.faults.add(({ route, query }) => {
      if (route === 'export' && !query.has('assetId')) demands += 1;
      return undefined;
    });
    night.sandbox.advance(3_600_000);
    await night.run(whale, assets);
    expect(demands).toBe(0);
    // Its successor does not.
    const seen = await night.world.repository.profile();
    const later = await openNights(database, { whaleEntries: 300, parties: 2 });
    await later.world.repository.learn(seen);
    later.sandbox.advance(2 * DAY_MS);
    expect(await later.run(whale, assets)).toMatchObject({
      verdict: 'complete',
      evidence: { asset: 'all' },
    });
    expect(
      (await later.world.repository.profile()).assetRequired,
    ).toBeUndefined();
    await expectTruth({ ...later, parties: [whale] });
  });

  test('is asked for an asset that was never seen before from the beginning', async () => {
    const night = await openNights(database, {
      assetRequired: true,
      whaleEntries: 300,
      parties: 2,
    });
    const whale = whaleOf(night);
    const [first, ...others] = night.sandbox.truth.assetIds();
    if (first === undefined) throw new Error('no asset');
    await night.run(whale, [first]);
    expect(await night.run(whale, [first, ...others])).toMatchObject({
      verdict: 'complete',
    });
    const { entries: count, digest } = night.sandbox.truth.party(whale);
    const mine = (await digests(night.world)).get(whale);
    expect([mine?.rows, mine?.hex()]).toEqual([count, digest]);
    const isWhole = ({ partyId, from }: HeldRange): boolean =>
      partyId === whale && from.getTime() === 0;
    expect(await coveredAssets(night.world.pool, isWhole)).toEqual(
      [first, ...others].toSorted(),
    );
    expect(at('1970-01-01T00:00:00Z')).toBe(0n);
    expect(whale).not.toBe(PARTY);
  });

  test('is asked for what is new of known assets before all of a new one, and for the others where one fails', async () => {
    const night = await openNights(database, {
      assetRequired: true,
      whaleEntries: 300,
      parties: 2,
    });
    const whale = whaleOf(night);
    const [first = '', second = '', ...others] = night.sandbox.truth.assetIds();
    await night.run(whale, [second, ...others]);
    const asked: string[] = [];
    night.sandbox.faults.add(({ route, query }) => {
      if (route !== 'export') return undefined;
      const assetId = query.get('assetId') ?? '';
      asked.push(assetId);
      const body = '{"code":3,"message":"InvalidArgument error","details":[]}';
      return assetId === second ? { answer: { status: 400, body } } : undefined;
    });
    night.sandbox.advance(3_600_000);
    await expect(
      night.run(whale, [first, second, ...others]),
    ).rejects.toMatchObject({
      code: 'EXPORT_REFUSED',
    });
    expect(asked).toEqual([second, ...others, first]);
    const recently =
      Number(night.sandbox.truth.head().time / 1000n) - 1_800_000;
    const isRecent = ({ partyId, to }: HeldRange): boolean =>
      partyId === whale && to.getTime() > recently;
    expect(await coveredAssets(night.world.pool, isRecent)).toEqual(
      [first, ...others].toSorted(),
    );
  });
});
