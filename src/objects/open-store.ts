/** The object store that OBJECT_STORE_URL names. */
import { fileURLToPath } from 'node:url';
import type { Log } from '../core/log.ts';
import { FileStore } from './file-store.ts';
import type { ObjectStore } from './object-store.ts';
import { openS3Store } from './s3-store.ts';

export interface StoreOptions {
  /** `file:///dir` or `s3://bucket/prefix?region=…&endpoint=…`. */
  readonly url: URL;
  /** Where objects for S3 grow; a file store spools into itself, to stay on one filesystem. */
  readonly spoolDir: string;
  /** AWS_… names, whether from the environment or from `.env`. */
  readonly ambient: Readonly<Record<string, string>>;
  readonly log: Log;
  /** How long a call waits for an S3 server that is away or busy; a minute by default. */
  readonly patienceMs?: number | undefined;
}

/** Opens nothing yet: the first call does. */
export async function openObjectStore(options: StoreOptions): Promise<ObjectStore> {
  const { url } = options;
  return url.protocol === 's3:' ? openS3Store(options) : new FileStore(fileURLToPath(url));
}
