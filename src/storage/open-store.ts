/** Chooses the kind of object store that OBJECT_STORE_URL calls for. */
import { fileURLToPath } from 'node:url';
import { openFileStore } from './file-store.ts';
import type { ObjectStore } from './object-store.ts';
import { openS3Store, type StoreOptions } from './s3/s3-store.ts';

/** Opens the store. No connection is made before the first call. */
export function openObjectStore(options: StoreOptions): ObjectStore {
  const { url, umask } = options;
  return url.protocol === 's3:'
    ? openS3Store(options)
    : openFileStore(fileURLToPath(url), { umask });
}
