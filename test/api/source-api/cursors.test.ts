import { randomBytes } from 'node:crypto';
import { fc } from '../../support/properties.ts';
import { describe, expect, test } from 'vitest';
import { Cursors } from '../../../src/api/source-api/cursors.ts';

const secret = randomBytes(32);
const cursors = new Cursors(secret, 'parties');
/** One cursor of a position, as it is written for a whole page. */
const position = fc
  .tuple(
    fc.integer({ min: 1, max: 999_999_999 }),
    fc.bigInt({ min: 0n, max: 10n ** 18n - 1n }),
  )
  .map(([epoch, pos]) => ({ epoch, pos: `${pos}` }));
const fields = fc.array(fc.stringMatching(/^[\w-]*$/), {
  minLength: 1,
  maxLength: 6,
});

describe('the cursors of the read API', () => {
  test('decode to what they were made from', () => {
    fc.assert(
      fc.property(fields, (given) => {
        expect(cursors.read(cursors.write(...given))).toEqual(given);
      }),
    );
  });

  test('need no escaping in a URL', () => {
    fc.assert(
      fc.property(fields, (given) => {
        expect(cursors.write(...given)).toMatch(/^[\w.-]+$/);
      }),
    );
  });

  test('are refused when a single character is changed, or some are cut off', () => {
    const letter = fc.constantFrom('A', 'b', '0', '9', '-', '_', '.', '');
    fc.assert(
      fc.property(
        fields,
        fc.nat(),
        letter,
        fc.boolean(),
        (given, at, other, isCut) => {
          const cursor = cursors.write(...given);
          const where = at % cursor.length;
          const forged =
            cursor.slice(0, where) +
            other +
            (isCut ? '' : cursor.slice(where + 1));
          expect(cursors.read(forged) === undefined).toBe(forged !== cursor);
        },
      ),
    );
  });

  test('of positions are written for a page at once, and decode to them', () => {
    fc.assert(
      fc.property(fc.array(position, { maxLength: 50 }), (given) => {
        const written = cursors.writePositions(given);
        expect(written.map((cursor) => cursors.read(cursor))).toEqual(
          given.map(({ epoch, pos }) => [`${epoch}`, pos]),
        );
        for (const cursor of written) expect(cursor).toMatch(/^[\w.-]+$/);
      }),
    );
  });

  test('of positions are refused when they are changed in any way', () => {
    const letter = fc.constantFrom('A', 'b', '0', '9', '-', '_', '.', '');
    fc.assert(
      fc.property(
        fc.array(position, { minLength: 1, maxLength: 3 }),
        fc.nat(),
        letter,
        fc.boolean(),
        (given, at, other, isInserted) => {
          const cursor = cursors.writePositions(given).at(-1) ?? '';
          const where = at % (cursor.length + 1);
          const forged =
            cursor.slice(0, where) +
            other +
            cursor.slice(isInserted ? where : where + 1);
          expect(cursors.read(forged) === undefined).toBe(forged !== cursor);
        },
      ),
    );
  });

  test('of positions are valid for one list of one mirror only', () => {
    const [cursor = ''] = cursors.writePositions([{ epoch: 1, pos: '1024' }]);
    expect(new Cursors(secret, 'checkpoints').read(cursor)).toBeUndefined();
    expect(
      new Cursors(randomBytes(32), 'parties').read(cursor),
    ).toBeUndefined();
    expect(new Cursors(secret, 'parties').read(cursor)).toEqual(['1', '1024']);
  });

  test('of positions are valid in their own form only', () => {
    const [cursor = ''] = cursors.writePositions([{ epoch: 1, pos: '1024' }]);
    const [, , signature = ''] = cursor.split('.');
    for (const other of [`01.1024.${signature}`, `1.01024.${signature}`])
      expect(cursors.read(other)).toBeUndefined();
  });

  test('are valid for one list of one mirror only', () => {
    const cursor = cursors.write('1', '1024');
    expect(new Cursors(secret, 'checkpoints').read(cursor)).toBeUndefined();
    expect(
      new Cursors(randomBytes(32), 'parties').read(cursor),
    ).toBeUndefined();
    expect(new Cursors(secret, 'parties').read(cursor)).toEqual(['1', '1024']);
  });

  test('refuse every text that is not a cursor', () => {
    const text = fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.base64String(),
      fc.constant('a'.repeat(100_000)),
    );
    fc.assert(
      fc.property(text, (given) => {
        expect(cursors.read(given)).toBeUndefined();
      }),
    );
  });
});
