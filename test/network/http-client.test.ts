/** Proxies and certificates, with a real proxy and a real authority. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import {
  createServer as createHttpServer,
  type RequestListener,
} from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { connect, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, onTestFinished, test } from 'vitest';
import {
  PermanentError,
  UnreachableError,
  UsageError,
} from '../../src/errors/errors.ts';
import { attributeFault, isSourceAway } from '../../src/errors/faults.ts';
import { makeCertificates } from '../source/certificate.ts';
import { failureOf, NEVER, PARTY, testSource } from '../source/test-source.ts';
import {
  errorJson,
  pageJson,
  send,
  serve,
} from '../source/wire/wire-server.ts';

const PAGE = { list: 'parties', newestFirst: true, size: 10 } as const;
const GOOD = pageJson('parties', [{ id: PARTY }]);
const answerGood: RequestListener = (_request, response) =>
  send(response, 200, GOOD);

/**
 * Passes CONNECT tunnels and absolute-form requests on, and remembers what it was asked
 * for.
 */
async function startProxy(): Promise<{ url: string; asked: string[] }> {
  const asked: string[] = [];
  const proxy = createHttpServer((request, response) => {
    asked.push(`${request.method} ${request.url}`);
    send(response, 200, GOOD);
  });
  proxy.on('connect', (request, client, head) => {
    asked.push(`CONNECT ${request.url}`);
    const { hostname, port } = new URL(`http://${request.url}`);
    const upstream = connect(Number(port), hostname, () => {
      client.write('HTTP/1.1 200 Connection Established\r\n\r\n');
      upstream.write(head);
      upstream.pipe(client).pipe(upstream);
    });
    for (const socket of [upstream, client])
      socket.on('error', () => upstream.destroy());
    client.on('close', () => upstream.destroy());
  });
  proxy.listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  onTestFinished(() => void proxy.close());
  return {
    url: `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`,
    asked,
  };
}

const certificates = makeCertificates();
const folder = mkdtempSync(join(tmpdir(), 'source-ca-'));
const caFile = join(folder, 'ca.pem');
writeFileSync(caFile, certificates.authority);
afterAll(() => rmSync(folder, { recursive: true }));

async function serveTls(): Promise<URL> {
  const server = createHttpsServer(
    { key: certificates.key, cert: certificates.cert },
    answerGood,
  );
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  return new URL(`https://127.0.0.1:${(server.address() as AddressInfo).port}`);
}

describe('certificates of the source', () => {
  test('of an unknown authority are refused with the remedy', async () => {
    const source = testSource(await serveTls());
    const error = await failureOf(source.lists.page(PAGE, NEVER));
    expect(error).toMatchObject({
      code: 'SOURCE_CERTIFICATE',
      message: expect.stringContaining('NODE_EXTRA_CA_CERTS') as string,
    });
    expect(source.requests).toHaveLength(1);
  });

  test('of an authority in NODE_EXTRA_CA_CERTS are accepted', async () => {
    const source = testSource(await serveTls(), {
      ambient: { NODE_EXTRA_CA_CERTS: caFile },
    });
    expect((await source.lists.page(PAGE, NEVER)).rows).toHaveLength(1);
  });

  test('in a file that cannot be read are a configuration error', () => {
    const open = () =>
      testSource(new URL('https://x'), {
        ambient: { NODE_EXTRA_CA_CERTS: join(folder, 'none.pem') },
      });
    expect(open).toThrow(UsageError);
    expect(open).toThrow('NODE_EXTRA_CA_CERTS');
  });
});

describe('proxies', () => {
  test.each(['HTTPS_PROXY', 'https_proxy'])(
    '%s tunnels, and the certificate is the source’s own',
    async (name) => {
      const proxy = await startProxy();
      const url = await serveTls();
      const source = testSource(url, {
        ambient: { [name]: proxy.url, NODE_EXTRA_CA_CERTS: caFile },
      });
      expect((await source.lists.page(PAGE, NEVER)).rows).toHaveLength(1);
      expect(proxy.asked).toEqual([`CONNECT ${url.host}`]);
    },
  );

  test('of HTTP_PROXY are asked for http:// sources', async () => {
    const proxy = await startProxy();
    const source = testSource(new URL('http://ledger.invalid'), {
      ambient: { HTTP_PROXY: proxy.url },
    });
    await source.lists.page(PAGE, NEVER);
    expect(proxy.asked).toEqual([
      expect.stringMatching(
        /^(?:GET http:\/\/ledger\.invalid\/api|CONNECT ledger\.invalid)/,
      ),
    ]);
  });

  test('are bypassed for hosts of NO_PROXY', async () => {
    const proxy = await startProxy();
    const server = await serve(answerGood);
    const source = testSource(server.url, {
      ambient: { HTTP_PROXY: proxy.url, NO_PROXY: '127.0.0.1' },
    });
    await source.lists.page(PAGE, NEVER);
    expect(proxy.asked).toEqual([]);
  });

  test('that are not there make the source unreachable', async () => {
    const source = testSource(new URL('https://ledger.invalid'), {
      ambient: { HTTPS_PROXY: 'http://127.0.0.1:1' },
    });
    expect(await failureOf(source.lists.page(PAGE, NEVER))).toMatchObject({
      code: 'SOURCE_UNREACHABLE',
    });
  });

  test('without a valid URL are a configuration error', () => {
    expect(() =>
      testSource(new URL('https://x'), {
        ambient: { HTTPS_PROXY: 'socks5://x' },
      }),
    ).toThrow('HTTPS_PROXY');
  });
});

