/**
 * The index for the site's search. Each section of a page is a document of its own, so
 * that a result leads to the heading or the row of a table, and not to the top of a long
 * page.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import MiniSearch, { type Options } from 'minisearch';
import { ROOT } from '../steps.ts';
import type { FramedPage } from './layout.ts';
import type { Section } from './markdown.ts';
import { placeOf } from './places.ts';

/** What a search finds. */
export interface SearchDocument {
  /** The address below the site's folder, with the id of the section. */
  readonly id: string;
  /** The title of the page. */
  readonly page: string;
  readonly heading: string;
  /** Where the section is, for readers: the page, and the heading of a row. */
  readonly place: string;
  readonly text: string;
}

/**
 * The options that the index and the page must share; they are written next to the index.
 */
export const SEARCH_OPTIONS: Options<SearchDocument> = {
  fields: ['heading', 'page', 'text'],
  storeFields: ['heading', 'place'],
  searchOptions: {
    boost: { heading: 4, page: 2 },
    combineWith: 'AND',
    prefix: true,
    fuzzy: 0.2,
  },
};

export function searchDocuments(
  pages: readonly FramedPage[],
): SearchDocument[] {
  return pages.flatMap(({ chapter, sections }) =>
    sections.map((section) => ({
      id: `${placeOf(chapter.path)}${section.level === 1 ? '' : `#${section.id}`}`,
      page: chapter.title,
      heading: section.heading,
      place: whereItStands(section, chapter.title),
      text: section.text,
    })),
  );
}

function whereItStands({ level, below }: Section, page: string): string {
  if (level === 1) return '';
  return below === '' || below === page ? page : `${page}: ${below}`;
}

/**
 * @returns a script that sets SEARCH_INDEX, because a browser fetches no data from a
 *   folder
 */
export function indexScript(documents: readonly SearchDocument[]): string {
  const index = new MiniSearch(SEARCH_OPTIONS);
  index.addAll(documents);
  // A string, because a browser parses JSON several times as fast as a script.
  const text = JSON.stringify({ options: SEARCH_OPTIONS, index });
  return `globalThis.SEARCH_INDEX = JSON.parse(${JSON.stringify(text)});\n`;
}

/**
 * @returns the library as one script for browsers, with its licence terms
 */
export function libraryScript(): string {
  const folder = join(ROOT, 'node_modules/minisearch');
  const terms = readFileSync(join(folder, 'LICENSE.txt'), 'utf8');
  const script = readFileSync(join(folder, 'dist/umd/index.js'), 'utf8');
  const withoutMap = script.replace(/^\/\/# sourceMappingURL=.*$/m, '');
  return `/*! MiniSearch\n${terms.trim()}\n*/\n${withoutMap.trimEnd()}\n`;
}
