import { createHmac, hkdfSync, randomBytes } from 'node:crypto';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createCursors } from '../../src/api/cursors.ts';

const secret = randomBytes(32);
const cursors = createCursors(secret);
const party = fc.record({
  epoch: fc.integer({ min: 1, max: 1_000 }),
  pos: fc.oneof(fc.constant(null), fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n })),
});
const checkpoint = fc.record({
  epoch: fc.integer({ min: 1, max: 1_000 }),
  atBlock: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }).map(String),
  copy: fc.nat(),
  hash: fc.string({ unit: 'grapheme' }),
  blockHash: fc.string({ unit: 'grapheme' }),
});

describe('cursors', () => {
  it('give back the position that they were made of', () => {
    fc.assert(
      fc.property(party, (position) => {
        expect(cursors.parties.read(cursors.parties.write(position))).toEqual(position);
      }),
    );
    fc.assert(
      fc.property(checkpoint, (position) => {
        expect(cursors.checkpoints.read(cursors.checkpoints.write(position))).toEqual(position);
      }),
    );
  });

  it('need no escaping in a URL', () => {
    fc.assert(
      fc.property(checkpoint, (position) => {
        expect(cursors.checkpoints.write(position)).toMatch(/^[\w.-]+$/);
      }),
    );
  });

  it('are refused when a single character differs', () => {
    fc.assert(
      fc.property(
        party,
        fc.nat(),
        fc.constantFrom('A', 'z', '0', '9', '-', '_', '.'),
        (position, at, letter) => {
          const cursor = cursors.parties.write(position);
          const place = at % cursor.length;
          fc.pre(cursor[place] !== letter);
          const forged = cursor.slice(0, place) + letter + cursor.slice(place + 1);
          expect(cursors.parties.read(forged)).toBeUndefined();
        },
      ),
    );
  });

  it('are of one list and of one mirror', () => {
    const cursor = cursors.parties.write({ epoch: 1, pos: 1_024n });
    expect(cursors.checkpoints.read(cursor)).toBeUndefined();
    expect(createCursors(randomBytes(32)).parties.read(cursor)).toBeUndefined();
    expect(createCursors(secret).parties.read(cursor)).toEqual({ epoch: 1, pos: 1_024n });
  });

  it('are signed with a true HMAC', () => {
    const [body = '', signature] = cursors.parties.write({ epoch: 1, pos: 7n }).split('.');
    const key = Buffer.from(hkdfSync('sha256', secret, '', 'ledger-mirror cursors', 32)).toString('hex');
    expect(signature).toBe(createHmac('sha256', key).update(body).digest('base64url').slice(0, 22));
  });

  it('refuse any text that is no cursor', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        expect(cursors.parties.read(text)).toBeUndefined();
      }),
    );
  });
});
