/** Credentials of S3 that are replaced in their file while a process works with them. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { contentFacts } from '../../src/files/byte-counter.ts';
import { openS3Store } from '../../src/storage/s3/s3-store.ts';
import { S3Double } from '../support/stores/s3-double.ts';
import type { Credentials } from '../support/stores/s3-signature.ts';
import { NEVER_ABORTED } from '../support/samples.ts';

const FIRST: Credentials = { accessKeyId: 'first', secretAccessKey: 'one' };
const SECOND: Credentials = { accessKeyId: 'second', secretAccessKey: 'two' };

test('the S3 store goes on with the credentials in the file after they were replaced', async () => {
  const world = await openWorld();
  await world.write(FIRST);
  world.double.credentials = FIRST;
  await world.put('one');

  world.double.credentials = SECOND;
  await world.write(SECOND);
  await Promise.all(['two', 'three', 'four'].map((key) => world.put(key)));
  expect([...world.double.objects.keys()].toSorted()).toEqual(
    ['four', 'one', 'three', 'two'].map((key) => `mirror/${key}`),
  );
});

test('the S3 store uploads in parts with credentials that were replaced before', async () => {
  const world = await openWorld();
  await world.write(FIRST);
  world.double.credentials = FIRST;
  await world.put('one');

  await world.write(SECOND);
  world.double.credentials = SECOND;
  const content = Buffer.alloc(17 * 2 ** 20, 'x');
  const path = await world.store.spoolPath('large');
  await writeFile(path, content);
  await world.store.publishFile(
    'large',
    path,
    contentFacts(content),
    NEVER_ABORTED,
  );
  expect(world.double.objects.get('mirror/large')?.content).toHaveLength(
    content.length,
  );
});

test('the S3 store is refused as long as the file holds no other credentials, and goes on afterwards', async () => {
  const world = await openWorld();
  await world.write(FIRST);
  world.double.credentials = SECOND;
  const refused = { code: 'OBJECT_STORE_CREDENTIALS' };
  await expect(world.put('one')).rejects.toMatchObject(refused);
  expect(world.store.secret?.refusedForMs()).toBeDefined();
  // A file that is being replaced is missing, or empty, for a moment.
  await world.remove();
  await expect(world.put('one')).rejects.toMatchObject(refused);

  await world.write(SECOND);
  // That an object is absent is an answer to credentials that are accepted.
  expect(await world.store.head('one', NEVER_ABORTED)).toBeUndefined();
  expect(world.store.secret?.refusedForMs()).toBeUndefined();
  await world.put('one');
});

test('the S3 store names the origin of its credentials, never a key', async () => {
  const world = await openWorld();
  expect(world.store.secret?.name).toBe(
    `AWS_SHARED_CREDENTIALS_FILE (${world.path})`,
  );
});

async function openWorld() {
  const dir = await mkdtemp(join(tmpdir(), 'lm-s3-keys-'));
  const path = join(dir, 'credentials');
  const double = await S3Double.start();
  const ambient = {
    AWS_SHARED_CREDENTIALS_FILE: path,
    AWS_CONFIG_FILE: join(dir, 'config'),
    AWS_EC2_METADATA_DISABLED: 'true',
  };
  // The SDK looks for its files in the environment of the process.
  for (const [name, value] of Object.entries(ambient)) vi.stubEnv(name, value);
  vi.stubEnv('AWS_ACCESS_KEY_ID', undefined);
  vi.stubEnv('AWS_SECRET_ACCESS_KEY', undefined);
  const url = new URL('s3://bucket/mirror?region=eu-test-1');
  url.searchParams.set('endpoint', double.endpoint);
  const store = openS3Store({ url, spoolDir: join(dir, 'spool'), ambient });
  onTestFinished(async () => {
    vi.unstubAllEnvs();
    await store[Symbol.asyncDispose]();
    await double[Symbol.asyncDispose]();
    await rm(dir, { recursive: true, force: true });
  });
  return {
    double,
    store,
    path,
    write: ({ accessKeyId, secretAccessKey }: Credentials) =>
      writeFile(
        path,
        `[default]\naws_access_key_id = ${accessKeyId}\n` +
          `aws_secret_access_key = ${secretAccessKey}\n`,
      ),
    remove: () => rm(path),
    put: (key: string) =>
      store.publishBytes(key, Buffer.from(key), NEVER_ABORTED),
  };
}
