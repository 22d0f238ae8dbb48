/**
 * The example of docs/deployment.md for oauth2-proxy, run by the real program between an
 * OpenID Connect issuer and the API. If the program is not installed, stderr says how to
 * get it, and its tests are skipped.
 */
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { Child } from '../support/process.ts';
import { freePort } from '../support/servers/redis-process.ts';
import { waitFor } from '../support/wait-for.ts';
import {
  AS_STORED,
  downloadAll,
  exampleOf,
  FOREIGN_ORIGIN,
  FORM,
  LARGE,
  LARGE_BYTES,
  logInFromElsewhere,
  openPausedReader,
  readFirstEvent,
  startMirror,
  TOKEN,
  UPSTREAM,
} from './mirror-behind.ts';
import { startOidcIssuer } from './oidc-issuer.ts';

const VERSION = 'v7.15.6';
const CLIENT = 'ledger-mirror';
const REDIRECTS_MAX = 10;
// `go install` puts programs into a folder that is often not on the path.
const PATH = [process.env['PATH'], join(homedir(), 'go/bin')].join(delimiter);

const isThere = await isInstalled();

describe.skipIf(!isThere)('behind oauth2-proxy', () => {
  test('a link from elsewhere leads through both logins to where it points', async () => {
    await using world = await startFront();
    const { browser } = world;
    const page = await browser.visit('/runs?kind=export');
    expect(page.status).toBe(200);
    const { pathname, searchParams } = new URL(page.url);
    expect([pathname, searchParams.get('next')]).toEqual([
      '/login',
      '/runs?kind=export',
    ]);
    const login = await browser.logIn('/runs?kind=export');
    expect([login.status, login.headers.get('location')]).toEqual([
      303,
      '/runs?kind=export',
    ]);
    expect((await browser.ask('/runs?kind=export')).status).toBe(200);
  });

  test('the session is used next to the token that oauth2-proxy adds', async () => {
    await using world = await startFront();
    const { browser } = world;
    await browser.visit('/');
    // Without the mirror's own session, the token of the issuer opens nothing.
    expect((await browser.ask('/mirror/exports')).status).toBe(401);
    await browser.logIn();
    expect((await browser.ask('/mirror/exports')).status).toBe(200);
  });

  test('monitors are answered without a login, by HEAD too', async () => {
    await using world = await startFront();
    for (const path of ['/healthz', '/readyz'])
      for (const method of ['GET', 'HEAD']) {
        const answer = await fetch(world.url + path, { method });
        expect([method, path, answer.status]).toEqual([method, path, 200]);
      }
    const other = await fetch(`${world.url}/mirror/exports`, {
      redirect: 'manual',
    });
    expect(other.status).toBe(302);
  });

  test('a page of another origin is refused with both values', async () => {
    await using world = await startFront();
    const { browser } = world;
    await browser.visit('/');
    const refused = await logInFromElsewhere(browser.send);
    expect(refused.status).toBe(403);
    expect(refused.message).toContain(FOREIGN_ORIGIN);
    expect(refused.message).toContain(new URL(world.url).host);
  });

  test('a download is whole and resumed, and events arrive', async () => {
    await using world = await startFront();
    const { browser } = world;
    await browser.visit('/');
    await browser.logIn();
    expect(await downloadAll(browser.send)).toMatchObject(AS_STORED);
    expect(await readFirstEvent(browser.send)).toContain('"state":"running"');
  });

  test('a reader that pauses gets every byte', async () => {
    await using world = await startFront();
    const { browser } = world;
    await browser.visit('/');
    await browser.logIn();
    const path = `/api/v2/ledgerentry/export?partyId=${LARGE}`;
    const cookie = browser.cookies();
    const reader = await openPausedReader(world.url + path, { cookie });
    await waitFor(() => world.mirror.standsStill(0), {
      what: 'the reading to stand still',
    });
    expect(world.mirror.readings[0]?.isOver).toBe(false);
    expect(await reader.readOn()).toBe(LARGE_BYTES);
  });
});

