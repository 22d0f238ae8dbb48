import { createHmac, hkdfSync, randomBytes } from 'node:crypto';
import { fc } from '../support/properties.ts';
import { describe, expect, it } from 'vitest';
import { type CheckpointPosition, createCursors, type PartyPosition } from '../../src/api/service/cursors.ts';

const secret = randomBytes(32);
const { parties, checkpoints } = createCursors(secret);

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

function positionBytes(positions: readonly bigint[]): Buffer {
  const bytes = Buffer.alloc(8 * positions.length);
  positions.forEach((place, at) => bytes.writeBigInt64BE(place, 8 * at));
  return bytes;
}

function ofParty({ epoch, pos }: PartyPosition): string {
  return pos === null ? parties.ofNetwork(epoch) : parties.ofPositions(epoch, positionBytes([pos]))[0]!;
}

function ofCheckpoint(position: CheckpointPosition): string {
  return checkpoints.of(position);
}

describe('the cursors of the read API', () => {
  it('decode to the positions they were made from', () => {
    fc.assert(
      fc.property(fc.array(party), fc.array(checkpoint), (ofParties, ofCheckpoints) => {
        expect(ofParties.map((place) => parties.read(ofParty(place)))).toEqual(ofParties);
        expect(ofCheckpoints.map((row) => checkpoints.read(ofCheckpoint(row)))).toEqual(ofCheckpoints);
      }),
    );
  });

  it('of one page keep the order of its rows', () => {
    const place = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n });
    fc.assert(
      fc.property(fc.nat(1_000), fc.array(place), (epoch, positions) => {
        const cursors = parties.ofPositions(epoch, positionBytes(positions));
        expect(cursors).toEqual(positions.map((pos) => ofParty({ epoch, pos })));
      }),
    );
  });

  it('need no escaping in a URL', () => {
    fc.assert(
      fc.property(party, checkpoint, (place, row) => {
        expect(ofParty(place) + ofCheckpoint(row)).toMatch(/^[\w.-]+$/);
      }),
    );
  });

  it('are refused when a single character is changed', () => {
    const letter = fc.constantFrom('A', 'b', '0', '9', '-', '_', '.');
    fc.assert(
      fc.property(party, checkpoint, fc.nat(), letter, (place, row, at, other) => {
        for (const cursor of [ofParty(place), ofCheckpoint(row)]) {
          const where = at % cursor.length;
          const forged = cursor.slice(0, where) + other + cursor.slice(where + 1);
          const isForged = forged !== cursor;
          expect([parties.read(forged), checkpoints.read(forged)].every((read) => read === undefined)).toBe(
            isForged,
          );
        }
      }),
    );
  });

  it('are valid for one list of one mirror only', () => {
    const cursor = ofParty({ epoch: 1, pos: 1_024n });
    expect(checkpoints.read(cursor)).toBeUndefined();
    expect(createCursors(randomBytes(32)).parties.read(cursor)).toBeUndefined();
    expect(createCursors(secret).parties.read(cursor)).toEqual({ epoch: 1, pos: 1_024n });
  });

  it('of parties do not reveal the position', () => {
    const near = parties.ofPositions(1, positionBytes([1_024n, 2_048n]));
    expect(near[0]).toMatch(/^[0-9a-f]{32}$/);
    const same = near[0]!.split('').filter((character, at) => character === near[1]?.[at]);
    expect(same.length).toBeLessThan(16);
  });

  it('of checkpoints carry an HMAC', () => {
    const cursor = ofCheckpoint({ epoch: 1, atBlock: '7', copy: 0, hash: 'a', blockHash: 'b' });
    const [body = '', signature] = cursor.split('.');
    const key = Buffer.from(hkdfSync('sha256', secret, '', 'ledger-mirror cursors of checkpoints', 32));
    expect(signature).toBe(createHmac('sha256', key).update(body).digest('base64url').slice(0, 22));
  });

  it('refuse every text that is not a cursor', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string({ unit: 'binary' }), fc.base64String()), (text) => {
        expect([parties.read(text), checkpoints.read(text)]).toEqual([undefined, undefined]);
      }),
    );
  });
});
