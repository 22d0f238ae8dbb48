/**
 * What follows a doubt or an error: nothing is walled in, nothing is lost, and every
 * verdict adds up.
 */
import { randomUUID } from 'node:crypto';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { PermanentError } from '../../src/errors/errors.ts';
import { freshDatabase } from '../support/database.ts';
import { type Manifest, readManifest } from '../../src/ledger/manifest.ts';
import { manifestKey } from '../../src/ledger/object-keys.ts';
import { signal, World } from './export-world.ts';
import type { WindowRequest } from '../../src/exports/ports.ts';
import {
  ASSET_2,
  at,
  entries,
  type Entry,
  OTHER,
  row12,
} from './ledger-double.ts';
import { currentSegments } from '../support/mirror-state.ts';
import {
  addCheckpoints,
  changePublications,
  emptyLists,
  markSegmentsLoaded,
  quarantineSegments,
  replacePublicationPlans,
  setCoverageCheckedAt,
} from '../support/mirror-arrange.ts';

const database = await freshDatabase({ isMigrated: true });
const NO_PAUSE = { pauseMs: () => 0 };

function written(source: readonly Entry[]): string[] {
  return source.map(row12).toSorted();
}

describe('a source that no longer has the known rows', () => {
  test('has its new rows published at once after a rest longer than its retention, and the next run is complete', async () => {
    await using world = await World.open(database);
    const old = entries('2023-01-01T10:00:00Z', 10);
    world.source.entries = old;
    await world.export('2023-01-02T00:00:00Z');
    const fresh = entries('2023-02-20T10:00:00Z', 10);
    world.source.entries = fresh;
    expect(await world.export('2023-02-21T00:00:00Z')).toMatchObject({
      verdict: 'suspicious',
      rows: 10n,
    });
    expect(await world.rows()).toEqual(written([...old, ...fresh]));
    expect(await world.export('2023-02-22T00:00:00Z')).toMatchObject({
      verdict: 'complete',
    });
  });

  test('is not asked for known rows after a rest of half a year, and the evidence says why', async () => {
    await using world = await World.open(database);
    const old = entries('2023-01-01T10:00:00Z', 10);
    world.source.entries = old;
    await world.export('2023-01-02T00:00:00Z');
    world.source.entries = entries('2023-07-20T10:00:00Z', 10);
    expect(await world.export('2023-07-21T00:00:00Z')).toMatchObject({
      verdict: 'complete',
      requests: 1,
      rows: 10n,
      evidence: { overlap: 'what is known is older than a source may keep' },
    });
    expect(await world.rows()).toEqual(
      written([...old, ...world.source.entries]),
    );
  });

  test('begins a new epoch of coverage after a reset of the network', async () => {
    await using world = await World.open(database);
    const addCheckpoint = (epoch: number): Promise<void> =>
      addCheckpoints(world.pool, [
        { epoch, at_block: 1, hash: 'a', block_hash: 'a' },
      ]);
    await addCheckpoint(1);
    const old = entries('2023-05-01T10:00:00Z', 10);
    world.source.entries = old;
    await world.export('2023-05-02T00:00:00Z');
    await addCheckpoint(2);
    world.source.entries = entries('2023-05-03T10:00:00Z', 5);
    expect(await world.export('2023-05-04T00:00:00Z')).toMatchObject({
      verdict: 'complete',
      requests: 1,
      evidence: { overlap: 'the chain of the source has restarted since' },
    });
    expect(await world.rows()).toEqual(
      written([...old, ...world.source.entries]),
    );
    await emptyLists(world.pool);
  });

  test('keeps vanished rows of the last open segment published beside the new ones', async () => {
    await using world = await World.open(database);
    const mine = entries('2023-05-01T10:00:00Z', 30);
    world.source.entries = mine;
    await world.export('2023-05-01T10:10:00Z');
    const fresh = entries('2023-05-02T10:00:00Z', 5);
    world.source.entries = [...mine.slice(0, 12), ...fresh];
    expect(
      await world.export('2023-05-03T00:00:00Z', {}, NO_PAUSE),
    ).toMatchObject({
      verdict: 'suspicious',
    });
    expect(await world.rows()).toEqual(written([...mine, ...fresh]));
    expect(await world.export('2023-05-04T00:00:00Z')).toMatchObject({
      verdict: 'complete',
    });
  });

  test('keeps vanished rows of an open segment that this second of the source wrote, beside the new ones', async () => {
    await using world = await World.open(database);
    const before = entries('2023-05-01T10:00:00Z', 3);
    const vanished = [
      { time: '2023-05-31 23:59:30.5+00' },
      { time: '2023-05-31 23:59:31.5+00' },
    ];
    const fresh = { time: '2023-06-01 00:00:02.5+00' };
    world.source.entries = [...before, ...vanished];
    await world.export('2023-06-01T00:00:00Z');
    world.source.entries = [...before, fresh];
    expect(
      await world.export('2023-06-01T00:00:05Z', {}, NO_PAUSE),
    ).toMatchObject({ verdict: 'suspicious' });
    expect(await world.rows()).toEqual(
      written([...before, ...vanished, fresh]),
    );
    // What the two runs left open is requested again once the source is further.
    world.source.entries = [...before, ...vanished, fresh];
    expect(
      await world.export('2023-06-02T00:00:00Z', {}, NO_PAUSE),
    ).toMatchObject({ verdict: 'complete' });
    expect(await world.rows()).toEqual(
      written([...before, ...vanished, fresh]),
    );
  });

  test('is not believed while its node lags: its rows are open until the rest is back', async () => {
    await using world = await World.open(database);
    const mine = entries('2023-05-01T10:00:00Z', 20);
    world.source.entries = mine;
    await world.export('2023-05-02T00:00:00Z');
    const fresh = entries('2023-05-02T10:00:00Z', 10);
    world.source.entries = [...mine.slice(0, 15), ...fresh.slice(0, 5)];
    expect(
      await world.export('2023-05-03T00:00:00Z', {}, NO_PAUSE),
    ).toMatchObject({
      verdict: 'suspicious',
    });
    expect((await world.coverage()).at(-1)).toContain('open 5');
    world.source.entries = [...mine, ...fresh];
    expect(await world.export('2023-05-04T00:00:00Z')).toMatchObject({
      verdict: 'complete',
    });
    expect(await world.rows()).toEqual(written(world.source.entries));
  });

  test('is believed once it has contradicted in three runs in a row', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 20);
    await world.export('2023-05-02T00:00:00Z');
    world.source.entries = [];
    for (const day of ['03', '04', '05'])
      expect(await world.export(`2023-05-${day}T00:00:00Z`)).toMatchObject({
        verdict: 'suspicious',
      });
    expect(await world.export('2023-05-06T00:00:00Z')).toMatchObject({
      verdict: 'complete',
    });
    expect(await world.rows()).toHaveLength(20);
  });

  test.each([
    ['in a range that was empty', entries('2023-05-04T10:00:00Z', 5)],
    ['before it alone', []],
  ])(
    'has all its segments compared once it shows rows again, %s',
    async (_, later) => {
      await using world = await World.open(database);
      const all = entries('2023-05-01T10:00:00Z', 20);
      // A node that keeps fewer entries sends the first segment, and one that does not
      // know the party the ranges after it.
      world.source.entries = all.slice(12);
      await world.export('2023-05-02T00:00:00Z');
      world.source.entries = [];
      for (const day of ['03', '04', '05', '06'])
        await world.export(`2023-05-${day}T00:00:00Z`);
      world.source.entries = [...all, ...later];
      expect(await world.export('2023-05-07T00:00:00Z')).toMatchObject({
        verdict: 'suspicious',
      });
      expect(await world.rows()).toEqual(written(world.source.entries));
      expect(await world.export('2023-05-08T00:00:00Z')).toMatchObject({
        verdict: 'complete',
      });
    },
  );
});

