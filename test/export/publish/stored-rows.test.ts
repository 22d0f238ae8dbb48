import { Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { copyStoredRows, type StoredRowsDeps } from '../../../src/export/publish/stored-rows.ts';

describe('the rows of a published object', () => {
  test.each(['', 'vega_time,quan'])('of which only %j is left are quarantined, not refused', async (left) => {
    const quarantined: string[] = [];
    const deps = {
      objects: { read: async () => Readable.from([Buffer.from(left)]) },
      repository: { quarantineSegment: async (key: string) => quarantined.push(key) },
    } as unknown as StoredRowsDeps;
    const row = { objectKey: 'ledger/a.csv', rows: 3n } as Parameters<typeof copyStoredRows>[0];
    const signal = new AbortController().signal;
    await expect(copyStoredRows(row, [], 'merge', deps, signal)).rejects.toMatchObject({
      code: 'SEGMENT_UNREADABLE',
    });
    expect(quarantined).toEqual(['ledger/a.csv']);
  });
});
