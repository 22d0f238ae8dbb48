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
import { UsageError } from '../../../src/errors/errors.ts';
import { makeCertificates } from '../certificate.ts';
import { failureOf, NEVER, PARTY, testSource } from '../test-source.ts';
import { pageJson, send, serve } from './wire-server.ts';

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
