import { randomUUID } from 'node:crypto';
import type { Pool } from 'pg';
import { describe, expect, test } from 'vitest';
import { PermanentError, RetryableError } from '../../src/errors/errors.ts';
import { exportLedger } from '../../src/exports/export-ledger.ts';
import { freshDatabase } from '../support/database.ts';
import { waitFor } from '../support/wait-for.ts';
import { World } from './export-world.ts';
import {
  ASSET,
  ASSET_2,
  at,
  clockAt,
  entries,
  OTHER,
  PARTY,
  pieces,
  row12,
  row13,
  type Spoil,
} from './ledger-double.ts';
import {
  publicationStates,
  publishedSegments,
  recordedExports,
} from '../support/mirror-state.ts';
import { addEntries, emptyLedgers } from '../support/mirror-arrange.ts';
import { ensurePartitions } from '../../src/warehouse/store/copy-sink.ts';

const database = await freshDatabase({ isMigrated: true });
const ERROR = Buffer.from(
  '{"error":{"code":13, "message":"Internal error", "details":[]}}',
);

describe('an export', () => {
  test('publishes everything the first time: closed up to the border, open behind it', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 100);
    const outcome = await world.export('2023-05-01T11:00:30Z');
    expect(outcome.verdict).toBe('complete');
    expect(await world.rows()).toEqual(
      world.source.rows({ partyId: PARTY }).toSorted(),
    );
    expect(await world.coverage()).toEqual([
      '1970-01-01 00:00:00 2023-05-01 10:58:30 closed 60',
      '2023-05-01 10:58:30 2023-05-01 11:38:01 open 40',
    ]);
    expect(await world.objectKeys()).toHaveLength(2);
    expect(world.source.asked).toEqual([{ partyId: PARTY }]);
    expect(await world.spooled()).toEqual([]);
  });

  test('asks once more the next time, proves the tail and replaces the open segment', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 30);
    await world.export('2023-05-01T10:20:00Z');
    world.source.entries.push(...entries('2023-05-02T10:00:00Z', 30));
    const outcome = await world.export('2023-05-02T10:20:00Z');
    expect(outcome).toMatchObject({
      verdict: 'complete',
      requests: 1,
      evidence: { overlap: 'verified' },
    });
    expect(await world.rows()).toEqual(
      world.source.rows({ partyId: PARTY }).toSorted(),
    );
    const coverage = await world.coverage();
    expect(coverage.map((line) => line.split(' ').slice(4).join(' '))).toEqual([
      'closed 18',
      // Yesterday's present came back the same, and stands.
      'closed 12',
      'closed 18',
      'open 12',
    ]);
    expect(world.source.asked[1]?.from).toBe(at('2023-05-01T09:18:00Z'));
  });

  test('says how many of the published rows replace those of before', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 30);
    expect(await world.export('2023-05-01T10:20:00Z')).toMatchObject({
      rows: 30n,
      replacedRows: 0n,
    });
    for (const minute of [21, 22]) {
      world.source.entries.push(
        ...entries(`2023-05-01T10:3${minute - 20}:00Z`, 1),
      );
      const { rows, replacedRows } = await world.export(
        `2023-05-01T10:${minute}:00Z`,
      );
      expect([rows - replacedRows, replacedRows > 0n]).toEqual([1n, true]);
    }
    // Nothing came since: the same object is published once more.
    const { rows, replacedRows } = await world.export('2023-05-01T10:22:00Z');
    expect(rows).toBe(replacedRows);
  });

  test('leaves one row of coverage for a party without entries, however often it is asked for', async () => {
    await using world = await World.open(database);
    await world.export('2023-05-01T10:00:00Z');
    await world.export('2023-05-02T10:00:00Z');
    expect(await world.coverage()).toEqual([
      '1970-01-01 00:00:00 2023-05-02 09:58:00 closed empty',
    ]);
    expect(await world.keys()).toEqual([]);
    expect(await publicationStates(world.pool)).toEqual([]);
  });

  test('proves the newest entry of an idle party again, however old it is', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 5);
    for (const day of ['02', '03', '04']) {
      expect(await world.export(`2023-05-${day}T10:00:00Z`)).toMatchObject({
        verdict: 'complete',
        requests: 1,
      });
    }
    expect(world.source.asked.map(({ from }) => from)).toEqual([
      undefined,
      at('2023-05-01T10:03:00Z'),
      at('2023-05-01T10:03:00Z'),
    ]);
    expect(await world.coverage()).toEqual([
      '1970-01-01 00:00:00 2023-05-02 09:58:00 closed 5',
      '2023-05-02 09:58:00 2023-05-04 09:58:00 closed empty',
    ]);
  });

  test('never asks for a covered range again, only for the rest', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 100);
    const now = '2023-06-01T00:00:00Z';
    await world.export(now, {
      from: at('2023-05-01T10:10:00Z'),
      to: at('2023-05-01T10:20:00Z'),
    });
    const again = await world.export(now, {
      from: at('2023-05-01T10:12:00Z'),
      to: at('2023-05-01T10:15:00Z'),
    });
    expect(again).toMatchObject({
      verdict: 'complete',
      requests: 0,
      evidence: { covered: true },
    });
    await world.export(now);
    expect(await world.rows()).toEqual(
      world.source.rows({ partyId: PARTY }).toSorted(),
    );
    expect(world.source.asked).toHaveLength(2);
  });

  test.each([
    ['wholly', '2023-07-01T00:00:00Z'],
    ['in part', '2023-05-01T10:05:00Z'],
  ])(
    'of a range that lies %s behind the source’s time is incomplete, and says up to where it holds',
    async (_, from) => {
      await using world = await World.open(database);
      world.source.entries = entries('2023-05-01T10:00:00Z', 100);
      const range = { from: at(from), to: at('2023-08-01T00:00:00Z') };
      const outcome = await world.export('2023-06-01T00:00:00Z', range);
      expect(outcome).toMatchObject({
        verdict: 'incomplete',
        evidence: {
          closedTo: '2023-05-31T23:58:00.000000Z',
          reason: expect.stringMatching(
            /ends behind the source's time, 2023-06-01T00:00:00.*up to 2023-05-31T23:58:00/,
          ) as string,
        },
      });
      const later = await world.export('2023-08-02T00:00:00Z', range);
      expect(later.verdict).toBe('complete');
    },
  );

  test('leaves out and counts rows of another party, asset or range', async () => {
    await using world = await World.open(database);
    const [first, second, third] = entries('2023-05-01T10:00:00Z', 3);
    if (first === undefined || second === undefined || third === undefined)
      throw new Error('no entries');
    world.source.entries = [first];
    world.source.spoils.push((csv) => [
      csv,
      Buffer.from(
        `${row12({ ...second, from: OTHER, to: PARTY })}\n${row12({ ...third, asset: ASSET_2 })}\n`,
      ),
      Buffer.from(`${row12({ ...first, time: '2020-01-01 00:00:00+00' })}\n`),
    ]);
    const outcome = await world.export('2023-06-01T00:00:00Z', {
      assetId: ASSET,
      from: at('2023-01-01T00:00:00Z'),
    });
    expect(outcome.evidence).toMatchObject({
      leftOut: { party: '1', asset: '1', range: '1' },
    });
    expect(await world.rows()).toEqual([row12(first)]);
  });

  test.each(['zstd', 'gzip', 'none'] as const)(
    'publishes both sides of 13 columns, compressed with %s',
    async (compression) => {
      await using world = await World.open(database);
      world.source.columns = 13;
      const mine = entries('2023-05-01T10:00:00Z', 20);
      world.source.entries = [
        ...mine,
        ...mine.map((entry) => ({ ...entry, from: OTHER, to: PARTY })),
      ];
      await world.export('2023-06-01T00:00:00Z', {}, { compression });
      expect(await world.rows()).toEqual(
        world.source.entries.map(row13).toSorted(),
      );
    },
  );

  test('asks in windows for a ledger larger than a segment, and makes one object of each', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 2000, 7);
    const segmentBytesMax = 2 ** 18;
    const outcome = await world.export(
      '2023-06-01T00:00:00Z',
      {},
      { segmentBytesMax },
    );
    expect(outcome.verdict).toBe('complete');
    expect(outcome.objectKeys.length).toBeGreaterThan(1);
    const segments = await publishedSegments(world.pool);
    // One that would be cancelled for a few rows too many runs to its end.
    expect(Math.max(...segments.map(({ bytes }) => bytes))).toBeLessThanOrEqual(
      1.1 * segmentBytesMax,
    );
    expect(await world.rows()).toEqual(
      world.source.rows({ partyId: PARTY }).toSorted(),
    );
    expect(await world.spooled()).toEqual([]);
  });
});

