/**
 * What goes wrong between the mirror and a real S3 server: refusals, outages, lost
 * answers, flipped bits.
 */
import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { buffer } from 'node:stream/consumers';
import {
  CreateMultipartUploadCommand,
  ListMultipartUploadsCommand,
} from '@aws-sdk/client-s3';
import { describe, expect, test, vi } from 'vitest';
import type { ObjectStore } from '../../src/storage/object-store.ts';
import { makeCertificates } from '../source/certificate.ts';
import {
  type Keys,
  newKeys,
  rawClient,
  type RealStore,
} from '../support/stores/real-store.ts';
import {
  type Mishap,
  type Passing,
  StoreProxy,
} from '../support/stores/store-proxy.ts';
import { waitFor } from '../support/wait-for.ts';
import { openStoreOn, type StoreUnderTest } from './store-under-test.ts';

const signal = new AbortController().signal;
const MIB = 2 ** 20;
const OUTAGE_MS = 10_000;

interface Large {
  readonly path: string;
  readonly facts: { readonly bytes: bigint; readonly sha256: string };
}

async function spoolLarge(store: ObjectStore, mib: number): Promise<Large> {
  const content = randomBytes(mib * MIB);
  const path = await store.spoolPath('large');
  await writeFile(path, content);
  const sha256 = createHash('sha256').update(content).digest('hex');
  return { path, facts: { bytes: BigInt(content.length), sha256 } };
}

async function sha256Of(store: ObjectStore, key: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of await store.read(key, signal))
    hash.update(chunk as Buffer);
  return hash.digest('hex');
}

/** Keys of uploads that are not finished, below the store's prefix. */
async function uploadsOf(
  server: RealStore,
  store: ObjectStore,
): Promise<readonly string[]> {
  const client = rawClient(server);
  const prefix = new URL(store.url).pathname.slice(1);
  const command = new ListMultipartUploadsCommand({
    Bucket: server.bucket,
    Prefix: `${prefix}/`,
  });
  const { Uploads: uploads = [] } = await client.send(command);
  client.destroy();
  return uploads.map(({ Key }) => Key ?? '');
}

/** The first calls that fit have the mishap, as often as said. */
function mishaps(
  mishap: Mishap,
  times: number,
  fits: (call: Passing) => boolean,
): (call: Passing) => Mishap {
  let left = times;
  return (call) => {
    if (left === 0 || !fits(call)) return undefined;
    left -= 1;
    return mishap;
  };
}

const isPut = ({ method }: Passing): boolean => method === 'PUT';
const isComplete = ({ method, path }: Passing): boolean =>
  method === 'POST' && path.includes('uploadId=');