describe('a ledger of which no row is known', () => {
  /** The rows that the source knows when it is asked; a start means nothing to it. */
  const misunderstood = (world: World): void => {
    world.source.spoils.push(
      ...Array.from(
        { length: 20 },
        () =>
          (csv: Buffer, { from }: WindowRequest) => {
            const header = csv.subarray(0, csv.indexOf('\n') + 1);
            return [from === undefined ? csv : header];
          },
      ),
    );
  };

  test('is asked for without a start until it has one, in one request', async () => {
    await using world = await World.open(database);
    for (const day of ['02', '03', '04'])
      expect(await world.export(`2023-05-${day}T00:00:00Z`)).toMatchObject({
        verdict: 'complete',
        requests: 1,
      });
    expect(world.source.asked.map(({ from }) => from)).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
  });

  test('loses no row to a source that does not understand a start', async () => {
    await using world = await World.open(database);
    await world.export('2023-05-02T00:00:00Z');
    world.source.entries = entries('2023-05-02T10:00:00Z', 4);
    misunderstood(world);
    expect(await world.export('2023-05-03T00:00:00Z')).toMatchObject({
      verdict: 'complete',
      rows: 4n,
    });
    world.source.entries = [
      ...world.source.entries,
      ...entries('2023-05-03T10:00:00Z', 4),
    ];
    expect(
      await world.export('2023-05-04T00:00:00Z', {}, NO_PAUSE),
    ).toMatchObject({
      verdict: 'suspicious',
    });
  });

  test('has the rows that a lagging node did not show at first, and says so once', async () => {
    await using world = await World.open(database);
    await world.export('2023-05-02T00:00:00Z');
    world.source.entries = [
      ...entries('2023-05-01T10:00:00Z', 4),
      ...entries('2023-05-02T10:00:00Z', 4),
    ];
    expect(
      await world.export('2023-05-03T00:00:00Z', {}, NO_PAUSE),
    ).toMatchObject({
      verdict: 'suspicious',
    });
    expect(await world.rows()).toEqual(written(world.source.entries));
    expect(await world.export('2023-05-04T00:00:00Z')).toMatchObject({
      verdict: 'complete',
      requests: 1,
    });
  });

  test('is asked a second time without a start where a range of it seems empty', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-02T10:00:00Z', 4);
    misunderstood(world);
    const range = {
      from: at('2023-05-02T00:00:00Z'),
      to: at('2023-05-03T00:00:00Z'),
    };
    expect(
      await world.export('2023-05-06T00:00:00Z', range, NO_PAUSE),
    ).toMatchObject({
      verdict: 'suspicious',
      requests: 2,
      rows: 4n,
      evidence: { findings: [{ state: 'start unproven' }] },
    });
  });

  test('has a range without entries asked for again by an answer that contains it', async () => {
    await using world = await World.open(database);
    const range = {
      from: at('2023-05-02T00:00:00Z'),
      to: at('2023-05-03T00:00:00Z'),
    };
    expect(await world.export('2023-05-06T00:00:00Z', range)).toMatchObject({
      verdict: 'complete',
    });
    world.source.entries = [
      ...entries('2023-05-01T10:00:00Z', 4),
      ...entries('2023-05-02T10:00:00Z', 4),
    ];
    expect(await world.export('2023-05-07T00:00:00Z')).toMatchObject({
      verdict: 'suspicious',
      requests: 1,
    });
    expect(await world.rows()).toEqual(written(world.source.entries));
  });

  test('has its empty range before its first row audited like a segment', async () => {
    await using world = await World.open(database);
    await world.export('2023-05-02T00:00:00Z');
    world.source.entries = entries('2023-05-02T10:00:00Z', 4);
    await world.export('2023-05-03T00:00:00Z');
    await world.export('2023-05-04T00:00:00Z');
    await setCoverageCheckedAt(world.pool, '2023-05-04T00:00:00Z');
    world.source.entries = [
      ...entries('2023-05-01T10:00:00Z', 4),
      ...world.source.entries,
    ];
    expect(
      await world.export('2023-05-06T00:00:00Z', { auditShare: 1 }, NO_PAUSE),
    ).toMatchObject({
      verdict: 'suspicious',
    });
    expect(await world.rows()).toEqual(written(world.source.entries));
  });
});

