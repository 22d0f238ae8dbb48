/** Which figures of a result share a unit: what a stranger's queries call them. */
import { expect, test } from 'vitest';
import { unitColumns } from '../../../src/lake/query/chart-units.ts';

test.each([
  [
    'the ready question holders',
    ['month', 'asset_id', 'holders'],
    ['asset_id'],
  ],
  ['its amounts', ['month', 'asset_id', 'held'], ['asset_id']],
  ['a sum without a name', ['asset_id', 'sum(quantity)'], ['asset_id']],
  ['an alias', ['day', 'asset', 'total'], ['asset']],
  ['a symbol from a join', ['symbol', 'day', 'volume'], ['symbol']],
  ['both', ['asset_id', 'symbol', 'n'], ['asset_id', 'symbol']],
  [
    'a count of parties',
    ['asset_id', 'count(DISTINCT party_id)'],
    ['asset_id'],
  ],
  ['capitals', ['ASSET_ID', 'QUANTITY'], ['ASSET_ID']],
  ['a count of rows', ['asset_id', 'count_star()'], []],
  ['a count of values', ['asset_id', 'count(quantity)'], []],
  ['entries', ['month', 'asset_id', 'entries'], []],
  ['a result without assets', ['month', 'quantity'], []],
] as const)('the unit of %s', (_, names, expected) => {
  expect(unitColumns(names, names.at(-1) ?? '')).toEqual(expected);
});
