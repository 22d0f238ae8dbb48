import { readFile } from 'node:fs/promises';
import { expect, test } from 'vitest';

test('the query engine is not loaded by a process that only loads, exports or serves', async () => {
  await import('../../../src/app/stages.ts');
  expect(await readFile('/proc/self/maps', 'utf8')).not.toContain('duckdb');
  await import('../../../src/lake/query/query.ts');
  expect(await readFile('/proc/self/maps', 'utf8')).toContain('duckdb');
});
