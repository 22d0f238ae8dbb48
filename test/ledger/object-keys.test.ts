import { describe, expect, test } from 'vitest';
import { parseInstant } from '../../src/time/time.ts';
import {
  checkKey,
  checkPrefix,
  compressionOf,
  manifestKey,
  segmentKey,
} from '../../src/ledger/object-keys.ts';

const name = {
  partyId: 'a'.repeat(64),
  from: parseInstant('2023-05-10T00:00:00Z') ?? 0n,
  to: parseInstant('2023-05-11T00:00:00Z') ?? 0n,
  sha256: '0123456789abcdef'.repeat(4),
  compression: 'zstd',
} as const;

describe('object keys', () => {
  test('have the documented form', () => {
    const key = segmentKey(name);
    expect(key).toBe(
      `ledger/party=${'a'.repeat(64)}/asset=all/20230510T000000Z_20230511T000000Z.0123456789ab.csv.zst`,
    );
    expect(manifestKey(key)).toBe(`${key}.manifest.json`);
    expect(
      segmentKey({ ...name, assetId: 'fBTC', compression: 'none' }),
    ).toMatch(/asset=fBTC\/.*\.csv$/);
  });

  test.each([
    '',
    '/etc/passwd',
    '../x',
    'a/../b',
    'a//b',
    '.spool/x',
    'a/.b',
    'a\\b',
    'a b',
    `a${'b'.repeat(1024)}`,
  ])('refuse %j', (key) => {
    expect(() => checkKey(key)).toThrow(
      expect.objectContaining({ code: 'OBJECT_KEY_INVALID' }),
    );
  });

  test('are listed by prefixes that end anywhere', () => {
    expect(['', 'ledger/', 'ledger/party=ab'].map(checkPrefix)).toEqual([
      '',
      'ledger/',
      'ledger/party=ab',
    ]);
    expect(() => checkPrefix('../')).toThrow(
      expect.objectContaining({ code: 'OBJECT_KEY_INVALID' }),
    );
  });

  test('tell the compression of their object', () => {
    for (const compression of ['zstd', 'gzip', 'none'] as const) {
      expect(compressionOf(segmentKey({ ...name, compression }))).toBe(
        compression,
      );
    }
  });
});
