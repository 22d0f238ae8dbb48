/**
 * A real Chromium with nothing of anybody in it, and a page that remembers everything
 * that went wrong.
 */
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  type BrowserContextOptions,
  chromium,
  type Page,
} from 'playwright-core';

const PATHS = [
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
];
const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

/** The limit for what never comes; a busy machine paints late. */
const WAIT_MAX_MS = 90_000;

export interface ConsolePage extends AsyncDisposable {
  readonly page: Page;
  /** Errors on the console, of scripts, and requests that failed. */
  readonly problems: readonly string[];
  /** Requests that left the host. */
  readonly foreign: readonly string[];
  /** Bytes of bodies as they came over the line, by path. */
  readonly weights: ReadonlyMap<string, number>;
}

export type PageOptions = Pick<
  BrowserContextOptions,
  'viewport' | 'colorScheme' | 'timezoneId' | 'reducedMotion' | 'hasTouch'
>;

/** @throws Error if no Chromium is installed */
export async function openPage(
  options: PageOptions = {},
): Promise<ConsolePage> {
  const executablePath = [process.env['CHROMIUM_PATH'], ...PATHS].find(
    (path) => path !== undefined && existsSync(path),
  );
  if (executablePath === undefined) {
    throw new Error(
      'No Chromium is installed: apt-get install -y chromium, or set CHROMIUM_PATH',
    );
  }
  const profile = await mkdtemp(join(tmpdir(), 'ledger-mirror-chromium-'));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath,
    headless: true,
    args: FLAGS,
    viewport: { width: 1280, height: 900 },
    acceptDownloads: true,
    ...options,
  });
  const page = context.pages()[0] ?? (await context.newPage());
  page.setDefaultTimeout(WAIT_MAX_MS);
  const problems: string[] = [];
  const foreign: string[] = [];
  const weights = new Map<string, number>();
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning')
      problems.push(message.text());
  });
  page.on('pageerror', (error) => problems.push(`${error.stack}`));
  page.on('request', (request) => {
    const { hostname, protocol } = new URL(request.url());
    if (
      hostname !== '127.0.0.1' &&
      protocol !== 'data:' &&
      protocol !== 'blob:'
    )
      foreign.push(request.url());
  });
  page.on('requestfinished', (request) => {
    void request
      .sizes()
      .then(({ responseBodySize }) =>
        weights.set(new URL(request.url()).pathname, responseBodySize),
      )
      .catch(() => undefined);
  });
  return {
    page,
    problems,
    foreign,
    weights,
    [Symbol.asyncDispose]: async () => {
      await context.close();
      await rm(profile, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}