describe('a source that dropped what it knew, by a start it does not understand', () => {
  test('is asked without one from then on, and brings what it has', async () => {
    await using world = await World.open(database);
    const old = entries('2023-05-01T10:00:00Z', 20);
    world.source.entries = old;
    await world.export('2023-05-02T00:00:00Z');
    const fresh = entries('2023-05-02T10:00:00Z', 5);
    world.source.entries = [...old, ...fresh];
    for (let left = 0; left < 30; left += 1)
      world.source.spoils.push((csv, { from }) => [
        from === undefined ? csv : csv.subarray(0, csv.indexOf('\n') + 1),
      ]);
    for (const day of ['03', '04', '05', '06'])
      expect(
        await world.export(`2023-05-${day}T00:00:00Z`, {}, NO_PAUSE),
      ).toMatchObject({
        verdict: 'suspicious',
      });
  });
});

describe('the windows of requests', () => {
  test('shrink for all assets of a large ledger after one asset over all time, until it ends', async () => {
    await using world = await World.open(database);
    const many = entries('2023-05-01T10:00:00Z', 2000, 10);
    world.source.entries = [
      ...many,
      { time: '2023-05-01 12:00:00+00', asset: ASSET_2 },
    ];
    await world.export('2023-06-01T00:00:00Z', { assetId: ASSET_2 });
    const outcome = await world.export(
      '2023-06-01T00:00:00Z',
      {},
      { segmentBytesMax: 2 ** 16, ...NO_PAUSE },
    );
    expect(outcome.verdict).toBe('complete');
    expect(outcome.requests).toBeLessThan(40);
    expect(await world.rows()).toEqual(written(world.source.entries));
    const asked = world.source.asked.map(({ from, to }) => `${from} ${to}`);
    expect(new Set(asked).size).toBeGreaterThan(2);
  });

  test('replace a large open segment one by one', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 2000, 10);
    await world.export('2023-05-01T10:01:00Z');
    const outcome = await world.export(
      '2023-06-01T00:00:00Z',
      {},
      { segmentBytesMax: 2 ** 16, ...NO_PAUSE },
    );
    expect(outcome.verdict).toBe('complete');
    expect(outcome.requests).toBeLessThan(40);
    expect(await world.rows()).toEqual(written(world.source.entries));
  });
});

