/**
 * The connections of a mirror through the real squid: the source, the object store, notices and
 * traces, over http and https, with and without a password.
 */
import { once } from 'node:events';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type RequestListener } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer as createTlsServer } from 'node:tls';
import { describe, expect, test } from 'vitest';
import { receiverChecksOf } from '../../src/app/receiver-checks.ts';
import { readConfig } from '../../src/config/environment.ts';
import { createLog } from '../../src/logging/log.ts';
import { MetricsRegistry } from '../../src/observability/metrics.ts';
import { openMetricsPush } from '../../src/observability/push-metrics.ts';
import { applyNetworkDefaults } from '../../src/network/trust.ts';
import { openPoster } from '../../src/runs/notices.ts';
import type { ObjectStore } from '../../src/storage/object-store.ts';
import { openS3Store } from '../../src/storage/s3/s3-store.ts';
import { makeCertificates } from '../source/certificate.ts';
import { failureOf, NEVER, PARTY, testSource } from '../source/test-source.ts';
import { pageJson, send } from '../source/wire/wire-server.ts';
import { CREDENTIALS, S3Double } from '../support/stores/s3-double.ts';
import { freePort } from '../support/servers/redis-process.ts';
import { Daemon, findProgram, type Program } from './programs.ts';

/** Only squid knows where these names lead. */
const HOST = 'ledger.invalid';
const BUCKET_HOST = 'bucket.s3.invalid';
const SILENT = createLog('silent');
const signal = new AbortController().signal;
const PAGE = { list: 'parties', newestFirst: true, size: 10 } as const;
/** One authority for all: the process goes on trusting it. */
const certificates = makeCertificates();
const squid = await findProgram('squid', 'usr/sbin/squid');

describe.skipIf(squid === undefined)('squid without a password', () => {
  test('passes the pages of a source on, over http and https', async () => {
    await using world = await openWorld(squid);
    const page = answering((_request, response) =>
      send(response, 200, pageJson('parties', [{ id: PARTY }])),
    );
    await using service = await page;
    for (const url of [service.named, await world.withTls(service.port)]) {
      const source = testSource(new URL(url), { ambient: world.ambient() });
      expect((await source.lists.page(PAGE, NEVER)).rows).toHaveLength(1);
    }
  });

  test.each(['path', 'virtual'])(
    'passes objects on, over http, with the bucket in the %s style',
    async (style) => {
      await using world = await openWorld(squid);
      await using double = await S3Double.start();
      const { port } = new URL(double.endpoint);
      const host = style === 'path' ? HOST : 's3.invalid';
      const endpoint = `http://${host}:${port}`;
      await using store = world.store(endpoint, world.ambient(), style);
      expect(await useStore(store, double)).toEqual(WORKS);
    },
  );

  test('passes objects on in a tunnel, over https', async () => {
    await using world = await openWorld(squid);
    await using double = await S3Double.start();
    const { port } = new URL(double.endpoint);
    const endpoint = await world.withTls(Number(port));
    await using store = world.store(endpoint, world.ambient());
    expect(await useStore(store, double)).toEqual(WORKS);
  });

  test('reports an object store that it cannot reach as away, and names the proxy', async () => {
    await using world = await openWorld(squid);
    const endpoint = `https://127.0.0.1:${await freePort()}`;
    await using store = world.store(endpoint, world.ambient());
    await expect(store.head('a', signal)).rejects.toThrow(
      expect.objectContaining({
        code: 'OBJECT_STORE_UNREACHABLE',
        message: expect.stringMatching(
          /the proxy http:\/\/127\.0\.0\.1:\d+ answers 503; .*cannot reach/,
        ),
      }),
    );
  });

  test('passes notices on, and doctor’s tries of notices, traces and metrics', async () => {
    await using world = await openWorld(squid);
    const asked: string[] = [];
    await using receiver = await answering((request, response) => {
      asked.push(`${request.method} ${request.url}`);
      request.resume();
      response.writeHead(200).end();
    });
    const url = new URL(`${receiver.named}/hook`);
    const ambient = world.ambient();
    await openPoster(url, { version: 'test', ambient })(NOTICE);
    expect(asked).toEqual(['POST /hook']);

    const tried = await tryAll(
      { ...ambient, NOTIFY_URL: url.href },
      receiver.named,
    );
    expect(tried).toEqual([
      ['notices', true, expect.stringContaining(' through http://127.0.0.1:')],
      ['traces', true, expect.stringContaining(' through http://127.0.0.1:')],
      ['metrics', true, expect.stringContaining(' through http://127.0.0.1:')],
    ]);
    expect(asked.slice(1).toSorted()).toEqual([
      'HEAD /hook',
      'POST /v1/metrics',
      'POST /v1/traces',
    ]);

    asked.length = 0;
    const collector = { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.named };
    const push = openMetricsPush({ ...ambient, ...collector }, SILENT);
    await push?.(new MetricsRegistry());
    expect(asked).toEqual(['POST /v1/metrics']);
  });
});

