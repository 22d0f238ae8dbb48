import { createHash, randomUUID } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import {
  afterAll,
  beforeAll,
  beforeEach,
  describe,
  expect,
  test,
} from 'vitest';
import type { ObjectStore } from '../../src/storage/object-store.ts';
import { openS3Store } from '../../src/storage/s3/s3-store.ts';
import { CREDENTIALS, S3Double } from '../support/stores/s3-double.ts';
import { describeObjectStore } from './store-contract.ts';

const signal = new AbortController().signal;
const WRITTEN_ONCE = {
  put: 'honoured',
  multipart: 'honoured',
  hasOneWinner: true,
} as const;
/** Enough for two tries. */
const PATIENCE_MS = 500;
let double: S3Double;
let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-s3-'));
  double = await S3Double.start();
});
beforeEach(() => {
  double.fault = undefined;
  double.conditions = 'honoured';
  double.knowsChecksums = true;
  double.objects.clear();
  double.uploads.clear();
  double.calls.length = 0;
});
afterAll(async () => {
  await double[Symbol.asyncDispose]();
  await rm(folder, { recursive: true, force: true });
});

function ambientOf(
  secretAccessKey = CREDENTIALS.secretAccessKey,
): Record<string, string> {
  return {
    AWS_ACCESS_KEY_ID: CREDENTIALS.accessKeyId,
    AWS_SECRET_ACCESS_KEY: secretAccessKey,
  };
}

function openDouble(ambient = ambientOf(), bucket = 'bucket'): ObjectStore {
  const url = new URL(`s3://${bucket}/mirror/${randomUUID()}?region=eu-test-1`);
  url.searchParams.set('endpoint', double.endpoint);
  return openS3Store({
    url,
    spoolDir: join(folder, randomUUID()),
    ambient,
    patienceMs: PATIENCE_MS,
  });
}

describeObjectStore(
  'S3Store against the double',
  WRITTEN_ONCE,
  async () => openDouble(),
  async (store, keys) => {
    const prefix = new URL(store.url).pathname.slice(1);
    for (const key of keys) double.put(`${prefix}/${key}`, Buffer.from(key));
  },
);

