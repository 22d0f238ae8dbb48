import { describe, expect, test } from 'vitest';
import { estimateListSize, measureList } from '../../src/lists/list-size.ts';
import type { ListedRow, Page } from '../../src/lists/ports.ts';
import { ListDouble } from './list-double.ts';
import { NEVER_ABORTED } from '../support/samples.ts';

const EMPTY = {
  startCursor: undefined,
  endCursor: undefined,
  blockHeight: undefined,
  blockTime: undefined,
};

function page(rows: readonly ListedRow[], hasNextPage = true): Page {
  return { ...EMPTY, rows, hasNextPage };
}

function checkpoint(block: number): ListedRow {
  const key = `${block}/hash${block}/block${block}`;
  return { key, cursor: `${block}`, extra: undefined };
}

function party(day: number, cursor?: string): ListedRow {
  const time = new Date(Date.UTC(2026, 0, day)).toISOString();
  return {
    key: `party-${day}`,
    cursor: cursor ?? Buffer.from(JSON.stringify({ time })).toString('base64'),
    extra: undefined,
  };
}

describe('measureList', () => {
  test('counts exactly if the oldest page is the whole list', () => {
    const rows = [checkpoint(1), checkpoint(2)];
    const newest = page(rows.toReversed(), false);
    expect(measureList('checkpoints', page(rows, false), newest)).toMatchObject(
      { exactRows: 2, rowsMin: 2, estimate: undefined },
    );
  });

  test('counts exactly if the two ends overlap', () => {
    const oldest = page([checkpoint(1), checkpoint(2)]);
    const newest = page([checkpoint(3), checkpoint(2)]);
    expect(measureList('checkpoints', oldest, newest).exactRows).toBe(3);
  });

  test('estimates checkpoints from the density of both ends', () => {
    const oldest = page([checkpoint(0), checkpoint(10), checkpoint(20)]);
    const newest = page([checkpoint(1000), checkpoint(998), checkpoint(996)]);
    expect(measureList('checkpoints', oldest, newest)).toMatchObject({
      exactRows: undefined,
      rowsMin: 6,
      estimate: { low: 101, high: 501 },
    });
  });

  test('estimates parties from the instants in their cursors', () => {
    const oldest = page([party(1), party(2)]);
    const newest = page([party(100), party(99)]);
    expect(measureList('parties', oldest, newest).estimate).toEqual({
      low: 100,
      high: 100,
    });
  });

  test('does not estimate parties whose cursors show no instant', () => {
    const oldest = page([party(1, 'a'), party(2, 'b')]);
    const newest = page([party(100, 'c'), party(99, 'd')]);
    expect(measureList('parties', oldest, newest)).toMatchObject({
      rowsMin: 4,
      estimate: undefined,
    });
  });

  test('does not take the row network on both pages for an overlap', () => {
    const network = { ...party(1), key: 'network' };
    const size = measureList(
      'parties',
      page([network, party(1)]),
      page([network, party(9)]),
    );
    expect(size.exactRows).toBeUndefined();
  });

  test('measures an empty list as empty', () => {
    expect(
      measureList('parties', page([], false), page([], false)),
    ).toMatchObject({ exactRows: 0, bytesPerRow: undefined });
  });
});

test('estimateListSize sends two requests, one for each end', async () => {
  const source = new ListDouble();
  await estimateListSize(source, { list: 'parties', size: 7 }, NEVER_ABORTED);
  expect(source.questions).toEqual([
    { list: 'parties', size: 7, newestFirst: false },
    { list: 'parties', size: 7, newestFirst: true },
  ]);
});
