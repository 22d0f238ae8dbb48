import { describe, expect, test } from 'vitest';
import { RetryableError } from '../../../src/errors/errors.ts';
import { gluedError } from '../../../src/ledger/answer/error-body.ts';

const MESSAGE =
  '{"error":{"code":13, "message":"Internal error", "details":[{"@type":"t","code":260002,"inner":"copying"}]}}';

describe('gluedError', () => {
  test.each(['', '2023-05-01 10:00:00+00,1', '2023-05-01 10:00:00+00,"half'])(
    'is found behind %j',
    (before) => {
      const error = gluedError(Buffer.from(before + MESSAGE), 1000n);
      expect(error).toBeInstanceOf(RetryableError);
      expect(error?.code).toBe('SOURCE_ERROR_IN_STREAM');
      expect(error?.meta).toMatchObject({
        code: 13,
        message: 'Internal error',
        byteOffset: 1000n + BigInt(before.length),
      });
    },
  );

  test('is found pretty-printed and cut off', () => {
    expect(
      gluedError(Buffer.from('x{\n "error" : {"code": 13'), 0n)?.meta,
    ).toEqual({
      byteOffset: 1n,
    });
  });

  test('is not seen in plain rows', () => {
    expect(
      gluedError(Buffer.from('2023-05-01 10:00:00+00,1,error'), 0n),
    ).toBeUndefined();
  });
});