describe('S3Store', () => {
  const content = Buffer.alloc(40 * 2 ** 20, 'ledger');
  const facts = {
    bytes: BigInt(content.length),
    sha256: createHash('sha256').update(content).digest('hex'),
  };
  async function large(store: ObjectStore): Promise<string> {
    const path = await store.spoolPath('large');
    await writeFile(path, content);
    return path;
  }
  const stored = (): Buffer | undefined =>
    [...double.objects.values()][0]?.content;

  test.each([
    ['knows checksums, as AWS does', true],
    ['knows none, as Ceph and Swift', false],
  ])(
    'sends a large file in parts to a store that %s, and the same file again without harm',
    async (_, knows) => {
      double.knowsChecksums = knows;
      await using store = openDouble();
      const path = await large(store);
      await store.publishFile('a/large', path, facts, signal);
      expect(stored()?.equals(content)).toBe(true);
      expect(
        double.calls.filter((call) => call === 'PUT partNumber&uploadId'),
      ).toHaveLength(3);
      await store.publishFile('a/large', path, facts, signal);
      expect([double.objects.size, double.uploads.size]).toEqual([1, 0]);
      expect(await store.head('a/large', signal)).toEqual(facts);
    },
  );

  test.each([
    ['a lost answer to PUT', 'PUT', 'lose'],
    ['a server error on PUT', 'PUT', 'InternalError'],
    ['a slow-down on PUT', 'PUT', 'SlowDown'],
  ])('settles %s by asking', async (_, method, code) => {
    await using store = openDouble();
    let faults = 1;
    double.fault = (call, stage) => {
      if (call.method !== method || stage !== 'after' || faults === 0)
        return undefined;
      faults -= 1;
      return code;
    };
    await store.publishBytes('a/small', Buffer.from('small'), signal);
    expect(stored()?.toString()).toBe('small');
  });

  test('settles a lost answer to the last call of a large file by asking', async () => {
    await using store = openDouble();
    const path = await large(store);
    double.fault = (call, stage) =>
      call.method === 'POST' && call.query.has('uploadId') && stage === 'after'
        ? 'lose'
        : undefined;
    await store.publishFile('a/large', path, facts, signal);
    expect(stored()?.equals(content)).toBe(true);
  });

  test('gives up an upload that fails, and sweeps those that others left', async () => {
    await using store = openDouble();
    const path = await large(store);
    double.fault = (call) =>
      call.query.has('partNumber') ? 'InternalError' : undefined;
    await expect(
      store.publishFile('a/large', path, facts, signal),
    ).rejects.toThrow(expect.objectContaining({ code: 'OBJECT_STORE_BUSY' }));
    expect([double.objects.size, double.uploads.size]).toEqual([0, 0]);
    const prefix = new URL(store.url).pathname.slice(1);
    const left = {
      key: `${prefix}/a/left`,
      metadata: {},
      initiated: new Date(0),
      parts: new Map(),
    };
    // More than a page of them.
    for (const name of ['1', '2', '3', '4', '5'])
      double.uploads.set(`left ${name}`, left);
    double.uploads.set('foreign', { ...left, key: 'other/a/left' });
    expect(await store.removeAbandoned(60_000, signal)).toBe(5);
    expect([...double.uploads.keys()]).toEqual(['foreign']);
  });

  test.each([
    ['once', 1],
    ['each time', Number.POSITIVE_INFINITY],
  ])(
    'an error inside a 200 of the last call, %s, is no success',
    async (_, times) => {
      await using store = openDouble();
      const path = await large(store);
      let faults = 0;
      double.fault = (call, stage) => {
        if (
          call.method !== 'POST' ||
          !call.query.has('uploadId') ||
          stage !== 'before'
        )
          return undefined;
        faults += 1;
        return faults > times ? undefined : '200 InternalError';
      };
      const failure = await store
        .publishFile('a/large', path, facts, signal)
        .then(
          () => undefined,
          (error: Error & { code: string }) => [error.name, error.code],
        );
      expect(failure).toEqual(
        times === 1 ? undefined : ['RetryableError', 'OBJECT_STORE_BUSY'],
      );
      expect(stored()?.equals(content)).toBe(times === 1 ? true : undefined);
      expect([faults > 1, double.uploads.size]).toEqual([true, 0]);
    },
  );

  test('continues a read that broke off where it broke', async () => {
    await using store = openDouble();
    await store.publishBytes('a/b', content.subarray(0, 2 ** 20), signal);
    let cuts = 0;
    double.fault = (call, stage) => {
      if (call.method !== 'GET' || stage !== 'after' || cuts === 3)
        return undefined;
      cuts += 1;
      return 'cut';
    };
    const read = Buffer.concat(
      await (await store.read('a/b', signal)).toArray(),
    );
    expect([cuts, read.equals(content.subarray(0, 2 ** 20))]).toEqual([
      3,
      true,
    ]);
  });

  test('continues a read of which the connection breaks at each of many pauses', async () => {
    await using store = openDouble();
    const whole = content.subarray(0, 4 * 2 ** 20);
    await store.publishBytes('a/b', whole, signal);
    let cuts = 0;
    double.fault = (call, stage) => {
      if (call.method !== 'GET' || stage !== 'after') return undefined;
      cuts += 1;
      return `cut ${2 ** 17}`;
    };
    const parts: Buffer[] = [];
    for await (const part of await store.read('a/b', signal)) {
      parts.push(part as Buffer);
      await setImmediate();
    }
    expect(Buffer.concat(parts).equals(whole)).toBe(true);
    expect(cuts).toBeGreaterThan(20);
  });

  test('asks again where the answer to a look-up breaks off, and fails where it always does', async () => {
    await using store = openDouble();
    await store.publishBytes('a/b', content.subarray(0, 2 ** 20), signal);
    let cuts = 0;
    double.fault = (call, stage) => {
      if (call.method !== 'GET' || stage !== 'after' || cuts === 3)
        return undefined;
      cuts += 1;
      return 'cut';
    };
    expect([await store.head('a/b', signal), cuts]).toMatchObject([
      { bytes: 2n ** 20n },
      3,
    ]);
    double.fault = (call, stage) =>
      call.method === 'GET' && stage === 'after' ? 'cut' : undefined;
    await expect(store.head('a/b', signal)).rejects.toMatchObject({
      code: 'OBJECT_STORE_BUSY',
      name: 'RetryableError',
    });
  });

  test('fails with a retryable error where a read breaks off each time', async () => {
    await using store = openDouble();
    await store.publishBytes('a/b', content.subarray(0, 2 ** 20), signal);
    double.fault = (call, stage) =>
      call.method === 'GET' && stage === 'after' ? 'cut' : undefined;
    await expect(
      (await store.read('a/b', signal)).toArray(),
    ).rejects.toMatchObject({
      code: 'OBJECT_STORE_BUSY',
      name: 'RetryableError',
    });
  });

  test('does not wait for a silent store when it is told to stop', async () => {
    await using store = openDouble();
    const path = await large(store);
    const stop = new AbortController();
    double.fault = (call) => {
      if (!call.query.has('uploadId')) return undefined;
      stop.abort(new Error('stopped'));
      return 'hang';
    };
    await expect(
      store.publishFile('a/large', path, facts, stop.signal),
    ).rejects.toThrow('stopped');
  });

  test('ignores an upload that is already gone when it sweeps', async () => {
    await using store = openDouble();
    const prefix = new URL(store.url).pathname.slice(1);
    const left = {
      key: `${prefix}/a/left`,
      metadata: {},
      initiated: new Date(0),
      parts: new Map(),
    };
    double.uploads.set('left', left);
    double.fault = (call, stage) => {
      if (call.method === 'DELETE' && stage === 'before')
        double.uploads.clear();
      return undefined;
    };
    double.uploads.set('other', left);
    expect(await store.removeAbandoned(60_000, signal)).toBe(0);
  });

  test.each(['refused', 'ignored'] as const)(
    'keeps what lies there where conditions are %s',
    async (conditions) => {
      await using store = openDouble();
      double.conditions = conditions;
      expect(await store.probe(signal)).toEqual({
        put: conditions,
        multipart: conditions,
        hasOneWinner: false,
      });
      await store.publishBytes('a/plain', Buffer.from('one'), signal);
      await store.publishBytes('a/plain', Buffer.from('one'), signal);
      await expect(
        store.publishBytes('a/plain', Buffer.from('two'), signal),
      ).rejects.toThrow(expect.objectContaining({ code: 'OBJECT_CONFLICT' }));
      expect(stored()?.toString()).toBe('one');
    },
  );

  test.each([
    ['ExpiredToken', 'OBJECT_STORE_CREDENTIALS'],
    ['AccessDenied', 'OBJECT_STORE_REFUSED'],
    ['PermanentRedirect', 'OBJECT_STORE_REFUSED'],
  ])(
    'tells the error of the write that was refused: %s',
    async (name, code) => {
      await using store = openDouble();
      double.fault = ({ method }) => (method === 'PUT' ? name : undefined);
      const refused = {
        name: 'PermanentError',
        code,
        message: expect.stringContaining(name) as string,
      };
      await expect(
        store.publishBytes('a/b', Buffer.from('x'), signal),
      ).rejects.toMatchObject(refused);
      expect(double.calls.filter((call) => call === 'PUT')).toHaveLength(1);
    },
  );

  test('takes the region for us-east-1 where an endpoint is given and no region', async () => {
    const url = new URL('s3://bucket/mirror');
    url.searchParams.set('endpoint', double.endpoint);
    await using store = openS3Store({
      url,
      spoolDir: folder,
      ambient: ambientOf(),
    });
    await store.publishBytes('a/b', Buffer.from('x'), signal);
    expect(stored()?.toString()).toBe('x');
  });

  test.each([
    ['no region', 's3://bucket/mirror', 'OBJECT_STORE_CONFIGURATION'],
    [
      'another protocol',
      's3://bucket/mirror?endpoint=TLS',
      'OBJECT_STORE_CONFIGURATION',
    ],
  ])('does not try again what cannot work: %s', async (_, text, code) => {
    const url = new URL(
      text.replace(
        'TLS',
        encodeURIComponent(double.endpoint.replace('http:', 'https:')),
      ),
    );
    await using store = openS3Store({
      url,
      spoolDir: folder,
      ambient: ambientOf(),
    });
    await expect(store.head('a', signal)).rejects.toMatchObject({
      name: 'PermanentError',
      code,
    });
  });

  test('refuses an endpoint that is no URL at once', () => {
    const url = new URL('s3://bucket/mirror?endpoint=not-a-url');
    expect(() =>
      openS3Store({ url, spoolDir: folder, ambient: ambientOf() }),
    ).toThrow(/OBJECT_STORE_URL: its endpoint/);
  });

  test.each([
    [
      'a wrong secret',
      () => openDouble(ambientOf('wrong')),
      'OBJECT_STORE_CREDENTIALS',
    ],
    [
      'a bucket that is not there',
      () => openDouble(ambientOf(), 'nowhere'),
      'OBJECT_STORE_REFUSED',
    ],
  ])('says what is wrong: %s', async (_, open, code) => {
    await using store = open();
    await expect(
      store.publishBytes('a/b', Buffer.from('x'), signal),
    ).rejects.toThrow(expect.objectContaining({ code }));
  });

  test('tells a fault of the local disk as one of the disk, with its path', async () => {
    await writeFile(join(folder, 'no-folder'), '');
    const url = new URL('s3://bucket/x?region=r');
    const spoolDir = join(folder, 'no-folder', 'spool');
    await using store = openS3Store({ url, spoolDir, ambient: ambientOf() });
    await expect(store.spoolPath('x')).rejects.toMatchObject({
      code: 'OBJECT_STORE_ENOTDIR',
      message: expect.stringContaining(spoolDir) as string,
    });
  });

  test('reports an endpoint where nobody listens as unreachable', async () => {
    const url = new URL(
      's3://bucket/x?region=r&endpoint=http%3A%2F%2F127.0.0.1%3A1',
    );
    await using store = openS3Store({
      url,
      spoolDir: folder,
      ambient: ambientOf(),
      patienceMs: 200,
    });
    await expect(store.head('a', signal)).rejects.toThrow(
      expect.objectContaining({ code: 'OBJECT_STORE_UNREACHABLE' }),
    );
  });
});
