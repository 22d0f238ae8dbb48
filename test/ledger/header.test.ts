import { describe, expect, test } from 'vitest';
import { layoutOf, readHeader } from '../../src/ledger/header.ts';
import { HEADER_12, HEADER_13 } from './csv.ts';

describe('readHeader', () => {
  test('reads the release with 12 columns as the from side only', () => {
    const layout = readHeader(Buffer.from(HEADER_12));
    expect(layout.sides).toBe('from');
    expect(layout.index.account_to_balance).toBe(11);
    expect(layout.index.effect).toBeUndefined();
  });

  test('reads the release with 13 columns as both sides, wherever its columns are', () => {
    const layout = readHeader(Buffer.from(HEADER_13));
    expect(layout.sides).toBe('both');
    expect(layout.index.effect).toBe(2);
    const reversed = layoutOf(HEADER_13.split(',').toReversed());
    expect(reversed.index.vega_time).toBe(12);
  });

  test('keeps columns that nobody knows', () => {
    const layout = readHeader(
      Buffer.from(`\uFEFF"transfer_id",${HEADER_12},memo`),
    );
    expect(layout.unknown).toEqual([
      { name: 'transfer_id', index: 0 },
      { name: 'memo', index: 13 },
    ]);
    expect(layout.index.vega_time).toBe(1);
  });

  test.each([
    ['COLUMNS_MISSING', HEADER_12.replace('quantity', 'amount'), 'quantity'],
    ['COLUMNS_REPEATED', `${HEADER_12},quantity`, 'quantity'],
    ['HEADER_NOT_UNDERSTOOD', '<html><body>502 Bad Gateway</body>', '<html>'],
    ['HEADER_NOT_UNDERSTOOD', '', 'not a header'],
    ['HEADER_NOT_UNDERSTOOD', 'c,'.repeat(300), 'not a header'],
  ])('refuses with %s: %.30s', (code, line, named) => {
    expect(() => readHeader(Buffer.from(line))).toThrow(
      expect.objectContaining({
        code,
        message: expect.stringContaining(named),
      }),
    );
  });
});
