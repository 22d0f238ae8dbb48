/**
 * What OBJECT_STORE_URL says beside the bucket reaches the requests: the address style, the
 * encryption, the storage class; and the proxy that stands on the way.
 */
import { createHash, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import {
  createServer,
  request as sendRequest,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import {
  afterAll,
  beforeAll,
  beforeEach,
  describe,
  expect,
  onTestFinished,
  test,
} from 'vitest';
import { readConfig } from '../../src/config/environment.ts';
import type { ObjectStore } from '../../src/storage/object-store.ts';
import { openS3Store } from '../../src/storage/s3/s3-store.ts';
import { CREDENTIALS, S3Double } from '../support/stores/s3-double.ts';

const signal = new AbortController().signal;
const ENDPOINT = 'http://s3.cloud.test';
let double: S3Double;
let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-s3-settings-'));
  double = await S3Double.start();
});
beforeEach(() => {
  double.fault = undefined;
  double.objects.clear();
});
afterAll(async () => {
  await double[Symbol.asyncDispose]();
  await rm(folder, { recursive: true, force: true });
});

function openStore(
  parameters: Readonly<Record<string, string>>,
  ambient: Readonly<Record<string, string>> = {},
): ObjectStore {
  const url = new URL('s3://bucket/mirror?region=eu-test-1');
  for (const [name, value] of Object.entries(parameters))
    url.searchParams.set(name, value);
  return openS3Store({
    url,
    spoolDir: join(folder, randomUUID()),
    ambient: {
      AWS_ACCESS_KEY_ID: CREDENTIALS.accessKeyId,
      AWS_SECRET_ACCESS_KEY: CREDENTIALS.secretAccessKey,
      ...ambient,
    },
    patienceMs: 500,
  });
}

interface Proxy {
  readonly url: string;
  readonly asked: string[];
}

/**
 * Sends what is meant for the cloud's names to the double, where the bucket stands in the path.
 * @param answer takes the place of the double's
 */
