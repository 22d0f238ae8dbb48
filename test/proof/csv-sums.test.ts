/** A ledger's CSV as a stranger has it: saved by another program, sorted, cut, or changed. */
import { Readable } from 'node:stream';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { plainStream } from '../../src/ledger/object-keys.ts';
import { CsvSums, differingMonths } from '../../src/proof/csv-sums.ts';
import type { MonthSum } from '../../src/proof/ledger-record.ts';
import { HEADER_12 } from '../ledger/csv.ts';
import { PARTY_A, row12 } from '../warehouse/published.ts';

const ROWS = [
  row12({ time: '2023-04-30 23:59:59+00', from: PARTY_A }),
  row12({ time: '2023-05-01 00:00:00+00', from: PARTY_A }),
  row12({ time: '2023-05-02 10:00:00+00', from: PARTY_A }),
];
const CSV = [HEADER_12, ...ROWS, ''].join('\n');

describe('CsvSums', () => {
  test.each([
    ['with the line ends of Windows', CSV.replaceAll('\n', '\r\n')],
    ['behind a byte order mark', `\uFEFF${CSV}`],
    ['in another order', [HEADER_12, ...ROWS.toReversed(), ''].join('\n')],
  ])('sums the same months %s', async (_, csv) => {
    expect(await monthsOf(csv)).toEqual(await monthsOf(CSV));
  });

  test('sums the same months from several files, in any order', async () => {
    const [first = '', ...others] = ROWS;
    const parts = [others, [first]].map((rows) =>
      [HEADER_12, ...rows, ''].join('\n'),
    );
    expect(await monthsOf(...parts)).toEqual(await monthsOf(CSV));
  });

  test('names the month that lacks its last row', async () => {
    const cut = [HEADER_12, ...ROWS.slice(0, -1), ''].join('\n');
    const found = differingMonths(await monthsOf(cut), await monthsOf(CSV));
    expect(found).toEqual([{ month: '2023-05', left: '1', right: '2' }]);
  });

  test('names the month in which one amount is another', async () => {
    const changed = CSV.replace(
      /2023-04-30 23:59:59(\+00,)(\d)/,
      '2023-04-30 23:59:59$19',
    );
    expect(changed).not.toBe(CSV);
    const found = differingMonths(await monthsOf(changed), await monthsOf(CSV));
    expect(found).toEqual([{ month: '2023-04', left: '1', right: '1' }]);
  });

  test.each([
    ['is cut within its last row', CSV.slice(0, -10)],
    ['is empty', ''],
  ])('refuses a file that %s', async (_, csv) => {
    await expect(monthsOf(csv)).rejects.toMatchObject({
      code: 'CSV_INCOMPLETE',
    });
  });

  test.each([
    ['a row with too few fields', CSV.replace(/,[^,]*\n$/, '\n'), 4],
    [
      'an invalid time behind a value of two lines',
      [
        `${HEADER_12},note`,
        `${ROWS[0] ?? ''},"two\nlines"`,
        `${ROWS[1] ?? ''},`.replace('2023-05-01 00', '2023-05-01 99'),
        '',
      ].join('\n'),
      4,
    ],
    ['a first line that is no header', 'a,b\n1,2\n', 1],
    ['a last line without its end', CSV.slice(0, -10), 4],
  ])('names the file and the line of %s', async (_, csv, line) => {
    await expect(monthsOf(csv)).rejects.toThrow(
      new RegExp(`^Cannot (?:read|sum up) ledger\\.csv.*\\b${line}\\b.*; `),
    );
  });

  test('sums rows from an instant on apart, and all of them together', async () => {
    const sums = new CsvSums('2023-05-01T00:00:00.000000Z');
    await sums.add(Readable.from([Buffer.from(CSV)]), 'ledger.csv');
    expect(sums.months()).toEqual(await monthsOf(CSV));
    expect(sums.newer()).toEqual({
      rows: 2,
      from: '2023-05-01T00:00:00.000000Z',
    });
    const before = [HEADER_12, ROWS[0], ''].join('\n');
    expect(sums.monthsBefore()).toEqual(await monthsOf(before));
  });

  test.each([
    ['a gzip archive that was cut', gzipSync(CSV).subarray(0, -9), 'gzip'],
    [
      'a zstd archive that was cut',
      zstdCompressSync(CSV).subarray(0, -5),
      'zstd',
    ],
    ['a plain file that is named like an archive', Buffer.from(CSV), 'gzip'],
  ] as const)(
    'names the file and the reason for %s',
    async (_, content, form) => {
      const sums = new CsvSums();
      const plain = plainStream(Readable.from([content]), form);
      await expect(sums.add(plain, 'ledger.csv')).rejects.toMatchObject({
        code: 'CSV_INCOMPLETE',
        message: expect.stringContaining('ledger.csv') as string,
      });
    },
  );

  test('has no months for a ledger without entries', async () => {
    expect(await monthsOf(`${HEADER_12}\n`)).toEqual([]);
  });
});

async function monthsOf(...files: readonly string[]): Promise<MonthSum[]> {
  const sums = new CsvSums();
  for (const csv of files)
    await sums.add(Readable.from([Buffer.from(csv)]), 'ledger.csv');
  return sums.months();
}
