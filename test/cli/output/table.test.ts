import { fc } from '../../support/properties.ts';
import { expect, test } from 'vitest';
import { formatTable } from '../../../src/cli/output/table.ts';

test('a table sets numbers to the right and all other values to the left', () => {
  const table = formatTable(
    ['run', 'rows', 'ok', 'note'],
    [
      ['sync', 1_234_567n, true, null],
      ['export', 12, false, 'late\u001B[0m'],
    ],
  );
  expect(table).toBe(
    [
      'run          rows  ok   note',
      '──────  ─────────  ───  ────────',
      'sync    1,234,567  yes  –',
      'export         12  no   late·[0m',
      '',
    ].join('\n'),
  );
});

test('a table counts the rows it does not show', () => {
  const table = formatTable(
    ['n'],
    Array.from({ length: 1005 }, (_, index) => [index]),
    { rowsMax: 5 },
  );
  expect(table.split('\n').slice(-3)).toEqual(['4', '… 1,000 more', '']);
});

test('a table fits the window as long as every column keeps a few characters', () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.string(), fc.string({ maxLength: 200 }), fc.bigInt()), { maxLength: 5 }),
      fc.integer({ min: 30, max: 120 }),
      (rows, columns) => {
        const lines = formatTable(['a', 'b', 'c'], rows, { columns }).split('\n');
        expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(columns);
      },
    ),
  );
});
