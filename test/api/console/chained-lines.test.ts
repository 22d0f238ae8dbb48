/** The order of the entries of one block in an account statement. */
import { expect, test } from 'vitest';
import { chainLines } from '../../../src/api/console/chained-lines.ts';

const ACCOUNT = { assetId: 'a', accountType: 'GENERAL', marketId: null };
const BIG = 10n ** 40n;

function line(
  change: bigint | number,
  balance: bigint | number | null,
  at = '2026-02-03T10:00:00Z',
): Parameters<typeof chainLines>[0][number] {
  return {
    ...ACCOUNT,
    at,
    transferType: null,
    counterpartyId: null,
    change: String(change),
    balance: balance === null ? null : String(balance),
  };
}

function balancesOf(
  lines: Parameters<typeof chainLines>[0],
  opening: readonly string[] = [],
): readonly (string | null)[] {
  return chainLines(lines, [{ ...ACCOUNT, opening }]).map(
    ({ balance }) => balance,
  );
}

test('entries of a block follow each other by their balances, of any length', () => {
  const lines = [line(-1, BIG), line(5, BIG + 4n), line(-3, BIG + 1n)];
  expect(balancesOf(lines, [`${BIG - 1n}`])).toEqual(
    [BIG + 4n, BIG + 1n, BIG].map(String),
  );
});

test('a block that ends as it began starts with the balance of the row before', () => {
  const later = '2026-02-03T10:00:01Z';
  const lines = [line(70, 70), line(-70, 0, later), line(70, 70, later)];
  expect(balancesOf(lines)).toEqual(['70', '0', '70']);
  expect(balancesOf([line(-70, 0), line(70, 70)], ['0'])).toEqual(['70', '0']);
});

test('a round trip within a block is walked before the block is left', () => {
  const lines = [line(10, 20), line(-5, 5), line(5, 10)];
  expect(balancesOf(lines, ['10'])).toEqual(['5', '10', '20']);
});

test('entries that no walk connects, and those without a balance, are all kept', () => {
  const lines = [line(1, null), line(10, 1_010), line(5, 5), line(2, 7)];
  expect(balancesOf(lines, ['0'])).toEqual(['1010', '5', '7', null]);
});
