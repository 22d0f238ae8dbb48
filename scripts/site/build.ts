/** Writes the site: the pages, the files that they show or link to, and the search. */
import { cp, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { readBook, withoutFoot } from '../book.ts';
import { ROOT } from '../steps.ts';
import { type FramedPage, layOut, type Product } from './layout.ts';
import { renderPage } from './markdown.ts';
import { placeOf, repositoryAddress, type Site } from './places.ts';
import { indexScript, libraryScript, searchDocuments } from './search-index.ts';

const ASSETS = 'assets';
/**
 * A folder that contains this file was written by a build, so the next build may empty
 * it.
 */
const INDEX = join(ASSETS, 'search-index.js');

interface Package extends Product {
  readonly repository?: unknown;
}

/**
 * Replaces what an earlier build wrote.
 * @returns the number of pages
 * @throws Error if the folder contains anything else
 */
export async function buildSite(folder: string): Promise<number> {
  const product = JSON.parse(
    await readFile(join(ROOT, 'package.json'), 'utf8'),
  ) as Package;
  const book = readBook();
  const site: Site = {
    pages: new Set(book.map(({ path }) => path)),
    repository: repositoryAddress(product.repository),
  };
  const pages: FramedPage[] = [];
  const files = new Set<string>();
  for (const chapter of book) {
    const text = withoutFoot(await readFile(join(ROOT, chapter.path), 'utf8'));
    const rendered = renderPage(text, chapter.path, site);
    pages.push({ chapter, ...rendered });
    for (const file of rendered.files) files.add(file);
  }

  await emptyFolder(folder);
  await mkdir(join(folder, ASSETS), { recursive: true });
  await writeFile(join(folder, INDEX), indexScript(searchDocuments(pages)));
  await writeFile(join(folder, ASSETS, 'minisearch.js'), libraryScript());
  for (const name of ['search.js', 'site.css'])
    await cp(join(import.meta.dirname, name), join(folder, ASSETS, name));
  for (const page of pages) {
    const place = join(folder, placeOf(page.chapter.path));
    await mkdir(dirname(place), { recursive: true });
    await writeFile(place, layOut(page, book, product));
  }
  for (const file of files)
    await cp(join(ROOT, file), join(folder, placeOf(file)));
  return pages.length;
}

/**
 * Empties the folder if a build wrote it. A mistyped folder must not cost anybody their
 * files.
 */
async function emptyFolder(folder: string): Promise<void> {
  const names = await readdir(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return [];
    throw error;
  });
  const isOurs = await readFile(join(folder, INDEX)).then(
    () => true,
    () => false,
  );
  if (names.length > 0 && !isOurs)
    throw new Error(
      `Cannot write the site into ${folder}: it holds other files; name an empty folder`,
    );
  await rm(folder, { recursive: true, force: true });
}
