import { describe, expect, test } from 'vitest';
import {
  amountDecimal,
  amountHeading,
  findAmounts,
  formatAmount,
  movePoint,
} from '../../src/format/amounts.js';
import { fc } from '../support/properties.ts';

const USDT = { symbol: 'USDT', decimals: 6 };
const A = 'a'.repeat(64);
const B = 'b'.repeat(64);
const UNITS = new Map([[A, USDT]]);
const ALL_EXACT = (): boolean => true;

describe('movePoint', () => {
  test.each([
    ['1250000', 6, '1.25'],
    ['-1250000', 6, '-1.25'],
    ['1', 6, '0.000001'],
    ['-1', 38, '-0.00000000000000000000000000000000000001'],
    ['0', 6, '0'],
    ['1000000', 6, '1'],
    ['42', 0, '42'],
    ['100', 0, '100'],
  ])('of %s by %i decimals is %s', (digits, decimals, text) =>
    expect(movePoint(digits, decimals)).toBe(text),
  );

  test('loses nothing: times ten to the decimals it is the amount again', () => {
    fc.assert(
      fc.property(
        fc.bigInt({ min: -(10n ** 60n), max: 10n ** 60n }),
        fc.integer({ min: 0, max: 38 }),
        (amount, decimals) => {
          const text = movePoint(String(amount), decimals);
          const [whole = '', fraction = ''] = text.replace('-', '').split('.');
          const size = BigInt(whole + fraction.padEnd(decimals, '0'));
          expect(text.startsWith('-') ? -size : size).toBe(amount);
        },
      ),
    );
  });
});

test.each([
  ['1234567890000', USDT, '1,234,567.89 USDT'],
  ['1234567890000', undefined, '1,234,567,890,000'],
  ['1000000 or 2500000', USDT, '1 or 2.5 USDT'],
  ['12.5', USDT, '12.5'],
  ['', USDT, ''],
])('formatAmount(%s) with %o is %s', (text, unit, shown) =>
  expect(formatAmount(text, unit)).toBe(shown),
);

test.each([
  ['1234567890000', USDT, '1234567.89'],
  ['1234567890000', undefined, '1234567890000'],
  ['12.5', USDT, '12.5'],
])('amountDecimal(%s) with %o is %s', (text, unit, decimal) =>
  expect(amountDecimal(text, unit)).toBe(decimal),
);

test('a heading says which of its amounts are in the smallest unit', () => {
  expect(amountHeading('paid', { known: 0, unknown: 3 })).toBe(
    'paid (smallest unit)',
  );
  expect(amountHeading('paid', { known: 3, unknown: 0 })).toBe('paid');
  expect(amountHeading('paid', { known: 2, unknown: 1 })).toBe(
    'paid (smallest unit if no symbol)',
  );
});

describe('findAmounts', () => {
  const shown = (
    names: readonly string[],
    rows: readonly (readonly unknown[])[],
    isExact: (index: number) => boolean = ALL_EXACT,
  ): Record<string, readonly unknown[]> =>
    Object.fromEntries(
      [...findAmounts(names, rows, UNITS, isExact)].map(
        ([index, { heading, format }]) => [
          names[index] ?? '',
          [heading, ...rows.map(format)],
        ],
      ),
    );

  test('shows amounts beside an asset in its units', () => {
    expect(
      shown(
        ['asset_id', 'quantity', 'entries'],
        [
          [A, '1500000', 3n],
          [A, null, 1n],
        ],
      ),
    ).toEqual({ quantity: ['quantity', '1.5 USDT', undefined] });
  });

  test('keeps the smallest unit of an unknown asset, and the heading says so', () => {
    const rows = [
      [A, '1500000'],
      [B, '1500000'],
      [null, '7000'],
    ];
    expect(shown(['asset_id', 'sent'], rows)).toEqual({
      sent: [
        'sent (smallest unit if no symbol)',
        '1.5 USDT',
        '1,500,000',
        '7,000',
      ],
    });
    expect(shown(['asset_id', 'sent'], rows.slice(1))).toEqual({
      sent: ['sent (smallest unit)', '1,500,000', '7,000'],
    });
  });

  test('marks an amount of an unknown asset that comes after the heading was written', () => {
    const amounts = findAmounts(
      ['asset_id', 'sent'],
      [[A, '1500000']],
      UNITS,
      ALL_EXACT,
    );
    expect(amounts.get(1)?.heading).toBe('sent');
    expect(amounts.get(1)?.format([B, '1500000'])).toBe(
      '1,500,000 (smallest unit)',
    );
  });

  test('does not convert an amount without an asset, or with two of them', () => {
    expect(shown(['day', 'quantity'], [['2026-01-01', '1500000']])).toEqual({
      quantity: ['quantity (smallest unit)', '1,500,000'],
    });
    expect(
      shown(['from_asset_id', 'to_asset_id', 'quantity'], [[A, A, '1500000']]),
    ).toEqual({ quantity: ['quantity (smallest unit)', '1,500,000'] });
  });

  test('leaves figures alone that are no exact amounts', () => {
    const names = [
      'asset_id',
      'holders',
      'payers',
      'entries',
      'amount',
      'unresolved',
      'count(quantity)',
      'avg(quantity)',
      'first_received_at',
    ];
    expect(shown(names, [[A, ...names.slice(1).map(() => '9')]])).toEqual({});
    expect(
      shown(['asset_id', 'quantity'], [[A, '9']], (index) => index === 0),
    ).toEqual({});
  });

  test.each([
    'quantity',
    'quantity_text',
    'account_from_balance',
    'total_paid',
    'sum(quantity)',
    'sum(e.quantity)',
    'exact_sum(quantity, quantity_text)',
    'moved_within',
    'held',
    'change',
  ])('knows the amount %s', (name) => {
    expect(shown(['asset_id', name], [[A, '1500000']])[name]).toEqual([
      name,
      '1.5 USDT',
    ]);
  });
});