describe('a publication that cannot be committed', () => {
  test('is dropped when another scope was published meanwhile, and planned anew', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 10);
    const stop = {
      failpoint: (step: string): Promise<void> | void =>
        step === 'manifest' ? Promise.reject(new Error('killed')) : undefined,
    };
    await expect(
      world.export('2023-06-01T00:00:00Z', {}, stop),
    ).rejects.toThrow('killed');
    await changePublications(world.pool, 'intent', 'dropped');
    await world.export('2023-06-01T00:00:00Z', { assetId: ASSET_2 });
    await changePublications(world.pool, 'dropped', 'intent');
    expect(await world.export('2023-06-01T00:00:00Z')).toMatchObject({
      verdict: 'complete',
    });
    expect(await world.rows()).toEqual(written(world.source.entries));
  });

  test('is dropped where this version cannot read its plan', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 10);
    const stop = {
      failpoint: (step: string) =>
        step === 'intended' ? Promise.reject(new Error('killed')) : undefined,
    };
    await expect(
      world.export('2023-06-01T00:00:00Z', {}, stop),
    ).rejects.toThrow('killed');
    await replacePublicationPlans(world.pool, { of: 'another version' });
    expect(await world.export('2023-06-01T00:00:00Z')).toMatchObject({
      verdict: 'complete',
    });
    expect(await world.rows()).toEqual(written(world.source.entries));
  });
});

