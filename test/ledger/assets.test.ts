import { expect, test } from 'vitest';
import { parseAssets, unitsById } from '../../src/ledger/assets.ts';

const ID = 'ab'.repeat(32);
const ONE = { id: ID, symbol: 'USDT', decimals: 6 };

test('parseAssets returns the assets, with ids in canonical form', () => {
  const given = [
    { ...ONE, id: ID.toUpperCase() },
    { id: 'cd'.repeat(32), symbol: 'Zloty 2', decimals: 0 },
    { id: 'ef'.repeat(32), symbol: 'ETH', decimals: 38 },
  ];
  const read = parseAssets(JSON.stringify(given));
  expect(read).toEqual({ assets: [ONE, given[1], given[2]] });
  expect(unitsById([ONE]).get(ID)).toEqual(ONE);
  expect(parseAssets('[]')).toEqual({ assets: [] });
});

test.each<readonly [string, string, RegExp]>([
  ['no JSON', 'id,symbol', /^it is not JSON; give an array such as/],
  ['no array', '{}', /^it is not an array; give an array such as/],
  ['no object', '[7]', /^entry 1 is not an object; give/],
  [
    'an unknown field',
    JSON.stringify([{ ...ONE, decimal: 6 }]),
    /^entry 1 has the unknown field "decimal"; remove it/,
  ],
  [
    'an id twice',
    JSON.stringify([ONE, { ...ONE, id: ID.toUpperCase() }]),
    /^entry 2 has the id (?:ab){32} of an earlier one; remove one/,
  ],
  ['no id', JSON.stringify([{ ...ONE, id: 'network' }]), /^entry 1 has no id/],
  [
    'no symbol',
    JSON.stringify([{ ...ONE, symbol: '' }]),
    /has no symbol; give/,
  ],
  [
    'a blank symbol',
    JSON.stringify([{ ...ONE, symbol: ' ' }]),
    /has no symbol/,
  ],
  [
    'a symbol that steers a terminal',
    JSON.stringify([{ ...ONE, symbol: 'A\u001b[2J' }]),
    /has no symbol; give/,
  ],
  ...[-1, 39, 1.5, '6', null].map((decimals): [string, string, RegExp] => [
    `decimals ${JSON.stringify(decimals)}`,
    JSON.stringify([ONE, { ...ONE, id: 'cd'.repeat(32), decimals }]),
    /^entry 2 has no decimals from 0 to 38; give a whole number/,
  ]),
  ['no decimals', JSON.stringify([{ id: ID, symbol: 'A' }]), /no decimals/],
])('parseAssets refuses %s', (_, text, problem) => {
  expect(parseAssets(text)).toEqual({
    problem: expect.stringMatching(problem) as string,
  });
});
