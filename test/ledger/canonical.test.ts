import { fc } from '../support/properties.ts';
import { describe, expect, test } from 'vitest';
import {
  canonicalText,
  extraFromJson,
  decodeTime,
  monthOf,
  openRowReader,
  openTimeDecoder,
} from '../../src/ledger/canonical.ts';
import { hashText } from '../../src/ledger/digest.ts';
import {
  decodeAccountType,
  decodeId,
  decodeInteger,
  decodeTransferType,
} from '../../src/ledger/encodings.ts';
import { layoutOf } from '../../src/ledger/header.ts';
import { RowFields } from '../../src/ledger/csv-rows.ts';
import { HEADER_12, HEADER_13 } from './csv.ts';
import { PARTY_A, row12, row13 } from '../warehouse/published.ts';

describe('values of every release', () => {
  test.each([
    [`\\x${'AB'.repeat(32)}`, 'ab'.repeat(32)],
    ['AB'.repeat(32), 'ab'.repeat(32)],
    ['\\x03', 'network'],
    ['network', 'network'],
    ['NETWORK', 'network'],
    ['\\x00', 'VOTE'],
    ['XYZalpha', 'XYZalpha'],
    ['\\x', ''],
    ['', ''],
    ['\\xabc', undefined],
    ['\\x0d', undefined],
    ['nobody', undefined],
    [`\\x${'ab'.repeat(65)}`, undefined],
  ])('id %s', (text, value) => expect(decodeId(text)).toBe(value));

  test.each([
    ['3', 'MARGIN'],
    ['03', 'MARGIN'],
    ['MARGIN', 'MARGIN'],
    ['ACCOUNT_TYPE_MARGIN', 'MARGIN'],
    ['18', 'HOLDING'],
    ['19', '#19'],
    ['8', '#8'],
    ['UNKNOWN', 'UNKNOWN'],
    ['', ''],
    ['margin', undefined],
    ['-3', undefined],
    ['9'.repeat(10), undefined],
  ])('account type %s', (text, value) =>
    expect(decodeAccountType(text)).toBe(value),
  );

  test.each([
    ['TRANSFER_TYPE_DEPOSIT', 'DEPOSIT'],
    ['DEPOSIT', 'DEPOSIT'],
    ['7', '#7'],
    ['TRANSFER_TYPE_', undefined],
    ['', undefined],
    ['Deposit', undefined],
  ])('transfer type %s', (text, value) =>
    expect(decodeTransferType(text)).toBe(value),
  );

  test.each([
    ['0', '0'],
    ['-0', '0'],
    ['+007', '7'],
    ['-007', '-7'],
    ['', ''],
    ['1.0', undefined],
    ['1e6', undefined],
    [' 1', undefined],
    ['-', undefined],
    ['٣', undefined],
    ['9'.repeat(1001), undefined],
  ])('integer %s', (text, value) => expect(decodeInteger(text)).toBe(value));

  test('integers are what BigInt says, at any size', () => {
    fc.assert(
      fc.property(
        fc.bigInt(),
        fc.nat(5),
        fc.boolean(),
        (value, zeros, plus) => {
          const digits =
            '0'.repeat(zeros) + (value < 0n ? -value : value).toString();
          const signOfOthers = plus ? '+' : '';
          const sign = value < 0n ? '-' : signOfOthers;
          expect(decodeInteger(sign + digits)).toBe(value.toString());
        },
      ),
    );
  });
});

function read(
  header: string,
  row: string,
): ReturnType<ReturnType<typeof openRowReader>> {
  const fields = new RowFields();
  const bytes = Buffer.from(row);
  fields.scan(bytes, 0, bytes.length);
  return openRowReader(layoutOf(header.split(',')))(fields);
}

