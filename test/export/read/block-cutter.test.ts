import { fc } from '../../support/properties.ts';
import { expect, test } from 'vitest';
import { BlockCutter } from '../../../src/export/read/block-cutter.ts';
import { RowSplitter } from '../../../src/ledger/row-splitter.ts';
import { cutAt } from '../../ledger/csv.ts';

interface Cut {
  readonly blocks: string[];
  readonly rest: string;
}

function cut(chunks: readonly Buffer[], bytesMin: number): Cut {
  const cutter = new BlockCutter();
  const blocks: string[] = [];
  for (const chunk of chunks) {
    cutter.push(chunk);
    const block = cutter.take(bytesMin);
    if (block !== undefined) blocks.push(block.toString('latin1'));
  }
  return { blocks, rest: cutter.rest.toString('latin1') };
}

function split(bytes: Buffer): { rows: string[]; rest: string } {
  const rows: string[] = [];
  const splitter = new RowSplitter((buffer, start, _end, next) =>
    rows.push(buffer.toString('latin1', start, next)),
  );
  splitter.push(bytes);
  return { rows, rest: splitter.rest().toString('latin1') };
}

test('property: blocks hold whole rows, all of them and in order, however the bytes are cut', () => {
  const text = fc.string({
    unit: fc.constantFrom('a', 'bc', ',', '"', '""', '\n', '\r\n', 'é'),
    maxLength: 60,
  });
  fc.assert(
    fc.property(
      text,
      fc.array(fc.nat(100), { maxLength: 8 }),
      fc.integer({ min: 0, max: 40 }),
      (csv, places, bytesMin) => {
        const bytes = Buffer.from(csv);
        const { blocks, rest } = cut(cutAt(bytes, places), bytesMin);
        expect(blocks.join('') + rest).toBe(bytes.toString('latin1'));
        // In each block as in the whole: a border inside of quotes would show.
        const inBlocks = blocks.map((block) => split(Buffer.from(block, 'latin1')));
        const rows = inBlocks.flatMap((block) => block.rows);
        expect(rows).toEqual(split(bytes).rows.slice(0, bytesMin === 0 ? undefined : rows.length));
        expect(inBlocks.map((block) => block.rest).join('')).toBe('');
      },
    ),
    { numRuns: 500 },
  );
});

test('no block is taken before it holds so many bytes', () => {
  const chunks = Array.from({ length: 40 }, () => Buffer.from(`${'y'.repeat(30)}\n`));
  const { blocks, rest } = cut(chunks, 100);
  expect([blocks.map((block) => block.length), rest]).toEqual([Array.from({ length: 10 }, () => 124), '']);
});

test('a row beyond the limit is an error, not an allocation', () => {
  const chunk = Buffer.alloc(2 ** 20, 'x');
  expect(() =>
    cut(
      Array.from({ length: 40 }, () => chunk),
      2 ** 16,
    ),
  ).toThrow(expect.objectContaining({ code: 'ROW_TOO_LARGE' }));
});
