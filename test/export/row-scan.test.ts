/** The WebAssembly reader against the TypeScript one: whatever it does not call odd, it sees the same. */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fc } from '../support/properties.ts';
import { describe, expect, test } from 'vitest';
import { compileKernel, MODULE_PATH } from '../../scripts/kernel-compile.ts';
import type { ExportUnit } from '../../src/export/ports.ts';
import { RowFilter } from '../../src/export/row-filter.ts';
import { RowScan } from '../../src/export/row-scan.ts';
import { type Layout, layoutOf } from '../../src/ledger/header.ts';
import { RowSplitter } from '../../src/ledger/row-splitter.ts';
import { HEADER_12, HEADER_13 } from '../ledger/csv.ts';
import { ASSET, ASSET_2, OTHER, PARTY, row12, row13 } from './ledger-double.ts';

const LAYOUTS = {
  12: layoutOf(HEADER_12.split(',')),
  13: layoutOf(HEADER_13.split(',')),
  reordered: layoutOf([...HEADER_13.split(',').toReversed(), 'note']),
};
const UNITS: readonly ExportUnit[] = [{ partyId: PARTY }, { partyId: PARTY, assetId: ASSET }];

interface Row {
  readonly place: readonly [start: number, end: number, next: number];
  /** Absent: odd. */
  readonly seen?: { readonly finding: string; readonly second: number; readonly leaves: boolean };
}

function scanned(unit: ExportUnit, layout: Layout, block: Buffer): Row[] {
  const scan = RowScan.open(unit, layout, block);
  if (scan === undefined) throw new Error('the module does not take this block');
  const rows: Row[] = [];
  while (scan.advance()) {
    const { start, end, next, second, isFrom, isTo, isAsset } = scan;
    const finding = isFrom || isTo ? (isAsset ? 'ok' : 'asset') : 'party';
    const seen = { finding, second, leaves: isFrom && !isTo };
    rows.push({ place: [start, end, next], ...(scan.isOdd ? {} : { seen }) });
  }
  return rows;
}

function filtered(unit: ExportUnit, layout: Layout, block: Buffer): Required<Row>[] {
  const filter = new RowFilter(unit, layout);
  const rows: Required<Row>[] = [];
  new RowSplitter((buffer, start, end, next) => {
    if (end === start) return;
    const finding = filter.check(buffer, start, end);
    rows.push({
      place: [start, end, next],
      seen: { finding, second: filter.time.second, leaves: filter.leaves },
    });
  }).push(block);
  return rows;
}

/** Where the module has judged, as the other did; where not, as if it had. */
function expectTheSame(unit: ExportUnit, layout: Layout, block: Buffer): Row[] {
  const [fast, slow] = [scanned(unit, layout, block), filtered(unit, layout, block)];
  expect(fast.map((row, index) => ({ ...row, seen: row.seen ?? slow[index]?.seen }))).toEqual(slow);
  return fast;
}

const digits = fc.string({ unit: fc.constantFrom('0', '12', '9876543210'), maxLength: 30 });
const time = fc.oneof(
  fc
    .date({ min: new Date('1970-01-01'), max: new Date('2199-12-31'), noInvalidDate: true })
    .map((date) => `${date.toISOString().slice(0, 23).replace('T', ' ')}+00`),
  fc.constantFrom(
    '2023-02-29 10:00:00+00',
    '2024-02-29 23:59:59.999999+00',
    '1900-02-29 10:00:00+00',
    '1969-12-31 23:59:59+00',
    '2023-05-01T10:00:00Z',
    '2023-05-01 10:00:00+05:30',
    '2023-05-01 10:00:00.1234567+00',
    '2023-05-01 10:00:00.+00',
    '2023-05-01 24:00:00+00',
    '2023-13-01 10:00:00+00',
    '2023-05-01 1x:00:00+00',
    '"2023-05-01 10:00:00+00"',
    '2023-05-01 10:00:00',
    '',
  ),
);
const id = fc.constantFrom(
  ...[PARTY, PARTY.toUpperCase(), OTHER, ASSET, ASSET_2, PARTY.slice(1), `${PARTY}a`, ''].flatMap((hex) => [
    hex,
    `\\x${hex}`,
    `"${hex}"`,
    `"\\x${hex}"`,
  ]),
);
const other = fc.oneof(
  digits,
  fc.string({ unit: fc.constantFrom('a', '""', '"', ',', '\r', '\n', 'é', '\0'), maxLength: 6 }),
  fc.string({ unit: fc.constantFrom('a', '""', ',', '\n', 'é'), maxLength: 6 }).map((text) => `"${text}"`),
);

function rowOf({ columns }: Layout): fc.Arbitrary<string> {
  const fields = columns.map((name) => (name === 'vega_time' ? time : name.endsWith('_id') ? id : other));
  const row = fc.tuple(...fields).map((values) => values.join(','));
  return fc.oneof(
    { weight: 6, arbitrary: row },
    { weight: 1, arbitrary: fc.string({ unit: fc.constantFrom('a', ',', '"', '\n', '\r'), maxLength: 40 }) },
  );
}

describe('RowScan', () => {
  test.each(Object.entries(LAYOUTS))('property: sees what the other reader sees, %s', (_, layout) => {
    const rows = fc.array(fc.tuple(rowOf(layout), fc.constantFrom('\n', '\r\n')), { maxLength: 12 });
    fc.assert(
      fc.property(rows, fc.constantFrom(...UNITS), (lines, unit) => {
        const text = Buffer.from(lines.flat().join(''));
        const splitter = new RowSplitter(() => undefined);
        splitter.push(text);
        // A block ends where a row does.
        const block = text.subarray(0, text.length - splitter.rest().length);
        expect(scanned(unit, layout, block).length).toBe(expectTheSame(unit, layout, block).length);
      }),
      { numRuns: 1500 },
    );
  });

  test('rows as releases write them are never odd', () => {
    for (const [layout, row] of [
      [LAYOUTS[12], row12],
      [LAYOUTS[13], row13],
    ] as const) {
      const rows = Array.from({ length: 3000 }, (_entry, index) => {
        const day = new Date(index * 86_400_000).toISOString().slice(0, 10);
        return row({ time: `${day} 10:00:00.5+00`, ...(index % 3 === 0 ? { from: OTHER, to: PARTY } : {}) });
      });
      const block = Buffer.from(rows.map((line) => `${line}\n`).join(''));
      const seen = expectTheSame({ partyId: PARTY, assetId: ASSET }, layout, block);
      expect(seen.every((one) => one.seen !== undefined)).toBe(true);
    }
  });

  test('leaves to the other reader what it cannot hold or compare', () => {
    const block = Buffer.from(`${row12({ time: '2023-05-01 10:00:00+00' })}\n`);
    expect(RowScan.open({ partyId: PARTY, assetId: 'fBTC' }, LAYOUTS[12], block)).toBeUndefined();
    expect(RowScan.open({ partyId: PARTY }, LAYOUTS[12], Buffer.alloc(2 ** 21, '\n'))).toBeUndefined();
  });

  test('the module is what its source compiles to', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-kernel-'));
    try {
      await compileKernel(join(folder, 'row-scan.wasm'));
      const compiled = await readFile(join(folder, 'row-scan.wasm'));
      expect(compiled.equals(await readFile(MODULE_PATH))).toBe(true);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });
});
