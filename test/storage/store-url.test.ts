import { pathToFileURL } from 'node:url';
import { describe, expect, test } from 'vitest';
import { openFileStore } from '../../src/storage/file-store.ts';
import { openS3Store } from '../../src/storage/s3/s3-store.ts';
import { storeUrl } from '../../src/storage/store-url.ts';

describe('the name of a store', () => {
  test.each(['/tmp/a mirror/objects', '/tmp/objects/'])(
    'is that of the folder %s',
    (folder) => {
      expect(storeUrl(pathToFileURL(folder))).toBe(openFileStore(folder).url);
    },
  );

  test.each([
    's3://bucket',
    's3://bucket/',
    's3://bucket/some/prefix/?region=eu-west-1',
  ])('is that of %s', (text) => {
    const url = new URL(text);
    const store = openS3Store({ url, spoolDir: '/tmp/none', ambient: {} });
    expect(storeUrl(url)).toBe(store.url);
  });
});
