import { describe, expect, test } from 'vitest';
import { RowFilter, type RowFinding } from '../../src/ledger/row-filter.ts';
import { readHeader } from '../../src/ledger/header.ts';
import { HEADER_12, HEADER_13 } from './csv.ts';
import {
  ASSET,
  ASSET_2,
  OTHER,
  PARTY,
  row12,
  row13,
} from '../exports/ledger-double.ts';

const time = '2023-05-01 10:00:00.5+00';

function finding(
  row: string,
  scope: { partyId?: string; assetId?: string } = {},
): RowFinding {
  const header = row.split(',').length === 13 ? HEADER_13 : HEADER_12;
  const filter = new RowFilter(
    { partyId: PARTY, ...scope },
    readHeader(Buffer.from(header)),
  );
  const bytes = Buffer.from(row);
  return filter.check(bytes, 0, bytes.length);
}

describe('RowFilter', () => {
  test('keeps only outgoing rows of the party with 12 columns', () => {
    expect(finding(row12({ time }))).toBe('ok');
    expect(finding(row12({ time, from: OTHER, to: PARTY }))).toBe('party');
  });

  test('keeps rows of either side with 13 columns', () => {
    expect(finding(row13({ time }))).toBe('ok');
    expect(finding(row13({ time, from: OTHER, to: PARTY }))).toBe('ok');
    expect(finding(row13({ time, from: OTHER, to: OTHER }))).toBe('party');
  });

  test('matches ids in every encoding and case', () => {
    expect(
      finding(row12({ time, from: PARTY.toUpperCase() }), { assetId: ASSET }),
    ).toBe('ok');
    expect(
      finding(row12({ time }).replace(`\\x${ASSET}`, `"${ASSET}"`), {
        assetId: ASSET,
      }),
    ).toBe('ok');
    expect(finding(row12({ time }), { assetId: ASSET_2 })).toBe('asset');
  });

  test('matches built-in assets as words or bytes', () => {
    expect(finding(row12({ time, asset: '09' }), { assetId: 'fBTC' })).toBe(
      'ok',
    );
    expect(finding(row13({ time, asset: 'fBTC' }), { assetId: 'fBTC' })).toBe(
      'ok',
    );
    expect(finding(row12({ time, asset: '0a' }), { assetId: 'fBTC' })).toBe(
      'asset',
    );
  });

  test('rejects a row of another width or without a time', () => {
    expect(finding(`${row12({ time })},1,2,3`)).toBe('fields');
    expect(finding(row12({ time: 'yesterday' }))).toBe('time');
  });

  test('rejects a row without an asset, however it is left out, as loading would', () => {
    expect(finding(row12({ time, asset: '' }))).toBe('value');
    expect(finding(row12({ time, asset: '' }).replace(',\\x,', ',,'))).toBe(
      'value',
    );
  });
});
