import { fc } from '../../support/properties.ts';
import { expect, test } from 'vitest';
import { BlockCutter } from '../../../src/export/read/block-cutter.ts';
import { RowSplitter } from '../../../src/ledger/row-splitter.ts';
import { cutAt } from '../../ledger/csv.ts';

interface Cut {
  readonly blocks: string[];
  readonly rest: string;
}

/** @param isInPlace rows are used as soon as they are there, as at an answer's beginning */
function cut(chunks: readonly Buffer[], blockBytes: number, isInPlace: boolean): Cut {
  const cutter = new BlockCutter(blockBytes);
  const used: SharedArrayBuffer[] = [];
  const blocks: string[] = [];
  for (const chunk of chunks) {
    for (let from = 0; from < chunk.length;) {
      from += cutter.fill(chunk, from);
      const block = isInPlace || cutter.isFull ? cutter.rows() : undefined;
      if (block === undefined) continue;
      blocks.push(Buffer.from(block.memory, 0, block.bytes).toString('latin1'));
      if (isInPlace) cutter.drop(block);
      else {
        cutter.leave(block, used.shift());
        used.push(block.memory);
      }
    }
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
      fc.integer({ min: 1, max: 40 }),
      fc.boolean(),
      (csv, places, blockBytes, isInPlace) => {
        const bytes = Buffer.from(csv);
        const { blocks, rest } = cut(cutAt(bytes, places), blockBytes, isInPlace);
        expect(blocks.join('') + rest).toBe(bytes.toString('latin1'));
        // In each block as in the whole: a border inside of quotes would show.
        const inBlocks = blocks.map((block) => split(Buffer.from(block, 'latin1')));
        const rows = inBlocks.flatMap((block) => block.rows);
        expect(rows).toEqual(split(bytes).rows.slice(0, isInPlace ? undefined : rows.length));
        expect(inBlocks.map((block) => block.rest).join('')).toBe('');
      },
    ),
    { numRuns: 500 },
  );
});

test('memory is used again, but for a row that needs more', () => {
  const rows = [`${'x'.repeat(300)}\n`, ...Array.from({ length: 40 }, () => `${'y'.repeat(30)}\n`)];
  const cutter = new BlockCutter(64);
  const memories = new Set<SharedArrayBuffer>();
  const chunk = Buffer.from(rows.join(''));
  let used: SharedArrayBuffer | undefined;
  for (let from = 0; from < chunk.length;) {
    from += cutter.fill(chunk, from);
    const block = cutter.isFull ? cutter.rows() : undefined;
    if (block === undefined) continue;
    memories.add(block.memory);
    cutter.leave(block, used);
    used = block.memory;
  }
  expect([...memories].map(({ byteLength }) => byteLength)).toEqual([512, 64, 64]);
});

test('a row beyond the limit is an error, not an allocation', () => {
  const chunk = Buffer.alloc(2 ** 20, 'x');
  expect(() =>
    cut(
      Array.from({ length: 40 }, () => chunk),
      2 ** 16,
      false,
    ),
  ).toThrow(expect.objectContaining({ code: 'ROW_TOO_LARGE' }));
});
