import { readFile } from 'node:fs/promises';
import { describe, expect, test } from 'vitest';
import { LAKE_TABLES } from '../../../src/lake/tables/columns.ts';
import { SHAPES } from '../../../src/lake/tables/tables.ts';

describe('the data dictionary', () => {
  test('the data dictionary names exactly the columns, types and comments that the tables of the lake carry', async () => {
    const page = await readFile(
      new URL('../../../docs/data-dictionary.md', import.meta.url),
      'utf8',
    );
    const sections = page
      .slice(page.indexOf('\n## The lake'))
      .split('\n### `')
      .slice(1);
    const documented = sections.map((section) => ({
      table: section.slice(0, section.indexOf('`')),
      columns: [
        ...section.matchAll(/^\| `(\w+)` \| ([^|]+?) \| ([^|]+?) \|$/gm),
      ].map((match) => match.slice(1).join(' | ')),
    }));
    expect(documented).toEqual(
      LAKE_TABLES.map((table) => {
        const { columns, isWhole } = SHAPES[table];
        const own = columns.map(
          ({ name, type, comment }) => `${name} | ${type} | ${comment}`,
        );
        const month =
          'month | VARCHAR | Month of vega_time in UTC, e.g. 2023-05; the partition column';
        return { table, columns: isWhole ? own : [...own, month] };
      }),
    );
  });
});
