import { describe, expect, test } from 'vitest';
import { describeJudgement, isLie, judgeList } from './oracle.ts';
import type { ListTruth } from './start.ts';

const truth = (keys: string, gone = ''): ListTruth => ({
  rows: keys.split('').map((key, at) => ({
    key,
    age: key === '-' ? null : BigInt(Math.floor(at / 2)),
  })),
  ever: new Set((keys + gone).split('')),
});

const judge = (
  held: string,
  atStart: ListTruth,
  atEnd = atStart,
): ReturnType<typeof judgeList> =>
  judgeList({ held: held.split(''), atStart, atEnd });

describe('the oracle', () => {
  test('finds no fault where all rows are held in order, ties in any order', () => {
    expect(isLie(judge('abcdef', truth('abcdef')))).toBe(false);
    expect(isLie(judge('badcfe', truth('abcdef')))).toBe(false);
  });

  test('finds rows that are missing, foreign, repeated or misplaced', () => {
    expect(judge('abdef', truth('abcdef')).missing).toEqual(['c']);
    expect(judge('abcxdef', truth('abcdef')).foreign).toEqual(['x']);
    expect(judge('abccdef', truth('abcdef')).repeated).toEqual(['c']);
    expect(judge('cabdef', truth('abcdef')).misplaced).toEqual(['a', 'b']);
    for (const held of ['abdef', 'abcxdef', 'abccdef', 'cabdef'])
      expect(isLie(judge(held, truth('abcdef')))).toBe(true);
  });

  test('leaves the order alone where it cannot be known', () => {
    expect(isLie(judge('cabdef', truth('abcdef')), false)).toBe(false);
    expect(isLie(judge('-abcdef', truth('abcdef-')))).toBe(false);
  });

  test('asks for no row that came after the run began, and allows it', () => {
    expect(isLie(judge('abcd', truth('abcd'), truth('abcdef')))).toBe(false);
    expect(isLie(judge('abcdef', truth('abcd'), truth('abcdef')))).toBe(false);
  });

  test('asks for no row that is served no longer, and names it', () => {
    const judgement = judge('abcd', truth('abcd'), truth('cd', 'ab'));
    expect(isLie(judgement)).toBe(false);
    expect(judgement.departed).toEqual(['a', 'b']);
    expect(describeJudgement(judgement)).toBe('2 departed (a, b)');
  });
});