describe.skipIf(squid === undefined)('squid with a password', () => {
  test('takes the user and password of HTTPS_PROXY for the source and the object store', async () => {
    await using world = await openWorld(squid, 'with a password');
    await using double = await S3Double.start();
    const endpoint = await world.withTls(Number(new URL(double.endpoint).port));
    await using store = world.store(endpoint, world.ambient('ledger:s%40cret'));
    expect(await useStore(store, double)).toEqual(WORKS);

    await using service = await answering((_request, response) =>
      send(response, 200, pageJson('parties', [{ id: PARTY }])),
    );
    const source = testSource(new URL(await world.withTls(service.port)), {
      ambient: world.ambient('ledger:s%40cret'),
    });
    expect((await source.lists.page(PAGE, NEVER)).rows).toHaveLength(1);
  });

  test.each([undefined, 'ledger:wrong'])(
    'refuses %s in the words of a proxy, everywhere',
    async (login) => {
      await using world = await openWorld(squid, 'with a password');
      const ambient = world.ambient(login);
      const tls = await world.withTls(await freePort());
      for (const endpoint of [tls, `http://${HOST}:1`]) {
        await using store = world.store(endpoint, ambient);
        await expect(store.head('a', signal)).rejects.toThrow(
          expect.objectContaining({
            code: 'OBJECT_STORE_REFUSED',
            message: expect.stringMatching(
              /the proxy http:\/\/127\.0\.0\.1:\d+ answers 407; .*HTTPS_PROXY/,
            ),
          }),
        );
        const source = testSource(new URL(endpoint), { ambient });
        expect(await failureOf(source.lists.page(PAGE, NEVER))).toMatchObject({
          code: 'PROXY_REFUSED',
        });
        const post = openPoster(new URL(endpoint), {
          version: 'test',
          ambient,
        });
        await expect(post(NOTICE)).rejects.toThrow(
          /the proxy http:\/\/127\.0\.0\.1:\d+ answers 407/,
        );
      }
    },
  );
});

const NOTICE = { id: 'run_1', type: 'run.finished', run: {} } as const;

const CONTENT = Buffer.from('through the proxy');
/** What `useStore` returns if all of it worked. */
const WORKS = { keys: ['mirror/a'], bytes: BigInt(CONTENT.length) };

async function useStore(
  store: ObjectStore,
  { objects }: S3Double,
): Promise<unknown> {
  await store.publishBytes('a', CONTENT, signal);
  const facts = await store.head('a', signal);
  return { keys: [...objects.keys()], bytes: facts?.bytes };
}

interface Service extends AsyncDisposable {
  readonly port: number;
  /** By the name that only squid knows. */
  readonly named: string;
}

async function answering(answer: RequestListener): Promise<Service> {
  const server = createServer(answer);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    port,
    named: `http://${HOST}:${port}`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
    },
  };
}

/** @returns name, whether it is right, and the detail of each of doctor's tries */
function tryAll(
  env: Readonly<Record<string, string | undefined>>,
  collector: string,
): Promise<readonly unknown[]> {
  const config = readConfig({
    env: { ...env, OTEL_EXPORTER_OTLP_ENDPOINT: collector },
    cwd: '/',
  });
  const checks = Object.entries(receiverChecksOf(config, SILENT));
  return Promise.all(
    checks.map(async ([what, attempt]) => {
      const { isRight, detail } = await attempt(signal);
      return [what, isRight, detail];
    }),
  );
}