async function startProxy(
  answer?: (response: ServerResponse) => void,
): Promise<Proxy> {
  const asked: string[] = [];
  const forward = async (
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> => {
    asked.push(`${request.method} ${request.url}`);
    if (answer !== undefined) {
      answer(response);
      return;
    }
    const { pathname, search } = new URL(request.url ?? '');
    const upstream = sendRequest(double.endpoint, {
      method: request.method,
      path: `${pathname}${search}`,
      headers: request.headers,
    });
    const answered = once(upstream, 'response');
    await pipeline(request, upstream);
    const [received] = (await answered) as [IncomingMessage];
    response.writeHead(received.statusCode ?? 500, received.headers);
    await pipeline(received, response);
  };
  const proxy = createServer((request, response) => {
    void forward(request, response);
  });
  proxy.listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  onTestFinished(() => {
    proxy.closeAllConnections();
    proxy.close();
  });
  const { port } = proxy.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}`, asked };
}

describe('an address of the object store', () => {
  test.each([
    ['path', {}, `PUT ${ENDPOINT}/bucket/mirror/a`],
    ['path', { style: 'path' }, `PUT ${ENDPOINT}/bucket/mirror/a`],
    [
      'host name',
      { style: 'virtual' },
      'PUT http://bucket.s3.cloud.test/mirror/a',
    ],
  ])('has the bucket in its %s for %o', async (_, parameters, expected) => {
    const refuse = (response: ServerResponse): void => {
      response.writeHead(403).end();
    };
    const proxy = await startProxy(refuse);
    await using store = openStore(
      { endpoint: ENDPOINT, ...parameters },
      { HTTP_PROXY: proxy.url },
    );
    await expect(
      store.replaceBytes('a', Buffer.from('a'), signal),
    ).rejects.toThrow('403');
    expect(proxy.asked[0]?.split('?')[0]).toBe(expected);
  });

  test('of the wrong style is answered with the parameter to add', async () => {
    double.fault = () => 'SecondLevelDomainForbidden';
    await using store = openStore({ endpoint: double.endpoint });
    await expect(store.head('a', signal)).rejects.toThrow(
      expect.objectContaining({
        code: 'OBJECT_STORE_CONFIGURATION',
        message: expect.stringContaining('style=virtual') as string,
      }),
    );
  });
});

describe('what is written', () => {
  const LARGE = Buffer.alloc(17 * 2 ** 20, 'ledger');
  const SENT = [
    'x-amz-server-side-encryption',
    'x-amz-server-side-encryption-aws-kms-key-id',
    'x-amz-storage-class',
  ];

  async function headersOfWrites(
    parameters: Readonly<Record<string, string>>,
  ): Promise<readonly unknown[]> {
    const writes: IncomingHttpHeaders[] = [];
    double.fault = ({ method, query, headers }) => {
      const isWhole = method === 'PUT' && !query.has('partNumber');
      const isBegun = method === 'POST' && query.has('uploads');
      if (isWhole || isBegun) writes.push(headers);
      return undefined;
    };
    await using store = openStore({
      endpoint: double.endpoint,
      ...parameters,
    });
    await store.publishBytes('small', Buffer.from('small'), signal);
    await store.replaceBytes('newest', Buffer.from('newest'), signal);
    const path = await store.spoolPath('large');
    await writeFile(path, LARGE);
    const sha256 = createHash('sha256').update(LARGE).digest('hex');
    const facts = { bytes: BigInt(LARGE.length), sha256 };
    await store.publishFile('large', path, facts, signal);
    // Twice, because the double is asked before and after each call.
    expect(writes).toHaveLength(6);
    return [
      ...new Set(
        writes.map((headers) => SENT.map((name) => headers[name]).join()),
      ),
    ];
  }

  test('has the encryption and the storage class of OBJECT_STORE_URL, in one PUT and in parts', async () => {
    const sent = await headersOfWrites({
      sse: 'aws:kms',
      'kms-key': 'alias/ledger',
      'storage-class': 'STANDARD_IA',
    });
    expect(sent).toEqual(['aws:kms,alias/ledger,STANDARD_IA']);
  });

  test('has none of the three if OBJECT_STORE_URL names none', async () => {
    expect(await headersOfWrites({})).toEqual([',,']);
  });

  test.each([
    ['AccessDenied', 'sse=aws:kms'],
    ['KMS.DisabledException', 'KMS key'],
    ['InvalidObjectState', 'archive'],
  ])('or read and is refused with %s says %s', async (code, said) => {
    double.fault = () => code;
    await using store = openStore({ endpoint: double.endpoint });
    await expect(store.head('a', signal)).rejects.toThrow(
      expect.objectContaining({
        code: expect.stringMatching(/^OBJECT_STORE_(?:REFUSED|ARCHIVED)$/),
        message: expect.stringContaining(said) as string,
      }),
    );
  });
});

describe('OBJECT_STORE_URL', () => {
  const configured = (text: string): (() => unknown) => {
    return () =>
      readConfig({ env: { OBJECT_STORE_URL: text }, cwd: '/' }).objectStoreUrl;
  };

  test.each([
    'style=virtual',
    'style=path&sse=AES256',
    'sse=aws:kms&kms-key=arn:aws:kms:eu-central-1:1234:key/ab-cd',
    'sse=aws:kms:dsse&storage-class=GLACIER_IR',
  ])('takes %s', (parameters) => {
    const text = `s3://bucket/mirror?${parameters}`;
    expect(configured(text)()).toEqual(new URL(text));
  });

  test.each([
    ['style=vhost', 'style=vhost, which is not known'],
    ['sse=kms', 'sse=kms, which is not known'],
    ['kms-key=alias/ledger', 'kms-key= without sse=aws:kms'],
    ['storage-class=GLACIER', 'names an archive'],
    ['storage-class=DEEP_ARCHIVE', 'names an archive'],
    ['acl=private', 'the parameter acl=, which is not known'],
  ])('refuses %s and says why', (parameters, why) => {
    expect(configured(`s3://bucket/mirror?${parameters}`)).toThrow(why);
  });
});

describe('a proxy on the way to the object store', () => {
  test('is passed, and left out for the names of NO_PROXY', async () => {
    const proxy = await startProxy();
    const through = { HTTP_PROXY: proxy.url };
    await using store = openStore({ endpoint: ENDPOINT }, through);
    await store.publishBytes('a', Buffer.from('a'), signal);
    expect(double.objects.size).toBe(1);
    expect(proxy.asked.length).toBeGreaterThan(0);

    proxy.asked.length = 0;
    await using direct = openStore(
      { endpoint: double.endpoint },
      { ...through, NO_PROXY: '127.0.0.0/8' },
    );
    await direct.publishBytes('b', Buffer.from('b'), signal);
    expect(proxy.asked).toEqual([]);
  });

  test.each([407, 403])(
    'that refuses with %i is named, and asked once',
    async (status) => {
      const proxy = await startProxy((response) => {
        response
          .writeHead(status, { 'content-type': 'text/html' })
          .end('<html>squid</html>');
      });
      await using store = openStore(
        { endpoint: ENDPOINT },
        { HTTP_PROXY: proxy.url },
      );
      await expect(store.head('a', signal)).rejects.toThrow(
        expect.objectContaining({
          code: 'OBJECT_STORE_REFUSED',
          message: expect.stringMatching(/proxy on the way.*HTTP_PROXY/),
        }),
      );
      expect(proxy.asked).toHaveLength(1);
    },
  );
});