export function describeRefusals(running: StoreUnderTest): void {
  describe('a refusal of the store', () => {
    test('a wrong secret has an error code of its own in writes, reads and listings', async () => {
      const keys = { ...running().keys, secretAccessKey: 'wrong' };
      await using store = openStoreOn(running(), { keys });
      const refused = {
        code: 'OBJECT_STORE_CREDENTIALS',
        message: expect.stringContaining('SignatureDoesNotMatch') as string,
      };
      await expect(
        store.publishBytes('a', Buffer.from('x'), signal),
      ).rejects.toMatchObject(refused);
      await expect(store.head('a', signal)).rejects.toMatchObject(refused);
      await expect(
        store.list('', signal)[Symbol.asyncIterator]().next(),
      ).rejects.toMatchObject(refused);
      await expect(store.probe(signal)).rejects.toMatchObject(refused);
    });

    test('an unknown key is reported as wrong credentials', async () => {
      const keys = { ...running().keys, accessKeyId: 'nobody:here' };
      await using store = openStoreOn(running(), { keys });
      await expect(
        store.publishBytes('a', Buffer.from('x'), signal),
      ).rejects.toMatchObject({
        code: 'OBJECT_STORE_CREDENTIALS',
        message: expect.stringMatching(
          /InvalidAccessKeyId|SignatureDoesNotMatch/,
        ) as string,
      });
    });

    test('keys that were replaced in their file are used at the next refusal', async () => {
      const dir = await mkdtemp(join(tmpdir(), 'lm-store-keys-'));
      const path = join(dir, 'credentials');
      const writeKeys = ({ accessKeyId, secretAccessKey }: Keys) =>
        writeFile(
          path,
          `[default]\naws_access_key_id = ${accessKeyId}\n` +
            `aws_secret_access_key = ${secretAccessKey}\n`,
        );
      // The SDK looks for its files in the environment of the process.
      vi.stubEnv('AWS_SHARED_CREDENTIALS_FILE', path);
      vi.stubEnv('AWS_ACCESS_KEY_ID', undefined);
      vi.stubEnv('AWS_SECRET_ACCESS_KEY', undefined);
      try {
        await writeKeys(newKeys('withdrawn'));
        const ambient = { AWS_SHARED_CREDENTIALS_FILE: path };
        await using store = openStoreOn(running(), { ambient });
        await expect(
          store.publishBytes('a', Buffer.from('x'), signal),
        ).rejects.toMatchObject({ code: 'OBJECT_STORE_CREDENTIALS' });
        expect(store.secret?.refusedForMs()).toBeDefined();

        await writeKeys(running().keys);
        await store.publishBytes('a', Buffer.from('x'), signal);
        expect(store.secret?.refusedForMs()).toBeUndefined();
        expect(await store.head('a', signal)).toMatchObject({ bytes: 1n });
      } finally {
        vi.unstubAllEnvs();
        await rm(dir, { recursive: true, force: true });
      }
    });

    test('a write with read-only rights is refused, and reading works', async () => {
      const prefix = randomBytes(8).toString('hex');
      await using owner = openStoreOn(running(), { prefix });
      await owner.publishBytes('a', Buffer.from('content'), signal);
      await using reader = openStoreOn(running(), {
        prefix,
        keys: running().readOnlyKeys,
      });
      const refused = {
        code: 'OBJECT_STORE_REFUSED',
        message: expect.stringContaining('AccessDenied') as string,
      };
      await expect(
        reader.publishBytes('b', Buffer.from('x'), signal),
      ).rejects.toMatchObject(refused);
      await expect(reader.probe(signal)).rejects.toMatchObject(refused);
      expect((await buffer(await reader.read('a', signal))).toString()).toBe(
        'content',
      );
    });

    test('a missing bucket is reported', async () => {
      await using store = openStoreOn({
        ...running(),
        bucket: 'nowhere',
        endpoint: running().endpoint,
      });
      await expect(
        store.publishBytes('a', Buffer.from('x'), signal),
      ).rejects.toMatchObject({
        code: 'OBJECT_STORE_REFUSED',
        message: expect.stringContaining('NoSuchBucket') as string,
      });
    });

    test('an untrusted certificate ends the call at once', async () => {
      await using proxy = await StoreProxy.before(
        running().endpoint,
        makeCertificates(),
      );
      await using store = openStoreOn(running(), { endpoint: proxy.endpoint });
      await expect(store.head('a', signal)).rejects.toMatchObject({
        name: 'PermanentError',
        code: 'OBJECT_STORE_CERTIFICATE',
      });
    });
  });
}

