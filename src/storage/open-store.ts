/** Chooses the kind of object store that OBJECT_STORE_URL calls for. */
import { fileURLToPath } from 'node:url';
import { openFileStore } from './file-store.ts';
import type { ObjectStore } from './object-store.ts';
import type { StoreOptions } from './s3/s3-store.ts';

/**
 * Opens the store. No connection is made before the first call. The S3 SDK is loaded only
 * if it is needed.
 */
export async function openObjectStore(
  options: StoreOptions,
): Promise<ObjectStore> {
  const { url, umask } = options;
  if (url.protocol !== 's3:')
    return openFileStore(fileURLToPath(url), { umask });
  const { openS3Store } = await import('./s3/s3-store.ts');
  return openS3Store(options);
}
