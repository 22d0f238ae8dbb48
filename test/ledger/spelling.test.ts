import { describe, expect, it } from 'vitest';
import { ENTRY_COLUMNS, RowCanonicalizer } from '../../src/ledger/canonical.ts';
import { readHeader } from '../../src/ledger/header.ts';
import { RowFields } from '../../src/ledger/row-fields.ts';
import { Speller, SpellingProof } from '../../src/ledger/spelling.ts';
import { HEADER_12, HEADER_13 } from './csv.ts';

const [PARTY, ASSET] = ['ab'.repeat(32), 'c0'.repeat(32)];
const OLD = [
  `2023-05-01 10:00:00.5+00,1000,TRANSFER_TYPE_DEPOSIT,\\x${ASSET},\\x,\\x${PARTY},4,\\x,\\x03,10,5,6`,
  `2023-05-01 10:00:00+00,0,TRANSFER_TYPE_WIN,\\x${ASSET},\\x${ASSET},\\x${PARTY},3,\\x,\\x${PARTY},19,,6`,
] as const;
const NEW = [
  `2023-05-01 10:00:00.5+00,1000,-1000,TRANSFER_TYPE_DEPOSIT,${ASSET},"",${PARTY},GENERAL,5,"",network,EXTERNAL,6`,
] as const;

/** What was found of a CSV's rows, and the rows as they would be written by it. */
function spelled(header: string, rows: readonly string[], lineEnd = '\n'): readonly string[] | undefined {
  const layout = readHeader(Buffer.from(header));
  const [canonicalizer, proof, fields] = [
    new RowCanonicalizer(layout),
    new SpellingProof(layout),
    new RowFields(),
  ];
  const read = rows.map((row) => {
    const buffer = Buffer.from(`${row}${lineEnd}`);
    fields.scan(buffer, 0, row.length);
    const canonical = canonicalizer.read(fields, buffer, 0, row.length);
    proof.see(canonical, fields, buffer, 0, row.length);
    const values = Object.fromEntries(ENTRY_COLUMNS.map((name, place) => [name, canonical.values[place]]));
    return { ...values, effect: canonical.effect } as Parameters<Speller['line']>[0];
  });
  const found = proof.found();
  if (found === undefined) return undefined;
  const speller = new Speller(layout.columns, found);
  return read.map((row) => speller.line(row));
}

describe('rows with a proven spelling', () => {
  it.each([
    ['bytes and numbers', HEADER_12, OLD],
    ['words and names', HEADER_13, NEW],
  ])('are written as they were sent: %s', (_, header, rows) => {
    expect(spelled(header, rows)).toEqual(rows.map((row) => `${row}\n`));
  });

  it.each([
    ['two ways to write a fraction', HEADER_12, [...OLD, OLD[0].replace('.5+00', '.50+00')], '\n'],
    ['another time zone', HEADER_12, [OLD[0].replace('.5+00', '.5+02')], '\n'],
    ['ids in capitals', HEADER_12, [OLD[0].replace(PARTY, PARTY.toUpperCase())], '\n'],
    ['a number with a sign', HEADER_12, [OLD[0].replace(',1000,', ',+1000,')], '\n'],
    ['other line ends', HEADER_12, OLD, '\r\n'],
    ['an unknown column', `${HEADER_12},memo`, [`${OLD[0]},x`], '\n'],
    ['a number among names', HEADER_13, [...NEW, NEW[0].replace('GENERAL', '4')], '\n'],
  ])('are left alone where there is %s', (_, header, rows, lineEnd) => {
    expect(spelled(header, rows, lineEnd)).toBeUndefined();
  });
});
