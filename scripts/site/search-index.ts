/**
 * The index that the search of the site reads. Each section of a page is a document of
 * its own, so that a result leads to the heading and not to the top of a long page.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import MiniSearch, { type Options } from 'minisearch';
import { ROOT } from '../steps.ts';
import type { FramedPage } from './layout.ts';
import { placeOf } from './places.ts';

/** What a search finds. */
export interface SearchDocument {
  /** The address below the site's folder, with the heading. */
  readonly id: string;
  /** The title of the page. */
  readonly page: string;
  readonly heading: string;
  readonly text: string;
}

/** What the index and the page need in common; it is written beside the index. */
export const SEARCH_OPTIONS: Options<SearchDocument> = {
  fields: ['heading', 'page', 'text'],
  storeFields: ['page', 'heading'],
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
    sections.map(({ id, level, heading, text }) => ({
      id: `${placeOf(chapter.path)}${level === 1 ? '' : `#${id}`}`,
      page: chapter.title,
      heading,
      text,
    })),
  );
}

/** @returns a script that sets SEARCH_INDEX: from a folder, a browser fetches no data */
export function indexScript(documents: readonly SearchDocument[]): string {
  const index = new MiniSearch(SEARCH_OPTIONS);
  index.addAll(documents);
  // As a string, since a browser parses JSON several times as fast as a script.
  const text = JSON.stringify({ options: SEARCH_OPTIONS, index });
  return `globalThis.SEARCH_INDEX = JSON.parse(${JSON.stringify(text)});\n`;
}

/** @returns the library as one script for browsers, with the terms that it comes under */
export function libraryScript(): string {
  const folder = join(ROOT, 'node_modules/minisearch');
  const terms = readFileSync(join(folder, 'LICENSE.txt'), 'utf8');
  const script = readFileSync(join(folder, 'dist/umd/index.js'), 'utf8');
  const withoutMap = script.replace(/^\/\/# sourceMappingURL=.*$/m, '');
  return `/*! MiniSearch\n${terms.trim()}\n*/\n${withoutMap.trimEnd()}\n`;
}
