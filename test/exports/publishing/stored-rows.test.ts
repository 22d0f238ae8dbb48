import { Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { copyStoredRows } from '../../../src/exports/publishing/stored-rows.ts';

describe('the rows of a published object', () => {
  test.each(['', 'vega_time,quan'])(
    'of which only %j is left are quarantined, not refused',
    async (left) => {
      const quarantined: string[] = [];
      const context = {
        objects: { read: async () => Readable.from([Buffer.from(left)]) },
        repository: { quarantineSegment: async (key: string) => quarantined.push(key) },
        signal: new AbortController().signal,
      } as unknown as Parameters<typeof copyStoredRows>[3];
      const row = { objectKey: 'ledger/a.csv', rows: 3n } as Parameters<
        typeof copyStoredRows
      >[0];
      await expect(copyStoredRows(row, [], 'merge', context)).rejects.toMatchObject({
        code: 'SEGMENT_UNREADABLE',
      });
      expect(quarantined).toEqual(['ledger/a.csv']);
    },
  );
});