export function describeMishaps(running: StoreUnderTest): void {
  describe('a transfer to or from the store', () => {
    test.each([
      ['a small object', 1, isPut],
      ['an object in parts', 17, isComplete],
    ])(
      'an answer that is lost is settled by asking: %s',
      async (_, mib, fits) => {
        await using proxy = await StoreProxy.before(running().endpoint);
        await using store = openStoreOn(running(), {
          endpoint: proxy.endpoint,
        });
        const { path, facts } = await spoolLarge(store, mib);
        proxy.judge = mishaps('lose', 1, fits);
        await store.publishFile('a', path, facts, signal);
        expect(await sha256Of(store, 'a')).toBe(facts.sha256);
        expect(await uploadsOf(running(), store)).toEqual([]);
      },
    );

    test.each([
      ['a small object', 1],
      ['an object in parts', 17],
    ])('a flipped bit is noticed and sent again: %s', async (_, mib) => {
      await using proxy = await StoreProxy.before(running().endpoint);
      await using store = openStoreOn(running(), { endpoint: proxy.endpoint });
      const { path, facts } = await spoolLarge(store, mib);
      proxy.judge = mishaps('flip', 1, isPut);
      await store.publishFile('a', path, facts, signal);
      expect(await sha256Of(store, 'a')).toBe(facts.sha256);
    });

    test('a transfer with a flipped bit is a retryable error and stores nothing', async () => {
      await using proxy = await StoreProxy.before(running().endpoint);
      await using store = openStoreOn(running(), { endpoint: proxy.endpoint });
      proxy.judge = (call) => (isPut(call) ? 'flip' : undefined);
      await expect(
        store.publishBytes('a', Buffer.from('content'), signal),
      ).rejects.toMatchObject({
        name: 'RetryableError',
        code: 'OBJECT_STORE_DAMAGED',
      });
      expect(await store.head('a', signal)).toBeUndefined();
    });

    test('a download that broke off continues at the break', async () => {
      await using proxy = await StoreProxy.before(running().endpoint);
      await using store = openStoreOn(running(), { endpoint: proxy.endpoint });
      const { path, facts } = await spoolLarge(store, 17);
      await store.publishFile('a', path, facts, signal);
      proxy.judge = mishaps('cut', 3, ({ method }) => method === 'GET');
      expect(await sha256Of(store, 'a')).toBe(facts.sha256);
    });
  });
}

export function describeOutages(running: StoreUnderTest): void {
  describe('an outage of the store', () => {
    test('a call waits out ten seconds without the store', async () => {
      const server = running();
      await using store = openStoreOn(server);
      await server.killGateway();
      const writing = store.publishBytes('a', Buffer.from('content'), signal);
      await sleep(OUTAGE_MS);
      await server.startGateway();
      await writing;
      expect((await buffer(await store.read('a', signal))).toString()).toBe(
        'content',
      );
    });

    test('a longer outage is reported with the store’s name', async () => {
      const server = running();
      await using store = openStoreOn(server, { patienceMs: 500 });
      await server.killGateway();
      try {
        await expect(
          store.publishBytes('a', Buffer.from('x'), signal),
        ).rejects.toMatchObject({
          name: 'UnreachableError',
          code: 'OBJECT_STORE_UNREACHABLE',
          message: expect.stringContaining('ECONNREFUSED') as string,
        });
      } finally {
        await server.startGateway();
      }
    });

    test('a probe of a silent store ends in time', async () => {
      const server = running();
      await using store = openStoreOn(server);
      server.freezeGateway();
      try {
        await expect(store.probe(signal, 1_000)).rejects.toMatchObject({
          name: 'UnreachableError',
          message: expect.stringContaining('no answer within 1 s') as string,
        });
      } finally {
        server.thawGateway();
      }
    });

    test('an outage between parts leaves a complete object and no upload', async () => {
      const server = running();
      await using store = openStoreOn(server);
      const { path, facts } = await spoolLarge(store, 150);
      const writing = store.publishFile('a', path, facts, signal);
      await waitFor(async () => (await uploadsOf(server, store)).length > 0, {
        what: 'an upload on its way',
      });
      await server.killGateway();
      await sleep(2_000);
      await server.startGateway();
      await writing;
      expect(await store.head('a', signal)).toEqual(facts);
      expect(await sha256Of(store, 'a')).toBe(facts.sha256);
      expect(await uploadsOf(server, store)).toEqual([]);
    });

    test('garbage collection removes the upload that a killed process left behind', async () => {
      const server = running();
      await using store = openStoreOn(server);
      const client = rawClient(server);
      const Key = `${new URL(store.url).pathname.slice(1)}/a/left`;
      await client.send(
        new CreateMultipartUploadCommand({ Bucket: server.bucket, Key }),
      );
      client.destroy();
      expect(await store.removeAbandoned(3_600_000, signal)).toBe(0);
      expect(await store.removeAbandoned(-60_000, signal)).toBe(1);
      expect(await uploadsOf(server, store)).toEqual([]);
    });
  });
}
