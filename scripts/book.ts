/**
 * The order of the docs. `docs/README.md` is its only source: the pages are read in the
 * order in which it links to them. A page that is itself a list of pages, like that of
 * the decisions, is followed by the pages that it links to.
 */
import { readFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import { ROOT } from './steps.ts';

export interface Chapter {
  /** The page's path from the root of the repository. */
  readonly path: string;
  readonly title: string;
  /**
   * The heading in the contents under which the page is listed, like "Run it". For the
   * contents page itself, it is ''.
   */
  readonly part: string;
}

/** The first page, which is also the table of contents. */
const CONTENTS = 'docs/README.md';
/** Lists of pages; in the book, the listed pages follow right after their list. */
const LISTS = ['docs/decisions/README.md'];
/** The rule and the line of links at the foot of a page. */
const FOOT = /\n+---\n\n\[All pages\]\([^)]*\)[^\n]*\n*$/;

/**
 * @returns every page of the book, in reading order
 */
export function readBook(): Chapter[] {
  return [
    { path: CONTENTS, title: titleOf(readFromRoot(CONTENTS)), part: '' },
    ...partsOf(readFromRoot(CONTENTS)).flatMap(({ part, text }) =>
      pagesLinkedFrom(CONTENTS, text).map((path) => ({
        path,
        title: titleOf(readFromRoot(path)),
        part,
      })),
    ),
  ];
}

/** @returns the page with the links to its neighbours at its foot */
export function withFoot(
  text: string,
  path: string,
  book: readonly Chapter[],
): string {
  const place = book.findIndex((chapter) => chapter.path === path);
  const links = [
    linkFrom(path, 'All pages', CONTENTS),
    ...neighbour(path, 'Previous', book[place - 1]),
    ...neighbour(path, 'Next', book[place + 1]),
  ];
  return `${withoutFoot(text)}\n\n---\n\n${links.join(' · ')}\n`;
}

/** @returns the page without the links at its foot, and without a line end */
export function withoutFoot(text: string): string {
  return text.replace(FOOT, '').trimEnd();
}

/** @returns the heading of the first level */
function titleOf(text: string): string {
  const [, title = ''] = /^# (.*)$/m.exec(text) ?? [];
  return title.replaceAll('`', '');
}

/**
 * @returns the text under each heading of the second level, and the text before the
 *   first heading
 */
function partsOf(text: string): { part: string; text: string }[] {
  return withoutFoot(text)
    .split(/^(?=## )/m)
    .map((section) => {
      const [, part = ''] = /^## (.*)$/m.exec(section) ?? [];
      return { part, text: section };
    });
}

function pagesLinkedFrom(page: string, text: string): string[] {
  return [...withoutFoot(text).matchAll(/\]\(([^):#]+\.md)\)/g)].flatMap(
    ([, link = '']) => {
      const path = posix.join(posix.dirname(page), link);
      return LISTS.includes(path)
        ? [path, ...pagesLinkedFrom(path, readFromRoot(path))]
        : [path];
    },
  );
}

function neighbour(
  from: string,
  word: string,
  chapter: Chapter | undefined,
): string[] {
  return chapter === undefined
    ? []
    : [`${word}: ${linkFrom(from, chapter.title, chapter.path)}`];
}

function linkFrom(from: string, title: string, to: string): string {
  return `[${title}](${posix.relative(posix.dirname(from), to)})`;
}

function readFromRoot(path: string): string {
  return readFileSync(join(ROOT, path), 'utf8');
}
