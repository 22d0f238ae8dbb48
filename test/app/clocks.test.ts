/** What `doctor` says of clocks that agree, and of those that do not. */
import { expect, test } from 'vitest';
import { compareClocks } from '../../src/app/clocks.ts';

const near = (whose: string) => ({ whose, aheadMs: 900 });

test('clocks that agree are named, with how closely', () => {
  expect(
    compareClocks([near("the database's"), near("the source's")], undefined),
  ).toEqual({
    isRight: true,
    detail: "agrees with the database's and the source's to within 1 s",
  });
});

test('one clock that differs from all others is the wrong one', () => {
  expect(
    compareClocks(
      [
        near("the database's"),
        { whose: "the source's", aheadMs: -300_000 },
        near("the object store's"),
      ],
      undefined,
    ),
  ).toEqual({
    isRight: false,
    detail:
      "the source's clock is 300 s behind this machine's, which agrees with the " +
      "database's and the object store's; set it by NTP",
  });
});

test('a machine that differs from every other clock is the wrong one', () => {
  const others = ["the database's", "the source's"].map((whose) => ({
    whose,
    aheadMs: 120_000,
  }));
  expect(compareClocks(others, undefined)).toEqual({
    isRight: false,
    detail:
      "this machine's clock differs: the database's is 120 s ahead of it, the " +
      "source's is 120 s ahead of it; set it by NTP",
  });
});

test('a single other clock that differs leaves open which of both is wrong', () => {
  const database = { whose: "the database's", aheadMs: 61_000 };
  expect(compareClocks([database], undefined)).toEqual({
    isRight: false,
    detail:
      "this machine's clock differs: the database's is 61 s ahead of it; set " +
      'both by NTP',
  });
});

test('a head of the source beside right clocks tells that the source is not advancing', () => {
  const others = [near("the database's"), near("the source's")];
  expect(compareClocks(others, -900_000).detail).toBe(
    "the source's last block is 900 s old, and the clocks agree: the source " +
      'is not advancing',
  );
  expect(compareClocks(others, -900_000).isRight).toBe(false);
  expect(compareClocks([near("the database's")], -900_000).detail).toBe(
    "the source's last block is 900 s old: it is not advancing, or this machine's " +
      'clock is fast',
  );
  expect(compareClocks(others, 90_000).detail).toBe(
    "the source's last block is 90 s ahead of this machine's clock; set it by NTP",
  );
});