describe('rows that break the format', () => {
  const [good] = entries('2023-05-01T10:00:00Z', 1);
  const line = row12(good ?? { time: '' });
  test.each([
    [
      'ROW_TIME',
      line.replace('2023-05-01 10:00:00.100000+00', '9999-12-31 23:59:59+00'),
    ],
    [
      'ROW_TIME',
      line.replace('2023-05-01 10:00:00.100000+00', '1969-12-31 23:59:59+00'),
    ],
    [
      'ROW_PARTY',
      line.replace(`\\x${'aa'.repeat(32)}`, `0x${'aa'.repeat(32)}`),
    ],
    ['ROW_VALUE', line.replace(',1000', ',1.1e')],
    ['ROW_VALUE', line.replace(/,\d{31},/, ',,')],
    ['ROW_VALUE', line.replace(`\\x${'c0'.repeat(32)}`, 'nothing-known')],
  ])(
    'publish nothing, and another request is enough: %s',
    async (code, bad) => {
      await using world = await World.open(database);
      world.source.entries = entries('2023-05-01T10:00:00Z', 5);
      world.source.spoils.push((csv) => [csv, Buffer.from(`${bad}\n`)]);
      await expect(world.export('2023-06-01T00:00:00Z')).rejects.toThrow(
        expect.objectContaining({ code }),
      );
      expect(await world.keys()).toEqual([]);
      expect(await world.export('2023-06-01T00:00:00Z')).toMatchObject({
        verdict: 'complete',
      });
      expect(await world.rows()).toEqual(written(world.source.entries));
    },
  );

  test('are suspicious where they belong to other parties and the source can send none', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 5);
    world.source.spoils.push((csv) => [
      csv,
      Buffer.from(`${row12({ ...world.source.entries[0]!, from: OTHER })}\n`),
    ]);
    expect(await world.export('2023-06-01T00:00:00Z')).toMatchObject({
      verdict: 'suspicious',
      evidence: {
        receivedRows: '6',
        publishedRows: '5',
        heldRows: '0',
        leftOut: { party: '1' },
      },
    });
  });
});

describe('an answer without a known end', () => {
  test('is accepted when a second one has the same sums', async () => {
    await using world = await World.open(database);
    world.source.isFramed = false;
    world.source.entries = entries('2023-05-01T10:00:00Z', 20);
    expect(await world.export('2023-06-01T00:00:00Z')).toMatchObject({
      verdict: 'complete',
      requests: 2,
    });
    expect(await world.rows()).toEqual(written(world.source.entries));
  });

  test('is incomplete and stays open where each one ends elsewhere', async () => {
    await using world = await World.open(database);
    world.source.isFramed = false;
    world.source.entries = entries('2023-05-01T10:00:00Z', 20);
    const cut = (rows: number) => (csv: Buffer) => [
      Buffer.from(`${csv.toString().split('\n').slice(0, rows).join('\n')}\n`),
    ];
    world.source.spoils.push(cut(7), cut(11), cut(15));
    expect(
      await world.export('2023-06-01T00:00:00Z', {}, NO_PAUSE),
    ).toMatchObject({
      verdict: 'incomplete',
      requests: 3,
      evidence: {
        findings: expect.arrayContaining([{ state: 'end unproven' }]),
      },
    });
    expect(
      (await world.coverage()).every((covered) => covered.includes(' open ')),
    ).toBe(true);
    expect(await world.export('2023-06-01T00:00:00Z')).toMatchObject({
      verdict: 'complete',
    });
    expect(await world.rows()).toEqual(written(world.source.entries));
  });
});

