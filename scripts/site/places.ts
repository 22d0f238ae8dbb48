/** Where the pages and files of the repository are on the site, and where a link goes. */
import { statSync } from 'node:fs';
import { join, posix } from 'node:path';
import { ROOT } from '../steps.ts';

/** The pages of the site, and the repository that it was made from. */
export interface Site {
  /** Paths from the root of the repository. */
  readonly pages: ReadonlySet<string>;
  /** The repository's address in a browser, if package.json names one. */
  readonly repository: string | undefined;
}

/** Where a page's link goes on the site. */
export type Target =
  | { readonly kind: 'address'; readonly href: string }
  /** The path of a file of docs/ that is not a page; the site contains a copy of it. */
  | { readonly kind: 'file'; readonly href: string; readonly path: string }
  /** The site cannot link there, because the location of the repository is unknown. */
  | { readonly kind: 'unreachable'; readonly path: string };

const DOCS = 'docs/';
/**
 * The folder for pages from outside docs/. It is needed because there is a security.md
 * both inside and outside docs/.
 */
const OUTSIDE = 'repository';

/**
 * @returns the path of a page or file of the repository, relative to the site's folder
 */
export function placeOf(path: string): string {
  const place = path.startsWith(DOCS)
    ? path.slice(DOCS.length)
    : posix.join(OUTSIDE, path);
  return place
    .replace(/(^|\/)README\.md$/, '$1index.html')
    .replace(/\.md$/, '.html');
}

/**
 * Every address is relative to the page. The site therefore works below any path of a
 * host, and from a folder.
 * @returns the address of a place as a page writes it
 */
export function addressFrom(page: string, place: string): string {
  return posix.relative(posix.dirname(placeOf(page)), place);
}

/**
 * @returns where a link on a page leads
 */
export function targetOf(link: string, page: string, site: Site): Target {
  if (/^(?:[a-z]+:|#)/.test(link)) return { kind: 'address', href: link };
  const [written = '', anchor] = link.split('#');
  const path = posix.join(posix.dirname(page), written);
  const hash = anchor === undefined ? '' : `#${anchor}`;
  const href = `${addressFrom(page, placeOf(path))}${hash}`;
  if (site.pages.has(path)) return { kind: 'address', href };
  const isFile = statSync(join(ROOT, path)).isFile();
  if (isFile && path.startsWith(DOCS)) return { kind: 'file', href, path };
  if (site.repository === undefined) return { kind: 'unreachable', path };
  const view = isFile ? 'blob' : 'tree';
  return {
    kind: 'address',
    href: `${site.repository}/${view}/HEAD/${path}${hash}`,
  };
}

/**
 * @param repository the field of that name in a package.json
 * @returns the address in a browser, if the field contains an HTTPS address
 */
export function repositoryAddress(repository: unknown): string | undefined {
  const url =
    typeof repository === 'object' && repository !== null && 'url' in repository
      ? repository.url
      : repository;
  if (typeof url !== 'string') return undefined;
  const [, address] =
    /^(?:git\+)?(https:\/\/.+?)(?:\.git)?\/?$/.exec(url) ?? [];
  return address;
}