describe('an export of one asset', () => {
  test('is kept from the store outside of a range that is later exported for all assets', async () => {
    await using world = await World.open(database);
    const mine = entries('2023-05-01T10:00:00Z', 20);
    world.source.entries = [
      ...mine,
      ...mine.map((entry) => ({ ...entry, asset: ASSET_2 })),
    ];
    await world.export('2023-06-01T00:00:00Z', {
      assetId: ASSET_2,
      from: at('2023-05-01T10:05:00Z'),
    });
    const outcome = await world.export('2023-06-01T00:00:00Z', {
      from: at('2023-05-01T10:10:00Z'),
    });
    expect(outcome).toMatchObject({ verdict: 'complete', requests: 1 });
    const expected = world.source.entries.filter(({ time, asset }) =>
      asset === ASSET_2
        ? at(time) >= at('2023-05-01T10:05:00Z')
        : at(time) >= at('2023-05-01T10:10:00Z'),
    );
    expect(await world.rows()).toEqual(expected.map(row12).toSorted());
    expect(world.source.asked[1]?.from).toBe(at('2023-05-01T10:10:00Z'));
  });
});

test('the known assets are those of entries and of exports, each once', async () => {
  await using world = await World.open(database);
  world.source.entries = entries('2023-05-01T10:00:00Z', 3);
  await world.export('2023-06-01T00:00:00Z', { assetId: ASSET_2 });
  await ensurePartitions(world.pool, ['2023-05']);
  const entry = {
    party_id: PARTY,
    vega_time: '2023-05-01Z',
    quantity: 1,
    transfer_type: 'WIN',
    segment_id: 1,
  };
  const assets = [ASSET, ASSET_2, 'fBTC'].flatMap((asset) =>
    Array.from({ length: 20 }, () => asset),
  );
  await addEntries(
    world.pool,
    assets.map((asset) => ({ ...entry, asset_id: asset })),
  );
  expect(await world.repository.knownAssets()).toEqual([
    ASSET,
    ASSET_2,
    'fBTC',
  ]);
  await emptyLedgers(world.pool);
});

