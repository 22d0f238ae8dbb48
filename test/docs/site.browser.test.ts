/** The docs as a static site in a real browser: from a folder, and below a path of a host. */
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { extname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { readBook } from '../../scripts/book.ts';
import { buildSite } from '../../scripts/site/build.ts';
import { placeOf } from '../../scripts/site/places.ts';
import { accessibilityFaults } from '../api/console/accessibility.ts';
import { openPage } from '../api/console/browser.ts';

/** A host serves other things beside the docs. */
const BELOW = '/ledger/docs/';
const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html',
  '.css': 'text/css',
  '.js': 'text/javascript',
  '.png': 'image/png',
};
const PLACES = readBook().map(({ path }) => placeOf(path));
const PHONE = { width: 390, height: 844 };
const DESK = { width: 1280, height: 900 };

let folder = '';

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-site-'));
  await buildSite(folder);
});

afterAll(() => rm(folder, { recursive: true, force: true }));

test('the search finds a page and opens it, from a folder without a server', async () => {
  await using browser = await openPage();
  const { page, problems, foreign } = browser;
  const site = `${pathToFileURL(folder).href}/`;
  await page.goto(`${site}guides/faq.html`);

  await searchField(page).fill('rotate a tok');
  await results(page).first().waitFor();
  await results(page)
    .filter({ hasText: 'Rotate a token or a password' })
    .first()
    .click();
  await page.waitForURL(`${site}guides/rotate-a-token.html`);

  // A section in the middle of a page, by the keyboard alone.
  await searchField(page).fill('many objects are lost');
  await results(page).first().waitFor();
  await page.keyboard.press('Enter');
  await page.waitForURL(`${site}guides/restore.html#many-objects-are-lost`);
  await page.getByRole('link', { name: 'Upgrade' }).first().click();
  await page.waitForURL(`${site}guides/upgrade.html`);

  expect(problems).toEqual([]);
  expect(foreign.filter((url) => !url.startsWith(site))).toEqual([]);
});

test('the search says what it found, and Escape closes it', async () => {
  await using host = await serveSite();
  await using browser = await openPage();
  const { page } = browser;
  await page.goto(host.url);
  const status = page.getByRole('status');

  await searchField(page).fill('zyzzyva');
  await status.getByText('No page has all of these words.').waitFor();
  await searchField(page).fill('How do I restore the mirror?');
  await page
    .getByRole('search')
    .getByRole('link', { name: 'Restore', exact: true })
    .waitFor();
  await searchField(page).fill('mirror');
  await status.getByText(/^The best 12 of \d+ sections$/).waitFor();
  expect(await results(page).count()).toBe(12);
  expect(await accessibilityFaults(page)).toEqual([]);

  await page.keyboard.press('Tab');
  await page.keyboard.press('Escape');
  expect(await status.textContent()).toBe('');
  expect(await results(page).count()).toBe(0);
  expect(await page.evaluate('document.activeElement.id')).toBe('words');
});

test('the search loads nothing before it is used, and tries again after a failure', async () => {
  await using host = await serveSite();
  await using browser = await openPage();
  const { page } = browser;
  await page.goto(host.url);
  expect(host.requested).not.toContain('assets/search-index.js');

  host.refuse('assets/search-index.js');
  await searchField(page).fill('quarantine');
  await page
    .getByRole('status')
    .getByText('The search could not be loaded')
    .waitFor();
  host.refuse(undefined);
  await searchField(page).fill('quarantined');
  await results(page).first().waitFor();
});

test.each([
  ['a phone', PHONE, 'light'],
  ['a desk', DESK, 'dark'],
] as const)(
  'on %s no page scrolls sideways or has a fault that axe finds',
  async (_, viewport, colorScheme) => {
    await using host = await serveSite();
    await using browser = await openPage({ viewport, colorScheme });
    const { page, problems, foreign } = browser;
    const faults: string[] = [];
    for (const place of PLACES) {
      await page.goto(`${host.url}${place}`);
      const width = await page.evaluate<number>(
        'document.documentElement.scrollWidth',
      );
      if (width !== viewport.width) faults.push(`${place} is ${width} px wide`);
      for (const fault of await accessibilityFaults(page))
        faults.push(`${place}: ${fault}`);
    }
    expect(faults).toEqual([]);
    expect(problems).toEqual([]);
    expect(foreign).toEqual([]);
    expect(host.outside).toEqual([]);
  },
);

test('a phone reaches the list of pages from the top of each page', async () => {
  await using host = await serveSite();
  await using browser = await openPage({ viewport: PHONE });
  const { page } = browser;
  await page.goto(`${host.url}configuration.html`);
  await page.getByRole('link', { name: 'All pages' }).click();
  const pages = page.getByRole('navigation', { name: 'Pages' });
  await pages.getByText('Trust it').click();
  await pages.getByRole('link', { name: 'The sandbox network' }).click();
  await page.waitForURL(`${host.url}sandbox.html`);
  expect(host.outside).toEqual([]);
});

function searchField(page: Page) {
  return page.getByLabel('Search');
}

function results(page: Page) {
  return page.locator('search li a');
}

interface Host extends AsyncDisposable {
  /** The address of the site, which ends in a slash. */
  readonly url: string;
  /** Paths below the site that were requested. */
  readonly requested: readonly string[];
  /** Requests for something beside the site. */
  readonly outside: readonly string[];
  /** Answers the path with an error until another one is named, or none. */
  refuse(path: string | undefined): void;
}

async function serveSite(): Promise<Host> {
  const requested: string[] = [];
  const outside: string[] = [];
  let refused: string | undefined;
  const server = createServer((request, answer) => {
    const { pathname } = new URL(request.url ?? '/', 'http://127.0.0.1');
    if (!pathname.startsWith(BELOW)) {
      outside.push(pathname);
      answer.writeHead(404).end();
      return;
    }
    const path = pathname.slice(BELOW.length);
    requested.push(path);
    const type = TYPES[extname(path)] ?? 'text/html';
    if (path === refused) {
      answer.writeHead(503).end();
      return;
    }
    readFile(join(folder, path === '' ? 'index.html' : path)).then(
      (body) => answer.writeHead(200, { 'content-type': type }).end(body),
      () => answer.writeHead(404).end(),
    );
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}${BELOW}`,
    requested,
    outside,
    refuse: (path) => {
      refused = path;
    },
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await once(server.close(), 'close');
    },
  };
}
