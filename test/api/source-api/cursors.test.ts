import { randomBytes } from 'node:crypto';
import { fc } from '../../support/properties.ts';
import { describe, expect, test } from 'vitest';
import { Cursors } from '../../../src/api/source-api/cursors.ts';

const secret = randomBytes(32);
const cursors = new Cursors(secret, 'parties');
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
