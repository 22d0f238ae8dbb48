/**
 * Copying rows out of published objects: what is damaged, and what is the store's fault.
 */
import { Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { PermanentError } from '../../../src/errors/errors.ts';
import {
  copyStoredRows,
  type CoverageWithObject,
  type StoredRowsContext,
} from '../../../src/exports/publishing/stored-rows.ts';
import { NEVER_ABORTED } from '../../support/samples.ts';

const ROW: CoverageWithObject = {
  coverageId: 1n,
  assetId: undefined,
  from: 0n,
  to: 1_000_000n,
  open: false,
  sides: 'both',
  objectKey: 'ledger/a.csv',
  rows: 3n,
  tail: undefined,
};

describe('copyStoredRows', () => {
  test.each([
    '',
    'vega_time,quan',
    'vega_time,quan\n',
    'a,a\n',
    '"'.padEnd(20, 'x'),
  ])('quarantines an object of which only %j is left', async (left) => {
    const { context, quarantined } = openContext(async () =>
      Readable.from([Buffer.from(left)]),
    );
    await expect(
      copyStoredRows(ROW, [], 'merge', context),
    ).rejects.toMatchObject({
      code: 'SEGMENT_UNREADABLE',
    });
    expect(quarantined).toEqual([ROW.objectKey]);
  });

  test('passes the store’s refusal on, and quarantines nothing', async () => {
    const refusal = new PermanentError('Cannot read: 403', {
      code: 'OBJECT_STORE_REFUSED',
    });
    const { context, quarantined } = openContext(() => Promise.reject(refusal));
    await expect(copyStoredRows(ROW, [], 'merge', context)).rejects.toBe(
      refusal,
    );
    expect(quarantined).toEqual([]);
  });
});

function openContext(read: () => Promise<Readable>): {
  readonly context: StoredRowsContext;
  readonly quarantined: string[];
} {
  const quarantined: string[] = [];
  const quarantineSegment = async (key: string): Promise<void> => {
    quarantined.push(key);
  };
  return {
    context: {
      objects: { read },
      repository: { quarantineSegment },
      signal: NEVER_ABORTED,
    },
    quarantined,
  };
}
