/** The frame of each page: search, navigation, and links to the neighbouring pages. */
import MarkdownIt from 'markdown-it';
import type { Chapter } from '../book.ts';
import type { Section } from './markdown.ts';
import { addressFrom, placeOf } from './places.ts';

export interface Product {
  readonly name: string;
  readonly version: string;
  readonly description: string;
}

/** A page inside the frame. */
export interface FramedPage {
  readonly chapter: Chapter;
  readonly html: string;
  readonly sections: readonly Section[];
}

const { escapeHtml } = new MarkdownIt().utils;

/** @returns the whole document */
export function layOut(
  { chapter, html, sections }: FramedPage,
  book: readonly Chapter[],
  product: Product,
): string {
  const to = (place: string): string => addressFrom(chapter.path, place);
  const name = escapeHtml(product.name);
  const isFirst = chapter.path === book[0]?.path;
  // The path back to the site's folder, for the scripts.
  const root = to('index.html').slice(0, -'index.html'.length);
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${isFirst ? name : `${escapeHtml(chapter.title)} · ${name}`}</title>
<meta name="description" content="${escapeHtml(product.description)}">
<link rel="icon" href="data:,">
<link rel="stylesheet" href="${to('assets/site.css')}">
<noscript><style>search { display: none; }</style></noscript>
<script defer src="${to('assets/search.js')}" data-root="${root}"></script>
</head>
<body>
<a class="skip" href="#content">Skip to the text</a>
<header>
<a class="home" href="${to('index.html')}">${name}</a>
<a class="to-pages" href="#pages">All pages</a>
<search>
<form>
<label for="words">Search</label>
<input id="words" type="search" autocomplete="off" spellcheck="false">
</form>
<div class="found" tabindex="-1"><p role="status"></p><ol></ol></div>
</search>
</header>
<div class="columns">
<main id="content" tabindex="-1">
${isFirst ? `<p class="about">${escapeHtml(product.description)}.</p>\n` : ''}${html}</main>
${navigation(chapter, sections, book)}
</div>
<footer>
${neighbours(chapter, book)}
<p>${name} ${escapeHtml(product.version)}</p>
</footer>
</body>
</html>
`;
}

/** Only the part with the shown page is open; on the first page, every part is. */
function navigation(
  shown: Chapter,
  sections: readonly Section[],
  book: readonly Chapter[],
): string {
  const [first, ...pages] = book;
  if (first === undefined) return '';
  const parts = Map.groupBy(pages, ({ part }) => part);
  const item = (chapter: Chapter): string => {
    const link = linkTo(chapter, shown);
    return chapter === shown
      ? `<li>${link}${contentsOf(sections)}</li>`
      : `<li>${link}</li>`;
  };
  const lists = [...parts].map(([part, chapters]) => {
    const isOpen = shown.part === part || shown === first;
    return `<details${isOpen ? ' open' : ''}>
<summary>${escapeHtml(part)}</summary>
<ul>
${chapters.map(item).join('\n')}
</ul>
</details>`;
  });
  return `<nav id="pages" aria-label="Pages">
<p>${linkTo(first, shown)}</p>
${lists.join('\n')}
</nav>`;
}

/** @returns the headings of the second level, as links */
function contentsOf(sections: readonly Section[]): string {
  const items = sections
    .filter(({ level }) => level === 2)
    .map(
      ({ id, heading }) =>
        `<li><a href="#${escapeHtml(id)}">${escapeHtml(heading)}</a></li>`,
    );
  return items.length === 0 ? '' : `\n<ul>\n${items.join('\n')}\n</ul>\n`;
}

function neighbours(shown: Chapter, book: readonly Chapter[]): string {
  const place = book.indexOf(shown);
  const previous = book[place - 1];
  const next = book[place + 1];
  const links = [
    ...(previous === undefined
      ? []
      : [`<span>Previous: ${linkTo(previous, shown, 'prev')}</span>`]),
    ...(next === undefined
      ? []
      : [`<span>Next: ${linkTo(next, shown, 'next')}</span>`]),
  ];
  return `<nav aria-label="Neighbours">${links.join('\n')}</nav>`;
}

function linkTo(chapter: Chapter, shown: Chapter, rel?: string): string {
  const href = addressFrom(shown.path, placeOf(chapter.path));
  const attributes = [
    `href="${escapeHtml(href)}"`,
    ...(rel === undefined ? [] : [`rel="${rel}"`]),
    ...(chapter === shown ? ['aria-current="page"'] : []),
  ];
  return `<a ${attributes.join(' ')}>${escapeHtml(chapter.title)}</a>`;
}
