import { fc } from '../../support/properties.ts';
import { expect, test } from 'vitest';
import { printable, truncate } from '../../../src/cli/output/format.ts';

test('printable text cannot steer the terminal', () => {
  expect(printable('a\u001B[2Jb\nc\u202Ed')).toBe('a·[2Jb·c·d');
  expect(printable('ünïcode ok')).toBe('ünïcode ok');
});

test('truncate keeps text within the width', () => {
  fc.assert(
    fc.property(
      fc.string(),
      fc.nat(20),
      (text, width) => truncate(text, width).length <= width,
    ),
  );
  expect(truncate('abcdef', 4)).toBe('abc…');
  expect(truncate('abcd', 4)).toBe('abcd');
});