describe('a bad answer', () => {
  const halfRow = Buffer.from('2023-05-01 10:00:00+00,12');
  test.each([
    ['SOURCE_TRUNCATED', (csv: Buffer) => [csv.subarray(0, csv.length - 1)]],
    ['SOURCE_TRUNCATED', (csv: Buffer) => [csv, halfRow]],
    ['SOURCE_ERROR_IN_STREAM', (csv: Buffer) => [csv, ERROR]],
    ['SOURCE_ERROR_IN_STREAM', (csv: Buffer) => [csv, halfRow, ERROR]],
    [
      'SOURCE_ERROR_IN_STREAM',
      (csv: Buffer) =>
        pieces(Buffer.concat([csv, ERROR, Buffer.from('\n')]), 1),
    ],
    ['SOURCE_ERROR_IN_STREAM', () => [ERROR]],
    ['ANSWER_EMPTY', () => []],
    ['ROW_FIELDS', (csv: Buffer) => [csv, Buffer.from('1,2,3\n'), csv]],
    ['ROW_TIME', (csv: Buffer) => [csv, Buffer.from(`${','.repeat(11)}\n`)]],
    ['HEADER_NOT_UNDERSTOOD', () => [Buffer.from('<html>\n</html>\n')]],
    [
      'COLUMNS_MISSING',
      (csv: Buffer) => [
        Buffer.from(csv.toString().replace('quantity', 'amount')),
      ],
    ],
  ])('publishes nothing and says where it broke: %s', async (code, spoil) => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 20);
    world.source.spoils.push(spoil);
    await expect(world.export('2023-06-01T00:00:00Z')).rejects.toThrow(
      expect.objectContaining({ code }),
    );
    expect([
      await world.keys(),
      await world.spooled(),
      await world.coverage(),
    ]).toEqual([[], [], []]);
    expect(world.source.atOnce).toBe(0);
    await world.export('2023-06-01T00:00:00Z');
    expect(await world.rows()).toEqual(
      world.source.entries.map(row12).toSorted(),
    );
  });

  test('is not counted as a failure where the run was stopped amid the stream', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 200);
    const stop = new AbortController();
    world.source.spoils.push(async function* (csv) {
      yield csv.subarray(0, 5000);
      stop.abort(new Error('Ctrl-C'));
      yield csv.subarray(5000);
    });
    const request = {
      partyId: PARTY,
      runId: randomUUID(),
      clock: clockAt(at('2023-06-01T00:00:00Z'), 0n),
    };
    await expect(
      exportLedger(request, world.deps(), stop.signal),
    ).rejects.toThrow('Ctrl-C');
    expect([
      await world.keys(),
      await world.spooled(),
      world.source.atOnce,
    ]).toEqual([[], [], 0]);
    expect(await recordedExports(world.pool)).toMatchObject([
      { attempts: 0, leaseUntil: null },
    ]);
  });

  test('quarantines the export with its reason after five failures, which a success clears', async () => {
    await using world = await World.open(database);
    const scope = async (): Promise<unknown> =>
      (await recordedExports(world.pool))[0];
    for (let failure = 1; failure <= 5; failure += 1) {
      world.source.spoils.push(() => []);
      const failed = await world
        .export('2023-06-01T00:00:00Z')
        .catch((error: unknown) => error);
      expect(failed).toMatchObject({ code: 'ANSWER_EMPTY' });
      // Then there is no more trying before the next night.
      expect(failed).toBeInstanceOf(
        failure < 5 ? RetryableError : PermanentError,
      );
      expect(await scope()).toMatchObject({
        attempts: failure,
        isQuarantined: failure === 5,
        reason: { code: 'ANSWER_EMPTY' },
      });
    }
    await world.export('2023-06-01T00:00:00Z');
    expect(await scope()).toMatchObject({
      attempts: 0,
      isQuarantined: false,
      reason: null,
    });
  });
});