describe('the canonical row', () => {
  const entry = {
    time: '2023-05-01 01:30:00.12+05:30',
    from: PARTY_A,
    to: 'network',
  };

  test('is the same text from every release, and says UTC', () => {
    const old = read(HEADER_12, row12(entry));
    const later = read(HEADER_13, row13(entry, PARTY_A));
    expect(later.values).toEqual(old.values);
    expect([old.effect, later.effect]).toEqual(['', '-1000000']);
    expect(monthOf(old.values)).toBe('2023-04');
    expect(canonicalText(old.values, [])).toBe(
      [
        '2023-04-30T20:00:00.120000Z',
        '1000000',
        'MARGIN_HIGH',
        'c0'.repeat(32),
        'dd'.repeat(32),
        PARTY_A,
        'MARGIN',
        '5',
        '',
        'network',
        'GENERAL',
        '12345678901234567890123',
      ].join('\u001f'),
    );
  });

  test('tells rows apart that differ in one value, unknown columns among them', () => {
    const texts = ['', 'a', 'b', 'a,b', '€'].map((note) => {
      const { values, extra } = read(
        `${HEADER_12},note,more`,
        `${row12(entry)},"${note}",x`,
      );
      expect(extraFromJson(JSON.stringify(Object.fromEntries(extra)))).toEqual(
        extra,
      );
      return hashText(canonicalText(values, extra));
    });
    expect(new Set(texts).size).toBe(texts.length);
  });

  test.each([
    ['vega_time', row12({ ...entry, time: '2023-02-30 00:00:00+00' })],
    ['quantity', row12({ ...entry, quantity: '' })],
    ['account_to_balance', row12({ ...entry, balances: ['1', 'x'] })],
    ['note', `${row12(entry)},a\u001fb`],
    ['note', `${row12(entry)},a\u0000b`],
  ])('names %s where its text is not understood', (column, row) => {
    expect(() => read(`${HEADER_12},note`, row)).toThrow(
      expect.objectContaining({
        code: 'BAD_VALUE',
        meta: expect.objectContaining({ column }),
      }),
    );
  });
});

describe('the decoder of the times of a file', () => {
  const digit = fc.integer({ min: 0, max: 9 }).map(String);
  const two = (max: number): fc.Arbitrary<string> =>
    fc.integer({ min: 0, max }).map((value) => String(value).padStart(2, '0'));
  const fraction = fc
    .array(digit, { maxLength: 11 })
    .map((digits) => (digits.length === 0 ? '' : `.${digits.join('')}`));
  const zone = fc.constantFrom(
    '',
    'Z',
    'z',
    '+00',
    '+05:30',
    '-0330',
    '+01:00:17',
    '-18',
    '+19',
    '+00x',
  );
  const time = fc
    .tuple(
      fc.constantFrom('1969', '2023', '2024', '9999'),
      fc.tuple(two(13), two(32), fc.constantFrom(' ', 'T', 't', '_')),
      fc.tuple(two(24), two(60), two(61)),
      fraction,
      zone,
    )
    .map(
      ([year, [month, day, between], clock, parts, offset]) =>
        `${year}-${month}-${day}${between}${clock.join(':')}${parts}${offset}`,
    );

  test('returns what each of them is alone, whatever was read before', () => {
    fc.assert(
      fc.property(fc.array(time, { minLength: 1, maxLength: 30 }), (times) => {
        const decode = openTimeDecoder();
        const again = [...times, ...times];
        expect(again.map(decode)).toEqual(again.map(decodeTime));
      }),
      { numRuns: 500 },
    );
  });

  test.each([
    '',
    '2023-05-10',
    '2023-05-10 10:00',
    '2023-05-10 10:00:5',
    '2023-05-10 10:00:60',
    '2023-05-10 10:00:59.',
    '2023-05-10 10:00:59.1234567890',
    '2023-05-10 10:00:0a',
    '2023-02-30 10:00:00.1+00',
    '2023-05-10 10:00:59..1',
  ])('%j is as without it', (text) => {
    expect(openTimeDecoder()(text)).toBe(decodeTime(text));
  });
});
