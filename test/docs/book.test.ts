/** The docs read from start to end: every page has one place, and its foot says which. */
import { expect, test } from 'vitest';
import { readBook, withFoot } from '../../scripts/book.ts';
import { PAGES, readPage } from './pages.ts';

const BOOK = readBook();

test('the book has every page of docs/ once', () => {
  const paths = BOOK.map(({ path }) => path);
  expect(paths.length).toBeGreaterThan(30);
  expect(paths.filter((path, at) => paths.indexOf(path) !== at)).toEqual([]);
  expect(
    PAGES.filter((page) => page.startsWith('docs/') && !paths.includes(page)),
  ).toEqual([]);
});

test('the foot of each page links to the pages before and after it, as `npm run docs` writes it', () => {
  const drifted = BOOK.filter(
    ({ path }) => withFoot(readPage(path), path, BOOK) !== readPage(path),
  );
  expect(drifted).toEqual([]);
});

test('who follows the next links from the first page reads the whole book', () => {
  const read: string[] = [];
  let page: string | undefined = BOOK[0]?.path;
  while (page !== undefined && !read.includes(page)) {
    read.push(page);
    const [, next] =
      /Next: \[[^\]]*\]\(([^)]*)\)\n$/.exec(readPage(page)) ?? [];
    page =
      next === undefined
        ? undefined
        : new URL(next, `file:///${page}`).pathname.slice(1);
  }
  expect(read).toEqual(BOOK.map(({ path }) => path));
});

test('a page that has moved gets the links of its new place, and nothing else changes', () => {
  const [first, second, third] = BOOK;
  const before = withFoot('# Title\n\nText.\n', second?.path ?? '', BOOK);
  const moved = [first, third, second].filter((page) => page !== undefined);
  const after = withFoot(before, second?.path ?? '', moved);
  expect(before).toContain('Next: ');
  expect(after).not.toContain('Next: ');
  expect(after.startsWith('# Title\n\nText.\n\n---\n\n[All pages](')).toBe(
    true,
  );
});