describe('the overlap check', () => {
  test('asks a second way for known rows that do not come back, then publishes new rows and says so in the verdict', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 20);
    await world.export('2023-05-02T00:00:00Z');
    const before = await world.rows();
    world.source.entries = entries('2023-05-02T10:00:00Z', 5);
    const outcome = await world.export('2023-05-03T00:00:00Z');
    expect(outcome).toMatchObject({
      verdict: 'suspicious',
      requests: 2,
      rows: 5n,
    });
    expect(await world.rows()).toEqual(
      [...before, ...world.source.entries.map(row12)].toSorted(),
    );
    // The third run in a row that says so is believed: from then on it is as ever.
    await world.export('2023-05-04T00:00:00Z', {}, { pauseMs: () => 0 });
    await world.export('2023-05-05T00:00:00Z', {}, { pauseMs: () => 0 });
    expect(await world.export('2023-05-06T00:00:00Z')).toMatchObject({
      verdict: 'complete',
      requests: 1,
    });
    expect(world.source.asked[2]?.from).not.toEqual(
      world.source.asked[1]?.from,
    );
    expect(await world.spooled()).toEqual([]);
  });

  test('forgives a single bad answer where the second one holds the known rows', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 20);
    await world.export('2023-05-02T00:00:00Z');
    world.source.spoils.push((csv) => [csv.subarray(0, csv.indexOf(10) + 1)]);
    expect(await world.export('2023-05-03T00:00:00Z')).toMatchObject({
      verdict: 'complete',
      requests: 2,
    });
  });

  test('replaces a range with late rows after it was asked for again, and the verdict says so', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 20);
    await world.export('2023-05-02T00:00:00Z');
    world.source.entries.push(
      { time: '2023-05-01 10:15:00.5+00' },
      { time: '2023-05-01 10:18:00.1+00' },
    );
    const outcome = await world.export('2023-05-03T00:00:00Z');
    expect(outcome).toMatchObject({ verdict: 'suspicious', requests: 3 });
    expect(await world.rows()).toEqual(
      world.source.entries.map(row12).toSorted(),
    );
    expect(await world.export('2023-05-04T00:00:00Z')).toMatchObject({
      verdict: 'complete',
      requests: 1,
    });
  });
});