async function isInstalled(): Promise<boolean> {
  try {
    const options = { env: { ...process.env, PATH } };
    await promisify(execFile)('oauth2-proxy', ['--version'], options);
    return true;
  } catch {
    process.stderr.write(
      'Not tested behind oauth2-proxy: it is not installed; go install ' +
        `github.com/oauth2-proxy/oauth2-proxy/v7@${VERSION}\n`,
    );
    return false;
  }
}

/** Starts a mirror, an issuer, and oauth2-proxy with the documented settings. */
async function startFront() {
  await using stack = new AsyncDisposableStack();
  const issuer = stack.use(await startOidcIssuer(CLIENT));
  const mirror = await startMirror('');
  const dir = await mkdtemp(join(tmpdir(), 'ledger-mirror-oauth2-'));
  stack.defer(() => rm(dir, { recursive: true, force: true }));
  const port = await freePort();
  const host = `127.0.0.1:${port}`;
  const url = `http://${host}`;
  const example = await exampleOf('toml', 0);
  const file = join(dir, 'oauth2-proxy.cfg');
  const secrets = join(dir, 'client-secret');
  await writeFile(secrets, 'a-secret-of-the-client');
  const cookieSecret = join(dir, 'cookie-secret');
  await writeFile(cookieSecret, randomBytes(16).toString('hex'));
  const settings = example
    .replaceAll(UPSTREAM, new URL(mirror.url).host)
    .replace('0.0.0.0:4180', host)
    .replace('https://login.example.com', issuer.url)
    .replace('https://mirror.example.com', url)
    .replace('/run/secrets/client-secret', secrets)
    .replace('/run/secrets/cookie-secret', cookieSecret);
  // There is no TLS here, and a browser would not send its cookie otherwise.
  await writeFile(file, `${settings}\ncookie_secure = false\n`);
  const child = new Child('oauth2-proxy', ['--config', file], {
    env: { PATH, HOME: dir },
    cwd: dir,
  });
  stack.use(child);
  stack.use(mirror);
  await waitFor(
    async () => {
      if (!child.isRunning)
        throw new Error(`It has ended: ${child.stdout}${child.stderr}`);
      const answer = await fetch(`${url}/healthz`).catch(() => undefined);
      return answer?.status === 200;
    },
    { what: 'oauth2-proxy answers' },
  );
  const owned = stack.move();
  return {
    url,
    mirror,
    browser: new Browser(url),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

/** Keeps cookies and follows redirects between the issuer and the mirror. */
class Browser {
  readonly #url: string;
  readonly #cookies = new Map<string, string>();

  constructor(url: string) {
    this.#url = url;
  }

  cookies(): string {
    return [...this.#cookies].map((pair) => pair.join('=')).join('; ');
  }

  /** Makes one request. */
  /** `ask`, for those who have no browser at hand. */
  readonly send = (path: string, init?: RequestInit): Promise<Response> =>
    this.ask(path, init);

  async ask(path: string, init: RequestInit = {}): Promise<Response> {
    const headers = new Headers(init.headers);
    if (this.#cookies.size > 0) headers.set('cookie', this.cookies());
    const answer = await fetch(new URL(path, this.#url), {
      redirect: 'manual',
      ...init,
      headers,
    });
    for (const line of answer.headers.getSetCookie()) {
      const [pair = ''] = line.split(';', 1);
      const at = pair.indexOf('=');
      this.#cookies.set(pair.slice(0, at), pair.slice(at + 1));
    }
    return answer;
  }

  /** Opens a page as a person does, and follows where it sends them. */
  async visit(path: string): Promise<Response> {
    let next = new URL(path, this.#url).href;
    for (let count = 0; count < REDIRECTS_MAX; count += 1) {
      const answer = await this.ask(next, { headers: { accept: 'text/html' } });
      const location = answer.headers.get('location');
      if (location === null) return answer;
      await answer.body?.cancel();
      next = new URL(location, next).href;
    }
    throw new Error(
      `${path} is redirected again and again, at last to ${next}`,
    );
  }

  /** Logs in to the mirror itself. */
  logIn(next = '/'): Promise<Response> {
    return this.ask('/login', {
      method: 'POST',
      headers: { ...FORM, origin: this.#url },
      body: new URLSearchParams({ token: TOKEN, next }).toString(),
    });
  }
}
