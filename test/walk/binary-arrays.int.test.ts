/** Arrays in Postgres's binary form arrive as they were. */
import { Pool } from 'pg';
import { afterAll, expect, test } from 'vitest';
import { parseInstant } from '../../src/core/time.ts';
import { instantArray, int8Array, textArray } from '../../src/walk/store/binary-arrays.ts';
import { serviceUrl } from '../support/services.ts';

const pool = new Pool({ connectionString: await serviceUrl('postgres'), options: '-c TimeZone=UTC' });
afterAll(() => pool.end());

async function arrived(array: Buffer, type: string): Promise<unknown> {
  const { rows } = await pool.query(`select $1::${type}[]::text[] as values`, [array]);
  return (rows[0] as { values: unknown }).values;
}

test('texts, also none', async () => {
  const values = ['a', '', 'quoted " \\ { } , null', 'größer ∅'];
  expect(await arrived(textArray(values), 'text')).toEqual(values);
  expect(await arrived(textArray([]), 'text')).toEqual([]);
});

test('whole numbers, also none', async () => {
  const values = [0n, -1n, 2n ** 63n - 1n, -(2n ** 63n)];
  expect(await arrived(int8Array(values), 'bigint')).toEqual(values.map(String));
  expect(await arrived(int8Array([]), 'bigint')).toEqual([]);
});

test('instants, to the microsecond, and none', async () => {
  const texts = ['1999-12-31 23:59:59.999999+00', null, '2023-05-01 10:00:00.123456+00'];
  const instants = texts.map((text) => (text === null ? null : (parseInstant(text) ?? null)));
  expect(await arrived(instantArray(instants), 'timestamptz')).toEqual(texts);
});
