/** A CSV without a final line end: a source's own way, or a cut. */
import { describe, expect, test } from 'vitest';
import { freshDatabase } from '../support/database.ts';
import { World } from './export-world.ts';
import { at, entries, row12, type Spoil } from './ledger-double.ts';

const database = await freshDatabase({ isMigrated: true });
const NO_PAUSE = { pauseMs: () => 0 };

describe('a last line without its line end', () => {
  const open: Spoil = (csv) => [csv.subarray(0, csv.length - 1)];
  const now = '2023-06-01T00:00:00Z';

  test('is a row where the header alone has none either, and a second answer is the same', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 1);
    world.source.spoils.push(open, open, open);
    expect(await world.export(now)).toMatchObject({
      verdict: 'complete',
      requests: 3,
    });
    expect(world.source.asked[1]).toMatchObject({
      from: at('2023-06-02T00:00:00Z'),
    });
    expect(await world.rows()).toEqual(world.source.entries.map(row12));
  });

  test('is no row where the header alone has its line end', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 20);
    world.source.spoils.push(open);
    await expect(world.export(now)).rejects.toMatchObject({
      code: 'SOURCE_TRUNCATED',
    });
    expect(await world.keys()).toEqual([]);
  });

  test('is no row where the header alone is cut as well', async () => {
    await using world = await World.open(database);
    const short: Spoil = (csv) => [csv.subarray(0, csv.length - 2)];
    world.source.entries = entries('2023-05-01T10:00:00Z', 20);
    world.source.spoils.push(short, short);
    await expect(world.export(now)).rejects.toMatchObject({
      code: 'SOURCE_TRUNCATED',
    });
  });

  test('is not shown where every answer ends in another row', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 20);
    const cut =
      (rows: number): Spoil =>
      (csv) => [
        Buffer.from(
          csv.toString().split('\n').slice(0, rows).join('\n').slice(0, -1),
        ),
      ];
    world.source.spoils.push(cut(7), open, cut(11), cut(15));
    expect(await world.export(now, {}, NO_PAUSE)).toMatchObject({
      verdict: 'incomplete',
      requests: 4,
    });
    expect([await world.keys(), await world.coverage()]).toEqual([[], []]);
  });
});
