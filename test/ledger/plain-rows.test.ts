/** The short way through a row decides what the reader of texts decides, for any row. */
import { expect, test } from 'vitest';
import { layoutOf, readHeader } from '../../src/ledger/header.ts';
import { RowFilter, type RowFinding } from '../../src/ledger/row-filter.ts';
import { ASSET, ASSET_2, OTHER, PARTY } from '../exports/ledger-double.ts';
import { fc } from '../support/properties.ts';
import { HEADER_12, HEADER_13 } from './csv.ts';

const TIMES = [
  '2023-05-01 10:00:00.5+00',
  '2023-05-01T23:59:59.123456789+00',
  '2023-05-01 00:00:00+00',
  '2023-05-01 10:00:00.5+05:30',
  '2024-02-29 10:00:00Z',
  '2023-02-29 10:00:00+00',
  '2023-05-01 24:00:00+00',
  '2023-05-01 10:60:00+00',
  '2023-05-01 10:00:60+00',
  '2023-05-01 10:00:00.+00',
  '2023-05-01 10:00:00.1234567890+00',
  '2023-05-01 10:00:00+00x',
  '2023-05-01 10:00:00+0',
  '2023-05-01-10:00:00+00',
  '2023-05-01 10.00:00+00',
  '"2023-05-01 10:00:00.5+00"',
  '1969-12-31 23:59:59+00',
  '9999-01-01 00:00:00+00',
  '',
];
const AMOUNTS = ['0', '5', '-12', '340282366920938463463374607431768211456'];
const ODD_AMOUNTS = ['', '-', '+5', '007', '1.5', '""', '"5"', '5 ', '--1'];
const IDS = [
  `\\x${PARTY}`,
  PARTY,
  PARTY.toUpperCase(),
  OTHER,
  `\\x${OTHER}`,
  `\\x${ASSET}`,
  ASSET_2,
  'network',
  '\\x03',
  '\\x',
  '',
  '""',
  `"${PARTY}"`,
  'fBTC',
  '09',
  'no id',
  'é',
];
const TYPES = [
  '3',
  'TRANSFER_TYPE_DEPOSIT',
  'ACCOUNT_TYPE_MARGIN',
  'MARGIN',
  '1234567890',
  'lower',
  '',
  '"4"',
];
const EXTRAS = [
  '',
  'note',
  'né',
  '"a,b"',
  'a\tb',
  'a\u0000b',
  'a\u001eb',
  'a"b',
];

/** Mostly what releases write, so that many rows are plain. */
const amount = fc.oneof(
  { weight: 9, arbitrary: fc.constantFrom(...AMOUNTS) },
  { weight: 1, arbitrary: fc.constantFrom(...ODD_AMOUNTS) },
);
const mostly = (usual: number, texts: readonly string[]) =>
  fc.oneof(
    { weight: 6, arbitrary: fc.constantFrom(...texts.slice(0, usual)) },
    { weight: 1, arbitrary: fc.constantFrom(...texts) },
  );

function cellOf(name: string): fc.Arbitrary<string> {
  if (name === 'vega_time') return mostly(4, TIMES);
  if (/balance|quantity|effect/.test(name)) return amount;
  if (/type/.test(name)) return mostly(4, TYPES);
  if (name.endsWith('_id')) return mostly(8, IDS);
  return mostly(3, EXTRAS);
}

const layouts = [
  readHeader(Buffer.from(HEADER_12)),
  readHeader(Buffer.from(HEADER_13)),
  layoutOf([...HEADER_13.trim().split(','), 'memo']),
];

const answer = fc.constantFrom(...layouts).chain((layout) => {
  const row = fc
    .tuple(...layout.columns.map(cellOf))
    .map((cells) => cells.join(','));
  // Any byte of a row may be another, and a row may lack its end.
  const damaged = fc
    .tuple(row, fc.nat(), fc.constantFrom('', ',', '"', 'x', '0', ' ', '\r'))
    .map(([text, at, put]) => {
      const place = at % (text.length + 1);
      return text.slice(0, place) + put + text.slice(place + 1);
    });
  const rows = fc.array(
    fc.oneof(
      { weight: 8, arbitrary: row },
      { weight: 1, arbitrary: damaged },
      { weight: 1, arbitrary: fc.tuple(row, fc.nat(400)).map(cut) },
    ),
    { minLength: 1, maxLength: 40 },
  );
  return fc.record({
    layout: fc.constant(layout),
    rows,
    assetId: fc.constantFrom(undefined, ASSET, 'fBTC'),
    hasOwnIds: fc.constantFrom(undefined, true, false),
    checksValues: fc.boolean(),
  });
});

function cut([text, at]: readonly [string, number]): string {
  return text.slice(0, at);
}

test('a row read by its bytes is found to be what its text is found to be', () => {
  fc.assert(
    fc.property(answer, ({ layout, rows, checksValues, ...scope }) => {
      const filters = [0, 1].map(
        () => new RowFilter({ partyId: PARTY, ...scope }, layout, checksValues),
      );
      const [fast, exact] = filters as [RowFilter, RowFilter];
      const block = Buffer.from(rows.join('\n'));
      let start = 0;
      for (const row of rows) {
        const end = start + Buffer.byteLength(row);
        const found = fast.check(block, start, end);
        expect(found).toBe(exact.checkText(block, start, end));
        expect(seenBy(fast, found)).toEqual(seenBy(exact, found));
        start = end + 1;
      }
    }),
    { numRuns: 500 },
  );
});

/** What others read of a filter after it has found a row to be something. */
function seenBy(filter: RowFilter, found: RowFinding) {
  const { time, isFrom, leaves, column } = filter;
  if (found === 'value') return { column };
  if (found !== 'ok' && found !== 'asset' && found !== 'party') return {};
  const { second, zoneSeconds } = time;
  return { second, zoneSeconds, isFrom, leaves };
}
