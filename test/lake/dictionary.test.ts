import { readFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { SUMMARIES, SUMMARY_TABLES } from '../../src/lake/summaries.ts';

it('the data dictionary names exactly the columns and types of the summaries', async () => {
  const page = await readFile(new URL('../../docs/data-dictionary.md', import.meta.url), 'utf8');
  const sections = page.slice(page.indexOf('\n## The lake')).split('\n### `').slice(1);
  const documented = sections.map((section) => ({
    table: section.slice(0, section.indexOf('`')),
    columns: [...section.matchAll(/^\| `(\w+)` \| ([^|]+?) \|/gm)].map(([, name, type]) => `${name} ${type}`),
  }));
  expect(documented).toEqual(
    SUMMARY_TABLES.map((table) => ({
      table,
      columns: ['month VARCHAR', ...SUMMARIES[table].columns.map(({ name, type }) => `${name} ${type}`)],
    })),
  );
});
