import { createHash } from 'node:crypto';
import { fc } from '../support/properties.ts';
import { describe, expect, test } from 'vitest';
import { hashRow, RowDigest, rowForm } from '../../src/ledger/digest.ts';

/** The sum as its definition says, with bigints. */
function definition(rows: readonly string[]): string {
  const sum = rows.reduce(
    (total, row) =>
      total + BigInt(`0x${createHash('sha256').update(row).digest('hex')}`),
    0n,
  );
  return (sum % 2n ** 256n).toString(16).padStart(64, '0');
}

function digestOf(rows: readonly string[]): RowDigest {
  const digest = new RowDigest();
  for (const row of rows) {
    const bytes = Buffer.from(`<${row}>`);
    digest.add(hashRow(bytes, 1, bytes.length - 1));
  }
  return digest;
}

const rows = fc.array(fc.string({ unit: 'grapheme', maxLength: 20 }), {
  maxLength: 40,
});

describe('RowDigest', () => {
  test('is the sum of the hashes modulo 2^256', () => {
    fc.assert(
      fc.property(rows, (list) => {
        expect(digestOf(list).hex()).toBe(definition(list));
      }),
    );
  });

  test('does not depend on order, counts repetitions, and adds up over slices', () => {
    fc.assert(
      fc.property(rows, rows, (left, right) => {
        const whole = digestOf([...right, ...left]);
        const merged = digestOf(left);
        merged.merge(digestOf(right));
        expect([merged.rows, merged.hex()]).toEqual([whole.rows, whole.hex()]);
        expect(digestOf([...left, 'again']).hex()).not.toBe(
          digestOf(left).hex(),
        );
      }),
    );
  });

  test('comes back from its text', () => {
    const digest = digestOf(['a', 'b', 'b']);
    const back = RowDigest.fromHex(digest.hex(), digest.rows);
    back.merge(digestOf(['c']));
    expect(back.hex()).toBe(definition(['a', 'b', 'b', 'c']));
    expect(() => RowDigest.fromHex('XYZ', 1)).toThrow(RangeError);
  });

  test('carries before a double would lose digits', () => {
    const digest = new RowDigest();
    const highest = '\uffff'.repeat(16);
    const rounds = 2 ** 20 + 3;
    for (let round = 0; round < rounds; round += 1) digest.add(highest);
    const expected = ((2n ** 256n - 1n) * BigInt(rounds)) % 2n ** 256n;
    expect(digest.hex()).toBe(expected.toString(16).padStart(64, '0'));
  });
});

test('rowForm tells headers and zones apart', () => {
  const forms = [
    rowForm(Buffer.from('a,b'), ['+00']),
    rowForm(Buffer.from('b,a'), ['+00']),
    rowForm(Buffer.from('a,b'), ['+02', '+01']),
  ];
  expect(new Set(forms).size).toBe(3);
  expect(forms[2]).toMatch(/^sha256sum-v1\/[0-9a-f]{16}\/\+01,\+02$/);
});
