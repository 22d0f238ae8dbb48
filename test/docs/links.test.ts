/** Links between the pages, and the commands that their sentences name. */
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { helpOf } from '../support/printed.ts';
import { PAGES, readPage, ROOT } from './pages.ts';

/** As GitHub makes it of a heading. */
function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
    .replaceAll(' ', '-');
}

function anchorsOf(page: string): Set<string> {
  const text = readPage(page).replaceAll(/^ *```.*?^ *```/gms, '');
  return new Set(
    [...text.matchAll(/^#+ (.*)$/gm)].map(([, heading = '']) =>
      anchorOf(heading),
    ),
  );
}

const LINKS = PAGES.flatMap((page) =>
  [...readPage(page).matchAll(/\]\((?!https?:)([^)\s]+)\)/g)].map(
    ([, link = '']) => {
      const [path = '', anchor] = link.split('#');
      return {
        page,
        link,
        target: path === '' ? page : join(dirname(page), path),
        anchor,
      };
    },
  ),
);

test('every link of the docs leads to a file and a heading that exist', () => {
  const broken = LINKS.filter(
    ({ target, anchor }) =>
      !existsSync(join(ROOT, target)) ||
      (anchor !== undefined && !anchorsOf(target).has(anchor)),
  );
  expect(LINKS.length).toBeGreaterThan(100);
  expect(LINKS.some(({ anchor }) => anchor !== undefined)).toBe(true);
  expect(broken).toEqual([]);
});

test('every page can be reached from README', () => {
  const reached = new Set(['README.md']);
  for (const page of reached)
    for (const link of LINKS)
      if (link.page === page && link.target.endsWith('.md'))
        reached.add(link.target);
  expect(PAGES.filter((page) => !reached.has(page))).toEqual([]);
});

describe('a command in a sentence', () => {
  const inline = PAGES.flatMap((page) =>
    [
      ...readPage(page).matchAll(
        /`(?:[A-Z_]+=\S+ )?(?:npx )?ledger-mirror ([a-z]+)([^`]*)`/g,
      ),
    ].map(([, command = '', rest = '']) => ({
      page,
      command,
      flags: rest.match(/--[a-z-]+/g) ?? [],
    })),
  );

  test.each([...new Set(inline.map(({ command }) => command))])(
    '%s takes the options that it is shown with',
    async (command) => {
      const help = await helpOf(command);
      expect(help).toContain(`Usage: ledger-mirror ${command}`);
      const shown = inline
        .filter((one) => one.command === command)
        .flatMap(({ flags }) => flags);
      expect(
        shown.filter(
          (flag) => !help.includes(`${flag} `) && !help.includes(`${flag}\n`),
        ),
      ).toEqual([]);
    },
  );
});
