// cspell:ignore SOURCE_ULR prty
import { expect, test } from 'vitest';
import { findMeant, findNear } from '../../src/errors/did-you-mean.ts';

test.each([
  ['SOURCE_ULR', ['SOURCE_RATE', 'SOURCE_URL'], 'SOURCE_URL'],
  ['Prty_Id', ['asset_id', 'party_id'], 'party_id'],
  // The nearest one, not the first that is near.
  ['entrees', ['entrants', 'entries', 'entree'], 'entries'],
  ['id', ['xy'], undefined],
  ['customers', ['parties'], undefined],
])('%s is near to the right name among %j', (name, known, near) => {
  expect(findNear(name, known)).toBe(near);
});

test('a name that is a part of a known one is meant for it, if none is near', () => {
  expect(findMeant('entry', ['parties', 'ledger_entries'])).toBe(
    'ledger_entries',
  );
  expect(findMeant('y', ['parties'])).toBeUndefined();
});