describe('a covered range', () => {
  test('gets a lost or damaged object back by another request', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 20);
    const now = '2023-06-01T00:00:00Z';
    await world.export(now);
    const [key = ''] = await world.objectKeys();
    const path = join(world.folder, 'objects', key);
    await rm(path);
    expect(await world.export(now, { again: true })).toMatchObject({
      verdict: 'complete',
      requests: 1,
    });
    expect(await world.rows()).toEqual(written(world.source.entries));
    const [second = ''] = await world.objectKeys();
    const current = (await currentSegments(world.pool))[0]?.objectKey ?? second;
    await rm(join(world.folder, 'objects', current));
    await writeFile(join(world.folder, 'objects', current), 'damaged');
    expect(await world.export(now, { again: true })).toMatchObject({
      verdict: 'complete',
      requests: 1,
    });
    expect(await world.rows()).toEqual(written(world.source.entries));
  });

  test('that is what it was before has the newest manifest: by it a rebuild tells what holds', async () => {
    await using world = await World.open(database);
    // Of one row, whose order the source cannot change.
    const first = entries('2023-05-01T10:00:00Z', 1);
    const other = first.map((entry) => ({ ...entry, quantity: 7n }));
    const published = async (rows: typeof first): Promise<Manifest> => {
      world.source.entries = rows;
      await world.export('2023-06-01T00:00:00Z', { again: true });
      const [segment] = await currentSegments(world.pool);
      return readManifest(
        world.objects,
        manifestKey(segment?.objectKey ?? ''),
        signal,
      );
    };
    const before = await published(first);
    const between = await published(other);
    const after = await published(first);
    expect([between.objectKey === before.objectKey, after.objectKey]).toEqual([
      false,
      before.objectKey,
    ]);
    expect(after.publishedAt).toBeGreaterThan(between.publishedAt);
  });

  test('can be asked for again in part, and the rest is kept though the source no longer serves it', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 60);
    const now = '2023-06-01T00:00:00Z';
    await world.export(now);
    const before = world.source.entries.slice(0, 10);
    const after = world.source.entries
      .slice(10)
      .map((entry, index) =>
        index === 20 ? { ...entry, quantity: 7n } : entry,
      );
    world.source.entries = after;
    const part = {
      from: at('2023-05-01T10:20:00Z'),
      to: at('2023-05-01T10:40:00Z'),
    };
    const run = { again: true, runId: randomUUID(), ...part };
    expect(await world.export(now, run)).toMatchObject({
      verdict: 'complete',
      requests: 1,
    });
    expect(world.source.asked.at(-1)).toMatchObject(part);
    expect(await world.rows()).toEqual(written([...before, ...after]));
    expect(await world.coverage()).toEqual([
      '1970-01-01 00:00:00 2023-05-01 10:20:00 closed 20',
      '2023-05-01 10:20:00 2023-05-01 10:40:00 closed 20',
      '2023-05-01 10:40:00 2023-05-31 23:58:00 closed 20',
    ]);
    // A job that is delivered twice asks once.
    expect(await world.export(now, run)).toMatchObject({ requests: 0 });
  });

  test('is asked for as a whole where the segment it would keep a part of is damaged', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 60);
    const now = '2023-06-01T00:00:00Z';
    await world.export(now);
    const [key = ''] = await world.objectKeys();
    await writeFile(join(world.folder, 'objects', key), 'damaged');
    const run = {
      again: true,
      from: at('2023-05-01T10:20:00Z'),
      to: at('2023-05-01T10:40:00Z'),
    };
    await expect(world.export(now, run)).rejects.toMatchObject({
      code: 'SEGMENT_UNREADABLE',
    });
    expect(await world.export(now, run)).toMatchObject({
      verdict: 'complete',
      requests: 1,
    });
    expect(await world.rows()).toEqual(written(world.source.entries));
  });

  test('is asked for by the next run where load or verify refused its segment', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 20);
    const now = '2023-06-01T00:00:00Z';
    await world.export(now);
    const [key = ''] = await world.objectKeys();
    await rm(join(world.folder, 'objects', key));
    await quarantineSegments(world.pool);
    expect(await world.export('2023-06-02T00:00:00Z')).toMatchObject({
      verdict: 'complete',
      requests: 1,
    });
    expect(await world.rows()).toEqual(written(world.source.entries));
    expect(
      (await currentSegments(world.pool)).filter(
        ({ isQuarantined }) => isQuarantined,
      ),
    ).toEqual([]);
  });

  test('keeps loaded rows of a lost object where the source serves fewer by now', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 40);
    await world.export('2023-06-01T00:00:00Z');
    const [key = ''] = await world.objectKeys();
    await rm(join(world.folder, 'objects', key));
    await quarantineSegments(world.pool);
    await markSegmentsLoaded(world.pool);
    world.source.entries = world.source.entries.slice(20);
    const kept = await world.export('2023-06-02T00:00:00Z', {}, NO_PAUSE);
    expect([kept.verdict, kept.evidence['kept']]).toMatchObject([
      'suspicious',
      [{ reason: 'the source serves fewer of them than it did' }],
    ]);
    expect((await currentSegments(world.pool)).map(({ rows }) => rows)).toEqual(
      [40],
    );
  });

  test('is asked for a bounded number of times where every message is too large, and the next run goes on', async () => {
    await using world = await World.open(database);
    const { source } = world;
    const tooLarge = function* (csv: Buffer): Iterable<Buffer> {
      yield csv.subarray(0, csv.indexOf('\n') + 1);
      throw new PermanentError('too large', { code: 'MESSAGE_TOO_LARGE' });
    };
    source.spoils.push(...Array.from({ length: 20 }, () => tooLarge));
    const first = await world.export('2023-05-01T00:00:00Z', {}, NO_PAUSE);
    expect(first).toMatchObject({
      verdict: 'incomplete',
      requests: 8,
      rows: 0n,
    });
    expect(first.evidence['reason']).toBe(
      'the source was asked 8 times, the last 8 in vain; the next run continues',
    );
    expect(source.asked).toHaveLength(8);
  });

  test('is asked for again by an audit, which keeps equal rows and reports different ones', async () => {
    await using world = await World.open(database);
    await world.export('2023-05-01T00:00:00Z', {
      from: at('2023-04-01T00:00:00Z'),
    });
    world.source.entries = entries('2023-05-01T10:00:00Z', 20);
    await world.export('2023-05-02T00:00:00Z', {
      from: at('2023-05-01T00:00:00Z'),
    });
    await setCoverageCheckedAt(world.pool, '2023-05-02');
    const before = await world.objectKeys();
    expect(
      await world.export('2023-05-10T00:00:00Z', { auditShare: 1 }),
    ).toMatchObject({
      verdict: 'complete',
      requests: 1,
    });
    expect(await world.objectKeys()).toEqual(before);
    await setCoverageCheckedAt(world.pool, '2023-05-02');
    world.source.entries.push({ time: '2023-05-01 10:15:00.5+00' });
    expect(
      await world.export('2023-05-20T00:00:00Z', { auditShare: 1 }, NO_PAUSE),
    ).toMatchObject({
      verdict: 'suspicious',
    });
    expect(await world.rows()).toEqual(written(world.source.entries));
  });

  test('is told of by its age, until it is compared again', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 20);
    const first = await world.export('2023-05-02T00:00:00Z', {
      from: at('2023-05-01T00:00:00Z'),
    });
    expect(first.evidence['comparedSince']).toBeUndefined();
    await setCoverageCheckedAt(world.pool, '2023-05-02T00:00:00Z');
    const idle = await world.export('2023-05-10T00:00:00Z');
    expect(idle.evidence).toMatchObject({
      comparedSince: '2023-05-02T00:00:00.000000Z',
    });
    const audit = await world.export('2023-05-11T00:00:00Z', { auditShare: 1 });
    expect(audit.verdict).toBe('complete');
    expect(audit.evidence['comparedSince']).not.toBe(
      idle.evidence['comparedSince'],
    );
  });
});