/** A proxy that answers every tunnel, and every plain request, with one status. */
async function startRefusingProxy(
  status: number,
): Promise<{ url: string; asked: string[] }> {
  const asked: string[] = [];
  const proxy = createHttpServer((request, response) => {
    asked.push(`${request.method} ${request.url}`);
    send(response, status, '<html>a proxy</html>');
  });
  proxy.on('connect', (request, client) => {
    asked.push(`CONNECT ${request.url}`);
    client.on('error', () => undefined);
    client.end(`HTTP/1.1 ${status} No\r\n\r\n`);
  });
  proxy.listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  onTestFinished(() => {
    proxy.close();
    proxy.closeAllConnections();
  });
  return {
    url: `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`,
    asked,
  };
}

describe('a proxy that refuses', () => {
  test.each([
    [407, 'https://ledger.invalid'],
    [403, 'https://ledger.invalid'],
    [407, 'http://ledger.invalid'],
    [403, 'http://ledger.invalid'],
  ])(
    'with %i ends a request to %s at once and is named',
    async (status, url) => {
      const proxy = await startRefusingProxy(status);
      const ambient = { https_proxy: proxy.url, http_proxy: proxy.url };
      const source = testSource(new URL(url), { ambient });
      const error = await failureOf(source.lists.page(PAGE, NEVER));

      expect(error).toBeInstanceOf(PermanentError);
      expect(error).toMatchObject({
        code: 'PROXY_REFUSED',
        message: expect.stringContaining(proxy.url) as string,
      });
      expect(proxy.asked).toHaveLength(1);
      expect(attributeFault(error)).toBe('source');
    },
  );

  test.each([
    [502, 'https://ledger.invalid'],
    [503, 'https://ledger.invalid'],
    [504, 'https://ledger.invalid'],
    [502, 'http://ledger.invalid'],
    [503, 'http://ledger.invalid'],
  ])(
    'with %i to %s is waited for like a source that is away',
    async (status, url) => {
      const proxy = await startRefusingProxy(status);
      const ambient = { https_proxy: proxy.url, http_proxy: proxy.url };
      const source = testSource(new URL(url), { ambient });
      const error = await failureOf(source.lists.page(PAGE, NEVER));

      expect(error).toBeInstanceOf(UnreachableError);
      expect(error).toMatchObject({
        code: 'SOURCE_UNREACHABLE',
        message: expect.stringContaining(proxy.url) as string,
      });
      expect(isSourceAway(error)).toBe(true);
      expect(proxy.asked.length).toBeGreaterThan(5);
    },
  );
});

test("the source's own refusal through a proxy stays the source's", async () => {
  const body = errorJson(7, 'PermissionDenied error');
  const server = await serve((_request, response) => send(response, 403, body));
  const source = testSource(new URL('http://ledger.invalid'), {
    ambient: { http_proxy: server.url.origin },
  });

  expect(await failureOf(source.lists.page(PAGE, NEVER))).toMatchObject({
    code: 'SOURCE_FORBIDDEN',
  });
});

test('a proxy is sent user and password, and the source is not', async () => {
  const seen: string[] = [];
  const server = await serve((request, response) => {
    seen.push(String(request.headers['proxy-authorization']));
    send(response, 200, GOOD);
  });
  const proxyUrl = `http://me:secret@127.0.0.1:${server.url.port}`;
  const viaProxy = testSource(new URL('http://ledger.invalid'), {
    ambient: { http_proxy: proxyUrl },
  });
  const direct = testSource(server.url, {
    ambient: { http_proxy: proxyUrl, no_proxy: '127.0.0.0/8' },
  });
  await viaProxy.lists.page(PAGE, NEVER);
  await direct.lists.page(PAGE, NEVER);

  const basic = Buffer.from('me:secret').toString('base64');
  expect(seen).toEqual([`Basic ${basic}`, 'undefined']);
});

test('SOURCE_HEADERS are sent with every request to the source', async () => {
  const seen: unknown[] = [];
  const server = await serve((request, response) => {
    seen.push(request.headers['x-api-key']);
    send(response, 200, GOOD);
  });
  const source = testSource(server.url, {
    sourceHeaders: { 'x-api-key': 'k1' },
  });
  await source.lists.page(PAGE, NEVER);

  expect(seen).toEqual(['k1']);
});

test('a source that demands a client certificate gets it', async () => {
  const { key, cert, authority } = certificates;
  const server = createHttpsServer(
    { key, cert, ca: authority, requestCert: true, rejectUnauthorized: true },
    answerGood,
  );
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  const url = new URL(
    `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
  );
  const ambient = { NODE_EXTRA_CA_CERTS: caFile };
  const source = testSource(url, {
    ambient,
    sourceClientCert: cert,
    sourceClientKey: key,
  });

  expect((await source.lists.page(PAGE, NEVER)).rows).toHaveLength(1);
});
