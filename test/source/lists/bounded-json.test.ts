import { fc } from '../../support/properties.ts';
import { describe, expect, test } from 'vitest';
import { findExcess } from '../../../src/source/lists/page.ts';

const BOUNDS = { depthMax: 4, valuesMax: 20 };

function excessOf(json: string): string | undefined {
  return findExcess(Buffer.from(json), BOUNDS);
}

describe('the bounds of JSON from outside', () => {
  test('accept what is as deep and as wide as allowed', () => {
    expect(excessOf('[[[[]]]]')).toBeUndefined();
    expect(
      excessOf(`[${Array.from({ length: 20 }, () => 1).join(',')}]`),
    ).toBeUndefined();
  });

  test.each([
    ['arrays', '['.repeat(5)],
    ['objects', '{"a":'.repeat(5)],
    ['both', '[{"a":[{"b":[1]}]}]'],
  ])('refuse %s that lie deeper than allowed, closed or not', (_what, json) => {
    expect(excessOf(json)).toMatch(/nested more than/);
  });

  test.each([
    ['numbers', `[${'1,'.repeat(20)}1]`],
    ['empty objects', `[${'{},'.repeat(11)}{}]`],
    ['members', `{${'"a":1,'.repeat(20)}"a":1}`],
  ])('refuse more %s than allowed', (_what, json) => {
    expect(excessOf(json)).toMatch(/more than 20 values/);
  });

  test('count nothing inside a string, however it is escaped', () => {
    expect(
      excessOf(
        JSON.stringify([
          '[[[[[[{{{{{{',
          ',,,,,,,,,,,,,,,,,,,,,,,',
          '\\"[[[[[',
          '\\',
        ]),
      ),
    ).toBeUndefined();
    expect(excessOf('["never closed [[[[[[[[[[')).toBeUndefined();
  });

  test('stop at the excess: what follows is not read', () => {
    const json = Buffer.concat([Buffer.from('['.repeat(5)), Buffer.alloc(8)]);
    const seen: number[] = [];
    const watched = new Proxy(json, {
      get: (target, name) => {
        if (typeof name === 'string' && /^\d+$/.test(name))
          seen.push(Number(name));
        return Reflect.get(target, name) as unknown;
      },
    });
    expect(findExcess(watched, BOUNDS)).toBeDefined();
    expect(Math.max(...seen)).toBe(4);
  });

  test('agree with what JSON.parse finds, for every JSON there is', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 6 }), (value) => {
        const depth = depthOf(value);
        const values = valuesOf(value);
        const json = Buffer.from(JSON.stringify(value));
        expect(
          findExcess(json, { depthMax: depth, valuesMax: values }),
        ).toBeUndefined();
        const shallower = findExcess(json, {
          depthMax: depth - 1,
          valuesMax: values,
        });
        expect(shallower === undefined).toBe(depth === 0);
      }),
    );
  });
});

function membersOf(value: unknown): readonly unknown[] | undefined {
  return typeof value === 'object' && value !== null
    ? Object.values(value)
    : undefined;
}

function depthOf(value: unknown): number {
  const members = membersOf(value);
  return members === undefined ? 0 : 1 + Math.max(0, ...members.map(depthOf));
}

function valuesOf(value: unknown): number {
  const members = membersOf(value);
  if (members === undefined) return 0;
  return (
    Math.max(1, members.length) +
    members.reduce<number>((sum, member) => sum + valuesOf(member), 0)
  );
}