async function waiting(pool: Pool): Promise<readonly unknown[]> {
  return (await recordedExports(pool)).filter(
    ({ waitsForLimit }) => waitsForLimit,
  );
}

describe('several workers', () => {
  test('export one ledger once: the second finds it covered', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 50);
    const to = at('2023-05-10T00:00:00Z');
    const outcomes = await Promise.all(
      [1, 2, 3].map(() => world.export('2023-06-01T00:00:00Z', { to })),
    );
    expect(
      outcomes.map(({ requests }) => requests).toSorted((a, b) => a - b),
    ).toEqual([0, 0, 1]);
    expect(await world.rows()).toEqual(
      world.source.entries.map(row12).toSorted(),
    );
  });

  test('let a small ledger in between the windows of a large one', async () => {
    await using world = await World.open(database);
    const small = '01'.repeat(32);
    world.source.entries = [
      ...entries('2023-05-01T10:00:00Z', 1500, 10),
      ...entries('2023-05-01T10:00:00Z', 5).map((entry) => ({
        ...entry,
        from: small,
      })),
    ];
    const now = '2023-06-01T00:00:00Z';
    let other: Promise<unknown> = Promise.resolve();
    world.source.spoils.push(async function* (csv) {
      // It comes while the first question of the large one holds the only place.
      other = world.export(now, { partyId: small });
      await waitFor(async () => (await waiting(world.pool)).length, {
        what: 'the small one to wait',
      });
      yield csv;
    });
    await world.export(now, {}, { segmentBytesMax: 2 ** 16 });
    await other;
    const asked = world.source.asked.map(({ partyId }) =>
      partyId === small ? 'small' : 'large',
    );
    expect(asked.slice(0, 3)).toEqual(['large', 'small', 'large']);
    expect(asked.length).toBeGreaterThan(5);
    expect(await world.rows()).toEqual(
      world.source.entries.map(row12).toSorted(),
    );
  });

  test('never run more exports at once than the export limit', async () => {
    await using world = await World.open(database);
    const parties = ['01', '02', '03', '04', '05'].map((pair) =>
      pair.repeat(32),
    );
    world.source.entries = parties.flatMap((from) =>
      entries('2023-05-01T10:00:00Z', 20).map((entry) => ({ ...entry, from })),
    );
    // Two have a place, and keep it until the others have asked for one in vain.
    const held: Spoil = async function* (csv) {
      const areAllHere = async (): Promise<boolean> =>
        world.source.atOnce > 2 ||
        (await waiting(world.pool)).length === parties.length - 2;
      await waitFor(areAllHere, { what: 'the others to ask for a place' });
      yield csv;
    };
    world.source.spoils.push(held, held);
    await Promise.all(
      parties.map((partyId) =>
        world.export('2023-06-01T00:00:00Z', { partyId }, { exportLimit: 2 }),
      ),
    );
    expect(world.source.atOnceMax).toBe(2);
    expect(await world.rows()).toEqual(
      world.source.entries.map(row12).toSorted(),
    );
  });
});
