/**
 * Makes the HTML of one page from its Markdown. The headings get the ids that GitHub
 * gives them, so a link to a heading works both here and on GitHub.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import MarkdownIt, { type Token } from 'markdown-it';
import { ROOT } from '../steps.ts';
import { type Site, targetOf } from './places.ts';

/**
 * A part of a page that a link can lead to: a heading with the text below it, up to the
 * next heading; or a row of a table that begins with a name in code, like a setting or an
 * error code.
 */
export interface Section {
  /** The id of the heading or the row on its page. */
  readonly id: string;
  /** The level of the heading: 1 for the title of the page. */
  readonly level: number | 'row';
  /** The heading, or the first cell of the row. */
  readonly heading: string;
  /** The heading above a row; '' for a heading. */
  readonly below: string;
  /** The words without marks, for the search. */
  readonly text: string;
}

export interface RenderedPage {
  readonly html: string;
  readonly sections: readonly Section[];
  /** Files of docs/ that the page shows or links to, by their paths from the root. */
  readonly files: readonly string[];
}

const markdown = new MarkdownIt();
const { escapeHtml } = markdown.utils;

// A box that scrolls sideways can be focused, so that the keyboard can scroll it.
Object.assign(markdown.renderer.rules, {
  table_open: () => '<div class="table" tabindex="0"><table>\n',
  table_close: () => '</table></div>\n',
  fence: codeBlock,
  code_block: codeBlock,
});

function codeBlock(tokens: readonly Token[], index: number): string {
  const code = escapeHtml(tokens[index]?.content ?? '');
  return `<pre tabindex="0"><code>${code}</code></pre>\n`;
}

/** @param path the page's path from the root of the repository */
export function renderPage(
  text: string,
  path: string,
  site: Site,
): RenderedPage {
  const tokens = markdown.parse(text, {});
  const sections = readSections(tokens);
  const files = tokens.flatMap(({ children }) =>
    children === null ? [] : leadToSite(children, path, site),
  );
  return {
    html: markdown.renderer.render(tokens, markdown.options, {}),
    sections,
    files,
  };
}

type Growing = { -readonly [Key in keyof Section]: Section[Key] };

/** Cuts the page into its sections, and gives each heading and named row its id. */
function readSections(tokens: readonly Token[]): Section[] {
  const sections: Growing[] = [];
  const taken = new Map<string, number>();
  let current: Growing | undefined;
  let row: Growing | undefined;
  for (const [index, token] of tokens.entries()) {
    if (token.type === 'heading_open') {
      const heading = wordsOf(tokens[index + 1]);
      const id = uniqueId(anchorOf(heading), taken);
      const level = Number(token.tag.slice(1));
      current = { id, level, heading, below: '', text: '' };
      sections.push(current);
      token.attrSet('id', id);
    } else if (token.type === 'tr_open' && isNamed(tokens, index)) {
      const heading = wordsOf(tokens[index + 2]);
      const id = uniqueId(`row-${anchorOf(heading)}`, taken);
      const below = current?.heading ?? '';
      row = { id, level: 'row', heading, below, text: '' };
      sections.push(row);
      token.attrSet('id', id);
    } else if (token.type === 'tr_close') {
      row = undefined;
    }
    const words = wordsOf(token);
    const holder = row ?? current;
    if (holder !== undefined && words !== '' && !isHeading(tokens, index))
      holder.text += `${words}\n`;
  }
  return sections;
}

function isHeading(tokens: readonly Token[], index: number): boolean {
  return tokens[index - 1]?.type === 'heading_open';
}

/** @returns whether the first cell of the row at the index begins with code */
function isNamed(tokens: readonly Token[], index: number): boolean {
  return (
    tokens[index + 1]?.type === 'td_open' &&
    tokens[index + 2]?.children?.[0]?.type === 'code_inline'
  );
}

function wordsOf(token: Token | undefined): string {
  if (token?.type === 'fence') return token.content;
  return (token?.children ?? [])
    .map(({ type, content }) => (type === 'softbreak' ? ' ' : content))
    .join('');
}

/** @returns the id that GitHub gives to a heading */
function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
    .replaceAll(' ', '-');
}

/** The second heading with the same words ends in -1, the third in -2. */
function uniqueId(anchor: string, taken: Map<string, number>): string {
  const count = taken.get(anchor) ?? 0;
  taken.set(anchor, count + 1);
  return count === 0 ? anchor : `${anchor}-${count}`;
}

/**
 * Points the links and pictures of a paragraph to their locations on the site.
 * @returns the files that the site must contain for these links
 */
function leadToSite(inline: Token[], page: string, site: Site): string[] {
  const files: string[] = [];
  let unreachable: string | undefined;
  for (const token of inline) {
    if (token.type === 'link_open' || token.type === 'image') {
      const attribute = token.type === 'image' ? 'src' : 'href';
      const target = targetOf(`${token.attrGet(attribute)}`, page, site);
      if (target.kind === 'unreachable') {
        unreachable = target.path;
        hide(token);
        continue;
      }
      token.attrSet(attribute, target.href);
      if (target.kind === 'file') files.push(target.path);
      if (target.kind === 'file' && token.type === 'image')
        keepItsPlace(token, target.path);
    } else if (token.type === 'link_close' && unreachable !== undefined) {
      hide(token, unreachable);
      unreachable = undefined;
    }
  }
  return files;
}

/**
 * Replaces the start or the end of a link, so that the link becomes plain text. At the
 * end, the path of the file is added, because the link's own words seldom name the file.
 */
function hide(token: Token, path?: string): void {
  token.type = 'html_inline';
  token.content =
    path === undefined ? '' : ` (<code>${escapeHtml(path)}</code>)`;
}

/**
 * Sets the picture's size. Without it, the text below jumps when the picture loads, and a
 * link to a heading ends up in the wrong place.
 */
function keepItsPlace(image: Token, path: string): void {
  if (!path.endsWith('.png')) return;
  // The header of a PNG has its width and height in pixels at these bytes.
  const header = readFileSync(join(ROOT, path)).subarray(0, 24);
  image.attrSet('width', String(header.readUInt32BE(16)));
  image.attrSet('height', String(header.readUInt32BE(20)));
  image.attrSet('loading', 'lazy');
}
