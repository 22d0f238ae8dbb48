import { expect, test } from 'vitest';
import { formatTable } from '../../../src/cli/output/format.ts';

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
