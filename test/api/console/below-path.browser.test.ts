/**
 * The console behind a reverse proxy, at a path of its own, in a real browser: from a
 * link to the login and back to the place that the link named.
 */
import { createServer, request as httpRequest, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { once } from 'node:events';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { listen, type Listening } from '../../../src/api/server/server.ts';
import { apiWithoutDatabase, CALM, NO_CONSOLE } from '../mirror.ts';
import { openPage } from './browser.ts';
import { quiet } from './fixed-console.ts';

const TOKEN = 'correct-horse-battery';
const BASE = '/ledger';
const RUN = '#run/018f4e5e-0000-7000-8000-000000000000';

let mirror: Listening;

beforeAll(async () => {
  const server = await apiWithoutDatabase({
    token: TOKEN,
    basePath: BASE,
    console: { ...NO_CONSOLE, upkeep: async () => CALM },
    answers: { 'read what is going on': () => [{ found: quiet() }] },
  });
  mirror = await listen(server, { host: '127.0.0.1', port: 0, token: TOKEN });
});

afterAll(() => mirror[Symbol.asyncDispose]());

test.each([
  ['passes the path on', false],
  ['removes the path', true],
])(
  'a link leads through the login and back, by a proxy that %s',
  async (_, isRemoved) => {
    await using proxy = await startProxy(mirror.url, isRemoved);
    await using browser = await openPage();
    const { page, problems } = browser;

    await page.goto(`${proxy.url}${BASE}/runs?kind=sync${RUN}`);
    expect(new URL(page.url()).pathname).toBe(`${BASE}/login`);
    await page.getByLabel('Token').fill('guess-number-one');
    await page.getByRole('button', { name: 'Log in' }).click();
    await page.getByText('That is not the token').waitFor();
    await page.getByLabel('Token').fill(TOKEN);
    await page.getByRole('button', { name: 'Log in' }).click();

    await page.getByText('Live', { exact: true }).waitFor();
    const { pathname, search, hash } = new URL(page.url());
    expect([pathname, search, hash]).toEqual([
      `${BASE}/runs`,
      '?kind=sync',
      RUN,
    ]);
    await page.getByRole('button', { name: 'Close' }).click();
    await page.getByRole('link', { name: 'Settings' }).click();
    await page.getByText('Live', { exact: true }).waitFor();
    expect(new URL(page.url()).pathname).toBe(`${BASE}/settings`);
    expect(proxy.outside).toEqual([]);
    // The run of the link does not exist here: its answer is the one problem.
    expect(problems.filter((problem) => !problem.includes('404'))).toEqual([]);
  },
);

interface Proxy extends AsyncDisposable {
  readonly url: string;
  /** Paths of requests that left the proxy's path. */
  readonly outside: readonly string[];
}

/** Sends everything below the path on, with the Host that nginx sends by default. */
async function startProxy(target: string, isRemoved: boolean): Promise<Proxy> {
  const outside: string[] = [];
  const proxy = createServer((incoming, answer) => {
    const { url = '', method, headers } = incoming;
    if (!url.startsWith(`${BASE}/`)) {
      outside.push(url);
      answer.writeHead(404).end();
      return;
    }
    const { host } = new URL(target);
    const sent = httpRequest(
      new URL(isRemoved ? url.slice(BASE.length) : url, target),
      {
        method,
        headers: { ...headers, host, 'x-forwarded-host': headers.host },
      },
      (received) => {
        answer.writeHead(received.statusCode ?? 502, received.headers);
        received.pipe(answer);
      },
    );
    sent.on('error', () => answer.destroy());
    answer.on('close', () => sent.destroy());
    incoming.pipe(sent);
  });
  const url = await openPort(proxy);
  return {
    url,
    outside,
    [Symbol.asyncDispose]: async () => {
      proxy.closeAllConnections();
      await once(proxy.close(), 'close');
    },
  };
}

async function openPort(server: Server): Promise<string> {
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
