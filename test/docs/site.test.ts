/** The docs as a static site: what `npm run site` writes, read without a browser. */
import {
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, posix } from 'node:path';
import { runInNewContext } from 'node:vm';
import type MiniSearch from 'minisearch';
import type { Options, Query } from 'minisearch';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readBook } from '../../scripts/book.ts';
import { buildSite } from '../../scripts/site/build.ts';
import { renderPage } from '../../scripts/site/markdown.ts';
import {
  placeOf,
  repositoryAddress,
  type Site,
} from '../../scripts/site/places.ts';
import type { SearchDocument } from '../../scripts/site/search-index.ts';

const BOOK = readBook();
const NOWHERE: Site = {
  pages: new Set(['docs/api.md']),
  repository: undefined,
};

let parent = '';
let folder = '';
/** The files of the site: pages with their HTML, the others with ''. */
const files = new Map<string, string>();

beforeAll(async () => {
  parent = await mkdtemp(join(tmpdir(), 'ledger-mirror-site-'));
  folder = join(parent, 'site');
  await buildSite(folder);
  const entries = await readdir(folder, {
    recursive: true,
    withFileTypes: true,
  });
  for (const entry of entries.filter((one) => one.isFile())) {
    const path = join(entry.parentPath, entry.name);
    const text = path.endsWith('.html') ? await readFile(path, 'utf8') : '';
    files.set(path.slice(folder.length + 1), text);
  }
});

afterAll(() => rm(parent, { recursive: true, force: true }));

test('the site has each page of the book, with links to the one before and after it', () => {
  const written = [...files.keys()].filter((name) => name.endsWith('.html'));
  expect(written.toSorted()).toEqual(
    BOOK.map(({ path }) => placeOf(path)).toSorted(),
  );
  const neighbours = BOOK.map(({ path }) =>
    ['prev', 'next'].map((rel) => {
      const [, href] =
        new RegExp(`href="([^"]+)" rel="${rel}"`).exec(htmlOf(path)) ?? [];
      return href && placeFrom(placeOf(path), href);
    }),
  );
  expect(neighbours).toEqual(
    BOOK.map((_, place) =>
      [BOOK[place - 1], BOOK[place + 1]].map(
        (chapter) => chapter && placeOf(chapter.path),
      ),
    ),
  );
});

test('every link of the site leads to a file and an id that exist', () => {
  const links = linksOf().filter(({ link }) => !link.includes(':'));
  const broken = links.filter(({ page, link }) => !exists(page, link));
  expect(links.length).toBeGreaterThan(1000);
  expect(links.some(({ link }) => link.includes('#'))).toBe(true);
  expect(broken).toEqual([]);
});

test('no two files of the site differ only in case, which some file systems ignore', () => {
  const names = [...files.keys()].map((name) => name.toLowerCase());
  expect(names.filter((name, at) => names.indexOf(name) !== at)).toEqual([]);
});

test('an id stands once on a page', () => {
  const repeated = [...files].flatMap(([page, html]) =>
    idsOf(html)
      .filter((id, at, ids) => ids.indexOf(id) !== at)
      .map((id) => `${page}#${id}`),
  );
  expect(repeated).toEqual([]);
});

test('a page loads nothing from another host', () => {
  const loaded = [...files.values()].flatMap((html) => [
    ...html.matchAll(/<(?:script|link|img)\b[^>]*?(?:src|href)="([^"]*)"/g),
  ]);
  const foreign = loaded
    .map(([, address = '']) => address)
    .filter((address) => /^(?:[a-z]+:|\/)/.test(address));
  expect(loaded.length).toBeGreaterThan(BOOK.length);
  expect([...new Set(foreign)]).toEqual(['data:,']);
});

test('the search finds a section by a word of its text, and by the beginning of a word', async () => {
  const { index } = await openIndex();
  const [best] = index.search('rotate a token');
  expect(best?.id).toBe('guides/rotate-a-token.html');
  const [setting] = index.search('SOURCE_EXPORT_CONCURRENCY');
  expect(setting?.id).toBe('configuration.html#row-source_export_concurrency');
  const terms = index.search('fresh').flatMap((result) => result.terms);
  expect(terms).toContain('freshness');
  expect(index.search('quarantine zyzzyva')).toEqual([]);
});

test('every result that the search can show leads to a section of the site', async () => {
  const { index, everything } = await openIndex();
  const results = index.search(everything);
  expect(results.length).toBe(index.documentCount);
  expect(
    results.filter(({ id }) => !exists('index.html', id as string)),
  ).toEqual([]);
});

test('a later build replaces the site, and leaves nothing of the earlier one', async () => {
  const own = join(parent, 'twice');
  await buildSite(own);
  await writeFile(join(own, 'removed.html'), 'a page of an earlier book');
  await buildSite(own);
  expect(await readdir(own)).not.toContain('removed.html');
});

test('buildSite refuses a folder with other files and keeps them', async () => {
  const other = join(parent, 'other');
  await mkdir(other);
  await writeFile(join(other, 'thesis.txt'), 'mine');
  await expect(buildSite(other)).rejects.toThrow(
    'it holds other files; name an empty folder',
  );
  expect(await readFile(join(other, 'thesis.txt'), 'utf8')).toBe('mine');
});

