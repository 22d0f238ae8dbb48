/** The object store that OBJECT_STORE_URL names. */
import { fileURLToPath } from 'node:url';
import { FileStore } from './file-store.ts';
import type { ObjectStore } from './object-store.ts';
import { S3Store, type StoreOptions } from './s3/s3-store.ts';

/** Opens nothing yet: the first call does. */
export async function openObjectStore(options: StoreOptions): Promise<ObjectStore> {
  const { url } = options;
  return url.protocol === 's3:' ? new S3Store(options) : new FileStore(fileURLToPath(url));
}
