import { fc } from '../support/properties.ts';
import { describe, expect, test } from 'vitest';
import { RowFields, RowSplitter } from '../../src/ledger/csv-rows.ts';
import { cutAt } from './csv.ts';

interface Split {
  readonly rows: string[];
  readonly rest: string;
}

function split(pieces: readonly Buffer[], rowBytesMax?: number): Split {
  const rows: string[] = [];
  const splitter = new RowSplitter((buffer, start, end) => {
    rows.push(buffer.toString('latin1', start, end));
  }, rowBytesMax);
  for (const piece of pieces) splitter.push(piece);
  return { rows, rest: splitter.rest().toString('latin1') };
}

const value = fc.oneof(
  fc.constantFrom(
    '',
    '12345678901234567890123',
    '\\xc0ffee',
    'TRANSFER_TYPE_WIN',
  ),
  fc.string({
    unit: fc.constantFrom('a', ',', '"', '\n', '\r', 'é', '{'),
    maxLength: 6,
  }),
);
function quoted(text: string): string {
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
const table = fc.array(fc.array(value, { minLength: 1, maxLength: 5 }), {
  minLength: 1,
  maxLength: 8,
});

describe('RowSplitter', () => {
  test('finds the same rows wherever the bytes are cut', () => {
    fc.assert(
      fc.property(
        table,
        fc.array(fc.nat(400), { maxLength: 12 }),
        (rows, places) => {
          const lines = rows.map((row) => row.map(quoted).join(','));
          const bytes = Buffer.from(lines.map((line) => `${line}\n`).join(''));
          const expected = lines.map((line) =>
            Buffer.from(line).toString('latin1'),
          );
          expect(split(cutAt(bytes, places))).toEqual({
            rows: expected,
            rest: '',
          });
        },
      ),
    );
  });

  test('finds the same rows at every single cut', () => {
    const bytes = Buffer.from('a,"b\n""c""",d\r\n"",x\n\n"y"\nend');
    for (let at = 0; at <= bytes.length; at += 1) {
      expect(split([bytes.subarray(0, at), bytes.subarray(at)])).toEqual({
        rows: ['a,"b\n""c""",d', '"",x', '', '"y"'],
        rest: 'end',
      });
    }
  });

  test('hands out contiguous slices of the chunk itself', () => {
    const chunk = Buffer.from('one\ntwo\nthree\n');
    const seen: [Buffer, number, number][] = [];
    new RowSplitter((buffer, start, _end, next) =>
      seen.push([buffer, start, next]),
    ).push(chunk);
    expect(seen.map(([, start, next]) => [start, next])).toEqual([
      [0, 4],
      [4, 8],
      [8, 14],
    ]);
    expect(seen.every(([buffer]) => buffer === chunk)).toBe(true);
  });

  test('refuses a row beyond the limit, in one chunk or in many', () => {
    const bytes = Buffer.from(`${'x'.repeat(40)}\n`);
    expect(() => split([bytes], 39)).toThrow(
      expect.objectContaining({ code: 'ROW_TOO_LARGE' }),
    );
    const bytewise = [...bytes].map((byte) => Buffer.from([byte]));
    expect(() => split(bytewise, 39)).toThrow(
      expect.objectContaining({ code: 'ROW_TOO_LARGE' }),
    );
    expect(split(bytewise, 41).rows).toEqual(['x'.repeat(40)]);
  });

  test('joins a long row of many chunks without copying it again and again', () => {
    const chunk = Buffer.alloc(512, 'x');
    const chunks = Array.from({ length: 8192 }, () => chunk);
    const { rows } = split([...chunks, Buffer.from('\n')]);
    expect(rows[0]?.length).toBe(512 * 8192);
  });
});

describe('RowFields', () => {
  test('reads back every value that was written', () => {
    fc.assert(
      fc.property(
        fc.array(value, { minLength: 1, maxLength: 80 }),
        (values) => {
          const line = Buffer.from(
            `before${values.map(quoted).join(',')}after`,
          );
          const fields = new RowFields();
          expect(fields.scan(line, 6, line.length - 5)).toBe(values.length);
          expect(fields.texts()).toEqual(values);
        },
      ),
    );
  });

  test('gives a field without its quotes', () => {
    const line = Buffer.from('a,"",,"b,c"');
    const fields = new RowFields();
    expect(fields.scan(line, 0, line.length)).toBe(4);
    expect([0, 1, 2, 3].map((index) => fields.cell(index))).toEqual([
      'a',
      '',
      '',
      'b,c',
    ]);
    expect(fields.text(4)).toBe('');
    fields.scan(Buffer.from('x""y,"x""y"'), 0, 11);
    expect(fields.texts()).toEqual(['x""y', 'x"y']);
  });
});