interface World extends AsyncDisposable {
  /** The variables of the proxy. */
  ambient(login?: string): Readonly<Record<string, string>>;
  /** @returns the URL of a server with TLS before a port of this machine */
  withTls(port: number): Promise<string>;
  store(
    endpoint: string,
    ambient: Readonly<Record<string, string>>,
    style?: string,
  ): ObjectStore;
}

async function openWorld(
  program: Program | undefined,
  lock: 'open' | 'with a password' = 'open',
): Promise<World> {
  if (program === undefined) throw new Error('there is no squid');
  const opened = new AsyncDisposableStack();
  const folder = await mkdtemp(join(tmpdir(), 'lm-squid-'));
  opened.defer(() => rm(folder, { recursive: true, force: true }));
  const hosts = join(folder, 'hosts');
  await writeFile(
    hosts,
    [HOST, 's3.invalid', BUCKET_HOST]
      .map((name) => `127.0.0.1 ${name}\n`)
      .join(''),
  );
  const helper = join(folder, 'login.sh');
  await writeFile(helper, LOGIN, { mode: 0o755 });
  // squid gives up root's rights, and its helper must still be found.
  await chmod(folder, 0o755);
  const rules =
    lock === 'open'
      ? 'http_access allow all'
      : `auth_param basic program /bin/sh ${helper}\n` +
        'acl known proxy_auth REQUIRED\nhttp_access allow known\nhttp_access deny all';
  const daemon = opened.use(
    await Daemon.start(
      program,
      'usr/sbin/squid',
      (dir, port) => configOf(program, { dir, port, hosts, rules }),
      (file) => ['-N', '-f', file],
    ),
  );
  const caFile = join(folder, 'ca.pem');
  await writeFile(caFile, certificates.authority);
  applyNetworkDefaults({ NODE_EXTRA_CA_CERTS: caFile });
  return {
    ambient(login) {
      const user = login === undefined ? '' : `${login}@`;
      const proxy = `http://${user}127.0.0.1:${daemon.port}`;
      return {
        HTTP_PROXY: proxy,
        HTTPS_PROXY: proxy,
        NODE_EXTRA_CA_CERTS: caFile,
      };
    },
    async withTls(port) {
      const server = createTlsServer(certificates, (socket) => {
        const upstream = connect(port, '127.0.0.1');
        upstream.on('error', () => socket.destroy());
        socket.on('error', () => upstream.destroy());
        socket.pipe(upstream).pipe(socket);
      });
      server.listen(0, '127.0.0.1');
      await once(server, 'listening');
      opened.defer(() => void server.close());
      return `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
    },
    store(endpoint, ambient, style = 'path') {
      const url = new URL('s3://bucket/mirror?region=eu-test-1');
      url.searchParams.set('endpoint', endpoint);
      url.searchParams.set('style', style);
      const spoolDir = join(folder, 'spool');
      const credentials = {
        AWS_ACCESS_KEY_ID: CREDENTIALS.accessKeyId,
        AWS_SECRET_ACCESS_KEY: CREDENTIALS.secretAccessKey,
      };
      return openS3Store({
        url,
        spoolDir,
        ambient: { ...ambient, ...credentials },
        patienceMs: 500,
      });
    },
    [Symbol.asyncDispose]: () => opened.disposeAsync(),
  };
}

/** squid hands a line for each login; whether it escapes an `@` depends on the version. */
const LOGIN = `while read -r user password; do
  case "$user $password" in
    'ledger s%40cret' | 'ledger s@cret') echo OK ;;
    *) echo ERR ;;
  esac
done
`;

function configOf(
  { root }: Program,
  {
    dir,
    port,
    hosts,
    rules,
  }: {
    readonly dir: string;
    readonly port: number;
    readonly hosts: string;
    readonly rules: string;
  },
): string {
  return `
http_port 127.0.0.1:${port}
visible_hostname squid.test
pid_filename ${dir}/squid.pid
cache_log ${dir}/cache.log
access_log none
cache deny all
coredump_dir ${dir}
netdb_filename none
pinger_enable off
shutdown_lifetime 0 seconds
hosts_file ${hosts}
error_directory ${root}/usr/share/squid-langpack/en
mime_table ${root}/usr/share/squid/mime.conf
icon_directory ${root}/usr/share/squid/icons
unlinkd_program ${root}/usr/lib/squid/unlinkd
logfile_daemon ${root}/usr/lib/squid/log_file_daemon
${rules}
`;
}
