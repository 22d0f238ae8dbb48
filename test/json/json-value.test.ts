import { describe, expect, test } from 'vitest';
import { evidenceJson, toStorableJson } from '../../src/json/json-value.ts';

describe('evidence', () => {
  test('keeps the exact value of a bigint as decimal text', () => {
    expect(
      evidenceJson({ error: { meta: { byteOffset: 9_007_199_254_740_993n } } }),
    ).toBe('{"error":{"meta":{"byteOffset":"9007199254740993"}}}');
  });

  test('holds no NUL and no half of a surrogate pair, in names and in values', () => {
    expect(toStorableJson({ 'a\0b': ['x\0', '\ud800'] })).toEqual({
      'a\uFFFDb': ['x\uFFFD', '\uFFFD'],
    });
  });

  test('is JSON for whatever an error carries', () => {
    const circle: Record<string, unknown> = {};
    circle['self'] = circle;
    for (const value of [
      circle,
      { at: new Date(Number.NaN) },
      { n: Number.NaN },
      [undefined],
      undefined,
      () => 1,
    ]) {
      expect(JSON.parse(evidenceJson(value))).toBeDefined();
    }
  });

  test('of which a getter throws is its code alone', () => {
    const broken = {
      get value(): string {
        throw new Error('broken');
      },
    };
    expect(evidenceJson(broken)).toBe('{"code":"EVIDENCE_UNREADABLE"}');
  });
});