describe('a link that leaves the docs', () => {
  const TEXT =
    '[The units](../deploy/systemd), [the lock](../package-lock.json#L1).';

  test('is shown as the path if nobody knows where the repository is', () => {
    expect(renderPage(TEXT, 'docs/api.md', NOWHERE).html).toBe(
      '<p>The units (<code>deploy/systemd</code>), the lock (<code>package-lock.json</code>).</p>\n',
    );
  });

  test('leads to the repository that package.json names', () => {
    const site = { ...NOWHERE, repository: 'https://git.example.com/a/b' };
    expect(renderPage(TEXT, 'docs/api.md', site).html).toBe(
      '<p><a href="https://git.example.com/a/b/tree/HEAD/deploy/systemd">The units</a>, ' +
        '<a href="https://git.example.com/a/b/blob/HEAD/package-lock.json#L1">the lock</a>.</p>\n',
    );
  });

  test.each([
    ['https://git.example.com/a/b', 'https://git.example.com/a/b'],
    [
      { type: 'git', url: 'git+https://git.example.com/a/b.git' },
      'https://git.example.com/a/b',
    ],
    [{ url: 'git@git.example.com:a/b.git' }, undefined],
    [undefined, undefined],
  ])('finds the repository %j at %s', (repository, address) => {
    expect(repositoryAddress(repository)).toBe(address);
  });
});

test('headings with the same words get ids of their own, as GitHub numbers them', () => {
  const text =
    '# A page\n\n## The `same`, twice\n\nOne.\n\n## The same, twice\n';
  const { sections, html } = renderPage(text, 'docs/api.md', NOWHERE);
  const below = '';
  expect(sections).toEqual([
    { id: 'a-page', level: 1, heading: 'A page', below, text: '' },
    {
      id: 'the-same-twice',
      level: 2,
      heading: 'The same, twice',
      below,
      text: 'One.\n',
    },
    {
      id: 'the-same-twice-1',
      level: 2,
      heading: 'The same, twice',
      below,
      text: '',
    },
  ]);
  expect(idsOf(html)).toEqual(sections.map(({ id }) => id));
});

test('a row that begins with a name in code is a section of its own', () => {
  const { sections, html } = renderPage(
    '# Codes\n\n| code | means |\n|---|---|\n| `GONE` (rare) | lost |\n| other | more |\n\nThe end.\n',
    'docs/api.md',
    NOWHERE,
  );
  expect(sections).toEqual([
    {
      id: 'codes',
      level: 1,
      heading: 'Codes',
      below: '',
      text: 'code\nmeans\nother\nmore\nThe end.\n',
    },
    {
      id: 'row-gone-rare',
      level: 'row',
      heading: 'GONE (rare)',
      below: 'Codes',
      text: 'GONE (rare)\nlost\n',
    },
  ]);
  expect(html).toContain('<tr id="row-gone-rare">\n<td><code>GONE</code>');
});

test('the text of a page is not read as HTML', () => {
  const { html } = renderPage(
    '# `<b>` & <script>\n\n```sh\ncat <file>\n```\n',
    'docs/api.md',
    NOWHERE,
  );
  expect(html).toBe(
    '<h1 id="b--script"><code>&lt;b&gt;</code> &amp; &lt;script&gt;</h1>\n' +
      '<pre tabindex="0"><code>cat &lt;file&gt;\n</code></pre>\n',
  );
});

function htmlOf(path: string): string {
  return files.get(placeOf(path)) ?? '';
}

/** @returns what a page names in href and src */
function linksOf(): { page: string; link: string }[] {
  return [...files].flatMap(([page, html]) =>
    [...html.matchAll(/ (?:href|src)="([^"]*)"/g)].map(([, link = '']) => ({
      page,
      link,
    })),
  );
}

function idsOf(html: string): string[] {
  return [...html.matchAll(/ id="([^"]*)"/g)].map(([, id = '']) => id);
}

function placeFrom(page: string, link: string): string {
  const [path = ''] = link.split('#');
  return path === '' ? page : posix.join(posix.dirname(page), path);
}

function exists(page: string, link: string): boolean {
  const html = files.get(placeFrom(page, link));
  const [, id] = link.split('#');
  if (html === undefined) return false;
  return id === undefined || idsOf(html).includes(decodeURIComponent(id));
}

/** What both scripts leave to a page: the library, and the index with its options. */
interface Scripts {
  readonly MiniSearch: typeof MiniSearch<SearchDocument>;
  readonly SEARCH_INDEX: {
    readonly options: Options<SearchDocument>;
    readonly index: never;
  };
}

/** Runs the scripts of the search in a world without anything else, as a page does. */
async function openIndex(): Promise<{
  readonly index: MiniSearch<SearchDocument>;
  /** The query that every section answers. */
  readonly everything: Query;
}> {
  const world = {};
  for (const name of ['minisearch.js', 'search-index.js'])
    runInNewContext(
      await readFile(join(folder, 'assets', name), 'utf8'),
      world,
    );
  const { MiniSearch: Library, SEARCH_INDEX } = world as Scripts;
  const { options, index } = SEARCH_INDEX;
  return {
    index: Library.loadJS(index, options),
    everything: Library.wildcard,
  };
}
